"""One tree of places that an event visits from this node: nodes of the cluster, then units, each of them once.

Routes of several destinations are merged: a route joins the tree at the last of its places that is there already. So
whatever the routes are, every place has one parent, and the result can be written down as routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from chappe.events.interest import Wanted
from chappe.events.source_route import SourceRoute, Step, Unit
from chappe.events.trace import visited
from chappe.linkstate.units import VertexId

Entry = Callable[[VertexId, tuple[str, ...]], tuple[str, tuple[str, ...]] | None]
"""Of a unit next to this node, with the trace so far: the peer over whose link it is entered, and the trace then."""


class TreeVertex:
    """A node or unit in the tree."""

    __slots__ = ("below", "groups", "parent", "plain", "vertex_id")

    def __init__(self, vertex_id: VertexId, parent: TreeVertex | None) -> None:
        self.vertex_id = vertex_id
        self.parent = parent
        self.below: list[TreeVertex] = []
        self.plain = False
        self.groups: tuple[str, ...] = ()


class Plan:
    """A growing tree with this node as its root."""

    def __init__(self, node: str) -> None:
        self.root = TreeVertex(VertexId(0, node), None)
        self.vertices = {self.root.vertex_id: self.root}

    def graft(self, vertex_ids: Sequence[VertexId]) -> TreeVertex:
        """The place of the last of these vertices; those that are missing are put below the ones that are there."""
        vertex = self.root
        for at in range(len(vertex_ids) - 1, -1, -1):
            known = self.vertices.get(vertex_ids[at])
            if known is not None:
                vertex = known
                vertex_ids = vertex_ids[at + 1 :]
                break
        for vertex_id in vertex_ids:
            vertex = self._put(vertex_id, vertex)
        return vertex

    def hang(self, units: Sequence[Unit], vertex: TreeVertex) -> None:
        """Put a tree of units that came with a route at the place of its first one."""
        parents = [(len(units), vertex)]
        mark(vertex, units[0].deliver, units[0].groups)
        for at, unit in enumerate(units[1:], 1):
            while parents[-1][0] == at:
                parents.pop()
            vertex_id = VertexId(unit.level, unit.name)
            here = self.vertices.get(vertex_id) or self._put(vertex_id, parents[-1][1])
            mark(here, unit.deliver, unit.groups)
            if unit.below:
                parents.append((at + 1 + unit.below, here))

    def path(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """The places from the root's first branch to this one."""
        vertex: TreeVertex | None = self.vertices[vertex_id]
        passed = []
        while vertex is not None and vertex.parent is not None:
            passed.append(vertex.vertex_id)
            vertex = vertex.parent
        return tuple(reversed(passed))

    def source_routes(
        self,
        entry: Entry,
        trace: tuple[str, ...],
        profile: str,
        reroutes: int,
        served: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
    ) -> Iterator[tuple[TreeVertex, str, SourceRoute]]:
        """(first vertex, peer, route) of each branch; no peer where no link leads into a unit next to this node."""
        for vertex in self.root.below:
            if vertex.vertex_id.level == 0:
                steps = tuple(_steps(vertex))
                yield (
                    vertex,
                    vertex.vertex_id.name,
                    SourceRoute(steps, (), _open(trace, vertex), profile, reroutes, served, needs),
                )
                continue
            found = entry(vertex.vertex_id, _open(trace, vertex))
            peer, passed = found if found is not None else ("", ())
            yield vertex, peer, SourceRoute((), tuple(_units(vertex)), passed, profile, reroutes, served, needs)

    def _put(self, vertex_id: VertexId, parent: TreeVertex) -> TreeVertex:
        vertex = TreeVertex(vertex_id, parent)
        parent.below.append(vertex)
        self.vertices[vertex_id] = vertex
        return vertex


def mark(vertex: TreeVertex, plain: bool, groups: tuple[str, ...]) -> None:
    """Say who wants the event at a place."""
    vertex.plain = vertex.plain or plain
    vertex.groups = tuple(sorted({*vertex.groups, *groups}))


def wanting(vertex: TreeVertex) -> dict[VertexId, Wanted]:
    """The destinations at a place and below it."""
    return {
        below.vertex_id: Wanted(below.plain, below.groups) for below in preorder(vertex) if below.plain or below.groups
    }


def preorder(vertex: TreeVertex) -> list[TreeVertex]:
    """A place and all below it, each before those below itself; no recursion, a route may be a chain of thousands."""
    order = []
    waiting = [vertex]
    while waiting:
        here = waiting.pop()
        order.append(here)
        waiting.extend(reversed(here.below))
    return order


def _open(trace: tuple[str, ...], vertex: TreeVertex) -> tuple[str, ...]:
    """The trace without units that a branch passes all the same, because after a loss there is no other route."""
    if not trace:
        return trace
    units = [below.vertex_id.name for below in preorder(vertex) if below.vertex_id.level]
    return tuple(left for left in trace if not visited(left, units))


def _steps(vertex: TreeVertex) -> list[Step]:
    nodes = [here for here in preorder(vertex) if here.vertex_id.level == 0]
    below = _counts(nodes)
    return [
        Step(
            here.vertex_id.name,
            below[here],
            here.plain,
            here.groups,
            tuple(unit for far in here.below if far.vertex_id.level for unit in _units(far)),
        )
        for here in nodes
    ]


def _units(vertex: TreeVertex) -> list[Unit]:
    order = preorder(vertex)
    below = _counts(order)
    return [Unit(here.vertex_id.level, here.vertex_id.name, below[here], here.plain, here.groups) for here in order]


def _counts(order: list[TreeVertex]) -> dict[TreeVertex, int]:
    below = dict.fromkeys(order, 0)
    for here in reversed(order):
        if here.parent is not None and here.parent in below:
            below[here.parent] += below[here] + 1
    return below
