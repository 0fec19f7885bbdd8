"""The routers and channels of one cloud as its leaf broker knows them: from the deployment, operators and reports."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from chappe.status.allocation.allocation import Allocator
from chappe.status.leaf.state import ChannelItem, RouterItem
from chappe.status.topology import Topology, most_security
from chappe.wire.management import AddChannel, AddRouter, Channel, ChannelFact, RouterFact


class Site(msgspec.Struct):
    """A router of this cloud."""

    name: str
    edge: bool
    events_per_s: float
    x: float
    y: float
    up: bool = False  # it is connected to this broker


class Line(msgspec.Struct):
    """A channel with at least one end in this cloud; `a` dials `b`."""

    a: str
    b: str
    url: str
    bytes_per_s: float
    latency_ns: int
    security: int
    data: str
    level: int
    owner: str
    down: set[str] = msgspec.field(default_factory=set)  # ends that say so

    @property
    def up(self) -> bool:
        return not self.down


def pair(a: str, b: str) -> str:
    """The key of a channel, whichever end is named first."""
    return f"{a}/{b}" if a < b else f"{b}/{a}"


class TopologyState:
    """What there is; the allocator always knows the same."""

    def __init__(self, role: str, topology: Topology, allocator: Allocator) -> None:
        self.role = role
        self.allocator = allocator
        self.sites: dict[str, Site] = {}
        self.lines: dict[str, Line] = {}
        self.around: dict[str, dict[str, Line]] = {}  # router -> neighbour -> channel
        for router in topology.router:
            if router.cloud == role:
                self.add_site(Site(router.name, router.edge, router.events_per_s, router.x, router.y))
        for channel in topology.channel:
            a, b = channel.between
            if a in self.sites or b in self.sites:
                self.add_line(Line(a, b, topology.routers[b].listen, channel.bytes_per_s, channel.latency_ns,
                                   channel.security, channel.data, topology.level(channel),
                                   topology.owner(channel)))  # fmt: skip

    def restore(self, routers: dict[str, RouterItem], channels: dict[str, ChannelItem]) -> None:
        """What operators have changed since the deployment was written."""
        for name, item in routers.items():
            if item.removed:
                self.remove_site(name)
            elif item.added:
                self.add_site(Site(name, item.edge, item.events_per_s, item.x, item.y))
        for channel in channels.values():
            if channel.removed:
                self.remove_line(channel.a, channel.b)
            elif channel.a in self.sites or channel.b in self.sites:
                self.add_line(self.line_of(channel))

    def line_of(self, item: ChannelItem) -> Line:
        inside = item.a in self.sites and item.b in self.sites
        return Line(item.a, item.b, item.url, item.bytes_per_s, item.latency_ns, item.security, item.data, item.level,
                    self.role if inside else "")  # fmt: skip

    # changes

    def add_site(self, site: Site) -> None:
        self.sites[site.name] = site
        self.around.setdefault(site.name, {})
        self.allocator.add_router(site.name, site.events_per_s, edge=site.edge)
        self.allocator.set_router_up(site.name, site.up)

    def remove_site(self, name: str) -> list[Line]:
        """Its channels go with it; they are returned."""
        if self.sites.pop(name, None) is None:
            return []
        gone = list(self.around.pop(name, {}).values())
        for line in gone:
            self.remove_line(line.a, line.b)
        self.allocator.remove_router(name)
        return gone

    def add_line(self, line: Line) -> None:
        line.security = min(line.security, most_security(line.url, line.data))  # whatever an older store says
        self.lines[pair(line.a, line.b)] = line
        for name, other in ((line.a, line.b), (line.b, line.a)):
            if name in self.sites:
                self.around[name][other] = line
        if self.inside(line):
            self.allocator.add_channel(line.a, line.b, line.bytes_per_s, line.latency_ns, line.security)
            self.allocator.set_channel_up(line.a, line.b, line.up)

    def remove_line(self, a: str, b: str) -> Line | None:
        line = self.lines.pop(pair(a, b), None)
        if line is not None:
            for name, other in ((a, b), (b, a)):
                self.around.get(name, {}).pop(other, None)
            if line.owner == self.role:
                self.allocator.remove_channel(a, b)
        return line

    def inside(self, line: Line) -> bool:
        return line.a in self.sites and line.b in self.sites

    def border(self) -> bool:
        """Whether any channel leads to another cloud."""
        return any(not self.inside(line) for line in self.lines.values())

    # reports

    def router_up(self, name: str, up: bool) -> None:
        self.sites[name].up = up
        self.allocator.set_router_up(name, up)

    def links(self, name: str, connected: Iterable[str]) -> bool:
        """A router tells all its links; True if a channel changed."""
        there = set(connected)
        changed = [self.link(name, peer, peer in there) for peer in list(self.around[name])]
        return any(changed)

    def link(self, name: str, peer: str, up: bool) -> bool:
        """A router tells of one (GS-150). Paths that use it stay; new ones avoid it while it is down."""
        line = self.around.get(name, {}).get(peer)
        if line is None:
            return False
        before = line.up
        (line.down.discard if up else line.down.add)(name)
        if before == line.up:
            return False
        if self.inside(line):
            self.allocator.set_channel_up(line.a, line.b, line.up)
        return True

    def whole(self) -> bool:
        """Every router is there and every channel inside is up."""
        return all(site.up for site in self.sites.values()) and all(
            line.up for line in self.lines.values() if self.inside(line)
        )

    def usable(self, routers: tuple[str, ...], before: str, after: str) -> str:
        """The first router or channel of a segment that cannot be used now; empty if all can."""
        for name in routers:
            if name not in self.sites or not self.sites[name].up:
                return f"router/{name}"
        way = [name for name in (before, *routers, after) if name]
        for a, b in pairwise(way):
            line = self.lines.get(pair(a, b))
            if line is None or not line.up:
                return f"channel/{a}/{b}"
        return ""

    # what others are told

    def channels(self, name: str) -> tuple[Channel, ...]:
        """All channels of a router: it dials those of which it is the first end."""
        return tuple(
            Channel(peer, line.url if line.a == name else "", line.level, line.data)
            for peer, line in sorted(self.around[name].items())
        )

    def facts(self, loads: dict[str, tuple[float, ...]]) -> tuple[tuple[RouterFact, ...], tuple[ChannelFact, ...]]:
        """For the parent: every router, and every channel that this cloud sees."""
        routers = tuple(
            RouterFact(site.name, self.role, site.edge, site.events_per_s, site.up, loads.get(site.name, ()))
            for site in self.sites.values()
        )
        channels = tuple(
            ChannelFact(line.a, line.b, line.bytes_per_s, line.latency_ns, line.security, line.up)
            for line in self.lines.values()
        )
        return routers, channels

    def site(self, request: AddRouter) -> RouterItem:
        return RouterItem(added=True, edge=request.edge, events_per_s=request.events_per_s or 1_000_000.0,
                          x=request.x, y=request.y)  # fmt: skip

    def line(self, request: AddChannel, level: int = 1) -> ChannelItem:
        return ChannelItem(a=request.a, b=request.b, url=request.url, bytes_per_s=request.bytes_per_s or 100_000_000.0,
                           latency_ns=request.latency_ns or 1_000_000, security=request.security, data=request.data,
                           level=level)  # fmt: skip
