"""What one arc that costs something else does to the distances: usually little, which is quicker to find than all anew.

Ramalingam and Reps: distances of the vertices that the change reaches, no others. The result is that of the library to
the last bit, since each distance is the least sum of a distance and a weight, and all weights are above zero.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from chappe.linkstate.arcs import Arcs, Floats

REACH = 96  # vertices whose distance may change before the library is quicker


def repaired(arcs: Arcs, weights: Floats, distance: Floats, arc: int, old: float) -> dict[int, float] | None:
    """New distances of the vertices that have one, after an arc with the weight `old` got the one that it has in
    `weights`; None if the change reaches too far."""
    new = weights.item(arc)
    tail, head = arcs.pairs[arc]
    near, far = distance.item(tail), distance.item(head)
    if new < old:
        return _nearer(arcs, weights, distance, [(near + new, head)]) if near + new < far else {}
    if near + old != far or far == float("inf"):
        return {}  # it made no shortest route
    cut = _cut(arcs, weights, distance, head)
    if cut is None:
        return None
    ahead = []
    for vertex_id in cut:
        sums = [distance.item(a) + weights.item(path) for a, path in arcs.into[vertex_id] if a not in cut]
        ahead.append((min(sums, default=float("inf")), vertex_id))
    heapify(ahead)
    return _nearer(arcs, weights, distance, ahead, dict.fromkeys(cut, float("inf")))


def _cut(arcs: Arcs, weights: Floats, distance: Floats, first: int) -> set[int] | None:
    """Things that no arc from elsewhere reaches in as little as before, nearest first, so that all before one are
    known."""
    cut: set[int] = set()
    seen = {first}
    ahead = [(distance.item(first), first)]
    while ahead:
        far, vertex_id = heappop(ahead)
        if any(distance.item(a) + weights.item(arc) == far for a, arc in arcs.into[vertex_id] if a not in cut):
            continue
        cut.add(vertex_id)
        if len(cut) > REACH:
            return None
        for b, arc in arcs.out[vertex_id]:
            if b not in seen and far + weights.item(arc) == distance.item(b):
                seen.add(b)
                heappush(ahead, (distance.item(b), b))
    return cut


def _nearer(
    arcs: Arcs, weights: Floats, distance: Floats, ahead: list[tuple[float, int]], found: dict[int, float] | None = None
) -> dict[int, float] | None:
    """Dijkstra from these (distance, vertex), over vertices that they make nearer; `found`: known to be farther."""
    found = {} if found is None else found
    while ahead:
        far, vertex_id = heappop(ahead)
        if far >= (found[vertex_id] if vertex_id in found else distance.item(vertex_id)):
            continue
        found[vertex_id] = far
        if len(found) > 2 * REACH:
            return None
        for b, arc in arcs.out[vertex_id]:
            more = far + weights.item(arc)
            if more < (found[b] if b in found else distance.item(b)):
                heappush(ahead, (more, b))
    return found
