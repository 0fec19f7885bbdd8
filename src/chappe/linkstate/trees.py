"""One tree out of many routes, in which every node and every unit stands once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chappe.linkstate.route import Branch, Leave, Route, Tree
from chappe.linkstate.units import VertexId


def grown(me: str, wanted: Collection[VertexId], routes: Iterable[Route], unreached: tuple[VertexId, ...]) -> Tree:
    """The union of routes, short ones first; a route that meets the tree again goes on from where it does so last.

    Routes kept by hysteresis need not be parts of one another, and an event must not come to a place twice.
    """
    root = VertexId(0, me)
    above: dict[VertexId, tuple[VertexId, bytes]] = {}  # what a vertex is reached from, and by which link
    for route in sorted(routes, key=lambda route: (len(route.vertex_ids), route.vertex_ids)):
        start = max((location for location, vertex_id in enumerate(route.vertex_ids) if vertex_id in above), default=-1)
        before = route.vertex_ids[start] if start >= 0 else root
        for vertex_id, link in zip(route.vertex_ids[start + 1 :], route.links[start + 1 :], strict=True):
            above[vertex_id] = (before, link)
            before = vertex_id
    below: dict[VertexId, list[VertexId]] = {}
    for vertex_id in sorted(above):
        below.setdefault(above[vertex_id][0], []).append(vertex_id)
    ends = frozenset(wanted)

    def units(vertex_id: VertexId) -> list[tuple[VertexId, ...]]:
        """The routes below a unit, itself included."""
        found: list[tuple[VertexId, ...]] = [(vertex_id,)] if vertex_id in ends else []
        for child in below.get(vertex_id, ()):
            found.extend((vertex_id, *path) for path in units(child))
        return found

    def branch(node: VertexId) -> Branch:
        children = below.get(node, ())
        return Branch(
            node.name,
            node in ends,
            tuple(Leave(above[child][1], child, tuple(units(child))) for child in children if child.level),
            tuple(branch(child) for child in children if not child.level),
        )

    return Tree(branch(root), unreached)
