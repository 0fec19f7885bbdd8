"""The cells within a few hops as a directed graph of measured bandwidth, and the paths to each (BF-20 to BF-23)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from chappe.cells.adverts import CEILING, sane
from chappe.errors import ProtocolError
from chappe.graph.flow import Flow, FlowGraph, flow_paths
from chappe.wire.parcels import CELL_ID_BYTES, MAX_HOPS

UNMEASURED = 65_536.0  # bytes a second that a link counts with until it is measured, so that a new mesh works at once
MOST_LINKS = 1024  # of one cell
MOST_CELLS = 4096  # whose links are kept

Links = Mapping[bytes, float]

_NO_LINKS: dict[bytes, float] = {}


class CellPath(NamedTuple):
    """One path to a cell of the neighbourhood."""

    hops: tuple[bytes, ...]  # without this cell
    capacity: float  # bytes a second that the maximum flow sends over it


class Neighbourhood:
    """What is known of the links of the cells within `radius` hops; answers are kept until a link changes."""

    def __init__(self, me: bytes, radius: int) -> None:
        self.me = me
        self.radius = radius
        self.generation = 0  # rises with every change
        self._links: dict[bytes, dict[bytes, float]] = {}
        self._hops: dict[bytes, int] | None = None
        self._members: frozenset[bytes] | None = None
        self._near_links: dict[bytes, dict[bytes, float]] | None = None
        self._outputs: dict[bytes, float] = {}
        self._graph: FlowGraph[bytes] | None = None
        self._flows: dict[bytes, Flow[bytes]] = {}
        self._paths: dict[tuple[bytes, int], list[CellPath]] = {}

    # --- what is stated

    def set_links(self, origin: bytes, links: Links) -> bool:
        """The links from a cell, this one or another, with bytes a second in that direction; NaN: not measured yet.

        True if that changes anything. ProtocolError for what no cell would state, and for more cells than are kept.
        """
        if len(links) > MOST_LINKS:
            raise ProtocolError(f"a cell states {len(links)} links; at most {MOST_LINKS} are allowed")
        if any(len(cell) != CELL_ID_BYTES for cell in (origin, *links)):
            raise ProtocolError(f"a cell id has {CELL_ID_BYTES} bytes")
        if origin not in self._links and len(self._links) >= MOST_CELLS:
            raise ProtocolError(f"links of more than {MOST_CELLS} cells")
        new = {cell: usable_bandwidth(value) for cell, value in links.items() if cell != origin}
        if self._links.get(origin) == new:
            return False
        self._links[origin] = new
        self._forget_answers()
        return True

    def forget(self, origin: bytes) -> None:
        """A cell states nothing more."""
        if self._links.pop(origin, None) is not None:
            self._forget_answers()

    def _forget_answers(self) -> None:
        self.generation += 1
        self._hops = self._members = self._near_links = self._graph = None
        self._outputs.clear()
        self._flows.clear()
        self._paths.clear()

    # --- questions

    @property
    def hops(self) -> Mapping[bytes, int]:
        """The cells within the radius, without this one, and how many links each is away; the nearest first."""
        if self._hops is None:
            self._hops = self._reach()
        return MappingProxyType(self._hops)

    @property
    def members(self) -> frozenset[bytes]:
        """N(me): the cells within the radius, without this one."""
        if self._members is None:
            self._members = frozenset(self.hops)
        return self._members

    @property
    def neighbours(self) -> Links:
        """The links of this cell."""
        return MappingProxyType(self._links.get(self.me, {}))

    @property
    def arcs(self) -> Mapping[tuple[bytes, bytes], float]:
        """The links among this cell and its neighbourhood."""
        return MappingProxyType(self._flow_graph().arcs)

    def bandwidth(self, tail: bytes, head: bytes) -> float | None:
        """Of one link, as its tail states it; None if no such link is known, or its tail is too far to be known."""
        return self._known().get(tail, _NO_LINKS).get(head)

    def cap(self, sender: bytes, cell: bytes) -> float:
        """How much a cell of the neighbourhood can bring to one outside, past the rest of the neighbourhood.

        Only cells of the neighbourhood are known to have links, so without the others there are those of the sender.
        What is not known counts as unlimited.
        """
        return self._known().get(sender, _NO_LINKS).get(cell, CEILING)

    def output(self, cell: bytes) -> float:
        """All that a cell can send, by its own links; unlimited if they are not known."""
        output = self._outputs.get(cell)
        if output is None:
            links = self._known().get(cell)
            output = self._outputs[cell] = CEILING if links is None else min(sum(links.values()), CEILING)
        return output

    def inflow(self) -> float:
        """All that can come to this cell, as its neighbours state it; unlimited if none of them does."""
        total = sum(links.get(self.me, 0.0) for links in self._known().values())
        return min(total, CEILING) or CEILING

    def capacity(self, to: bytes) -> float:
        """The maximum flow from this cell to one of its neighbourhood; 0 to others."""
        return self._flow(to).value

    def paths(self, to: bytes, most: int) -> list[CellPath]:
        """Up to `most` paths that carry the maximum flow to a cell of the neighbourhood, the shortest first."""
        found = self._paths.get((to, most))
        if found is None:
            paths = flow_paths(self._flow(to), self.me, to, most)
            found = [CellPath(path.vertices[1:], path.capacity) for path in paths if len(path.vertices) <= MAX_HOPS]
            self._paths[to, most] = found
        return found

    # --- how

    def _flow(self, to: bytes) -> Flow[bytes]:
        if to not in self.hops:
            return Flow(0.0, {})
        flow = self._flows.get(to)
        if flow is None:
            flow = self._flows[to] = self._flow_graph().maximum_flow(self.me, to)
        return flow

    def _flow_graph(self) -> FlowGraph[bytes]:
        if self._graph is None:
            inside = {self.me, *self.hops}
            self._graph = FlowGraph({
                (tail, head): bandwidth
                for tail, links in self._known().items()
                for head, bandwidth in links.items()
                if head in inside
            })  # fmt: skip
        return self._graph

    def _known(self) -> dict[bytes, dict[bytes, float]]:
        """The links of this cell and of those within the radius."""
        if self._near_links is None:
            self._near_links = {cell: self._links[cell] for cell in (self.me, *self.hops) if cell in self._links}
        return self._near_links

    def _reach(self) -> dict[bytes, int]:
        found = {self.me: 0}
        edge = [self.me]
        for distance in range(1, self.radius + 1):
            heads = (head for tail in edge for head in self._links.get(tail, ()))
            edge = [head for head in dict.fromkeys(heads) if head not in found]
            found.update(dict.fromkeys(edge, distance))
        del found[self.me]
        return found


def usable_bandwidth(value: float) -> float:
    """The bandwidth of a link as a cell states it: a small one if it is not measured yet."""
    return sane(value) if value == value else UNMEASURED
