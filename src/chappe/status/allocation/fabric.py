"""The topology as graphs, and the disjoint paths between two edges, kept until the topology changes."""

from __future__ import annotations

from chappe.graph.disjoint import disjoint, least_bound, within
from chappe.graph.graph import Graph, Path
from chappe.status.allocation.resources import Channel, Ledger

HOP_COST = 1_000_000
"""Cost of a hop over the widest channel of the topology; a narrower one costs more in proportion."""


class Fabric:
    """Which channels can be used at all: present, up, between routers that are up, secure enough."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._latency: dict[int, Graph] = {}
        self._width: dict[int, Graph] = {}
        self._paths: dict[tuple[bool, int, str, str, int], tuple[Path, ...]] = {}
        self._within: dict[tuple[int, str, str, int, int], list[Path] | None] = {}
        self._least: dict[tuple[int, str, str, int], int | None] = {}
        self._most = 0

    def changed(self) -> None:
        """The topology, or what is up, is another one now."""
        self._latency.clear()
        self._width.clear()
        self._paths.clear()
        self._within.clear()
        self._least.clear()
        self._most = 0
        self._ledger.version += 1

    def latency(self, security: int) -> Graph:
        """Usable channels by latency, with that of the idle router at their end."""
        graph = self._latency.get(security)
        if graph is None:
            idle = self._ledger.model.router_ns
            arcs = {hop: channel.latency_ns + idle for hop, channel in self._usable(security)}
            graph = self._latency[security] = Graph(arcs)
        return graph

    def width(self, security: int) -> Graph:
        """Usable channels by cost: the wider the cheaper."""
        graph = self._width.get(security)
        if graph is None:
            graph = self._width[security] = Graph({hop: self.cost(channel) for hop, channel in self._usable(security)})
        return graph

    def cost(self, channel: Channel, taken: int = 0) -> int:
        """Cost of a hop on which so much is taken already."""
        if self._most == 0:
            self._most = max((channel.capacity for channel in self._ledger.channels.values()), default=1) or 1
        if channel.capacity == 0:
            return 1
        return max(1, HOP_COST * self._most // max(1, channel.capacity - taken))

    def widest(self, security: int, source: str, target: str, count: int) -> tuple[Path, ...]:
        """`count` disjoint paths over the widest channels; fewer if there are not so many."""
        return self._disjoint(True, security, source, target, count)

    def fastest(self, security: int, source: str, target: str, count: int) -> tuple[Path, ...]:
        """`count` disjoint paths of least total latency; fewer if there are not so many."""
        return self._disjoint(False, security, source, target, count)

    def within(self, security: int, source: str, target: str, count: int, room: int) -> list[Path] | None:
        """`count` disjoint paths whose idle hops take `room` or less each, or None."""
        key = security, source, target, count, room
        if key not in self._within:
            self._within[key] = within(self.latency(security), source, target, count, room)
        return self._within[key]

    def least(self, security: int, source: str, target: str, count: int) -> int | None:
        """The least that the slowest of `count` disjoint paths takes over idle hops."""
        key = security, source, target, count
        if key not in self._least:
            self._least[key] = least_bound(self.latency(security), source, target, count)
        return self._least[key]

    def _disjoint(self, wide: bool, security: int, source: str, target: str, count: int) -> tuple[Path, ...]:
        key = wide, security, source, target, count
        found = self._paths.get(key)
        if found is None:
            graph = self.width(security) if wide else self.latency(security)
            found = self._paths[key] = tuple(disjoint(graph, source, target, count))
        return found

    def _usable(self, security: int) -> list[tuple[tuple[str, str], Channel]]:
        routers = {name for name, router in self._ledger.routers.items() if router.present and router.up}
        return [
            (hop, channel) for hop, channel in self._ledger.channels.items()
            if channel.present and channel.up and channel.security >= security and routers.issuperset(hop)
        ]  # fmt: skip
