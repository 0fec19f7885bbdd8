"""Messages to all names with a prefix: on to the prefix first, then among the cells that have it (BF-25, BF-26)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

SEEN = 65_536
Part = tuple[int, int]
"""A message and the part of it."""


class Seen:
    """Which parts have come already; the oldest are forgotten."""

    def __init__(self, most: int = SEEN) -> None:
        self._most = most
        self._parts: OrderedDict[Part, None] = OrderedDict()

    def add(self, part: Part) -> bool:
        """Whether it is new."""
        if part in self._parts:
            return False
        self._parts[part] = None
        if len(self._parts) > self._most:
            self._parts.popitem(last=False)
        return True


def widest_tree(
    me: bytes, inside: Collection[bytes], arcs: Mapping[tuple[bytes, bytes], float]
) -> dict[bytes, set[bytes]]:
    """A spanning tree of the cells inside a prefix whose narrowest links are as wide as can be (BF-40).

    A link counts with the narrower of its two directions, and links of one width go by the ids of their ends: cells
    that know the same links come to the same tree.
    """
    within = {me, *inside}
    edges: list[tuple[float, bytes, bytes]] = []
    for (tail, head), width in arcs.items():
        back = arcs.get((head, tail))
        if tail < head and tail in within and head in within and back is not None:
            edges.append((-min(width, back), tail, head))
    edges.sort()
    root = {id: id for id in within}
    tree: dict[bytes, set[bytes]] = {id: set() for id in within}
    for _, tail, head in edges:
        one, other = _root(root, tail), _root(root, head)
        if one != other:
            root[one] = other
            tree[tail].add(head)
            tree[head].add(tail)
    return tree


def _root(root: dict[bytes, bytes], id: bytes) -> bytes:
    while root[id] != id:
        root[id] = root[root[id]]
        id = root[id]
    return id


def spans(tree: Mapping[bytes, Collection[bytes]], me: bytes, others: Iterable[bytes]) -> bool:
    """Whether all of them are joined by the tree."""
    reached, waiting = {me}, [me]
    while waiting:
        for id in tree[waiting.pop()]:
            if id not in reached:
                reached.add(id)
                waiting.append(id)
    return reached.issuperset(others)
