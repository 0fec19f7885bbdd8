"""The routers and channels of one cloud as its leaf broker knows them: from the deployment, operators and reports."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from chappe.status.allocation.allocation import Allocator
from chappe.status.leaf.state import ChannelItem, RouterItem
from chappe.status.topology import Topology, most_security
from chappe.wire.management import AddChannel, AddRouter, Channel, ChannelFact, RouterFact


class RouterState(msgspec.Struct):
    """A router of this cloud."""

    name: str
    edge: bool
    events_per_s: float
    x: float
    y: float
    up: bool = False  # it is connected to this broker


class ChannelState(msgspec.Struct):
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
        self.routers: dict[str, RouterState] = {}
        self.channel_states: dict[str, ChannelState] = {}
        self.around: dict[str, dict[str, ChannelState]] = {}  # router -> neighbour -> channel
        for router in topology.router:
            if router.cloud == role:
                self.add_router(RouterState(router.name, router.edge, router.events_per_s, router.x, router.y))
        for channel in topology.channel:
            a, b = channel.between
            if a in self.routers or b in self.routers:
                self.add_channel(ChannelState(a, b, topology.routers[b].listen, channel.bytes_per_s, channel.latency_ns,
                                   channel.security, channel.data, topology.level(channel),
                                   topology.owner(channel)))  # fmt: skip

    def restore(self, routers: dict[str, RouterItem], channels: dict[str, ChannelItem]) -> None:
        """What operators have changed since the deployment was written."""
        for name, item in routers.items():
            if item.removed:
                self.remove_router(name)
            elif item.added:
                self.add_router(RouterState(name, item.edge, item.events_per_s, item.x, item.y))
        for channel in channels.values():
            if channel.removed:
                self.remove_channel(channel.a, channel.b)
            elif channel.a in self.routers or channel.b in self.routers:
                self.add_channel(self.channel_of(channel))

    def channel_of(self, item: ChannelItem) -> ChannelState:
        inside = item.a in self.routers and item.b in self.routers
        return ChannelState(item.a, item.b, item.url, item.bytes_per_s, item.latency_ns, item.security, item.data,
                            item.level, self.role if inside else "")  # fmt: skip

    # changes

    def add_router(self, router: RouterState) -> None:
        self.routers[router.name] = router
        self.around.setdefault(router.name, {})
        self.allocator.add_router(router.name, router.events_per_s, edge=router.edge)
        self.allocator.set_router_up(router.name, router.up)

    def remove_router(self, name: str) -> list[ChannelState]:
        """Its channels go with it; they are returned."""
        if self.routers.pop(name, None) is None:
            return []
        gone = list(self.around.pop(name, {}).values())
        for channel in gone:
            self.remove_channel(channel.a, channel.b)
        self.allocator.remove_router(name)
        return gone

    def add_channel(self, channel: ChannelState) -> None:
        # whatever an older store says
        channel.security = min(channel.security, most_security(channel.url, channel.data))
        self.channel_states[pair(channel.a, channel.b)] = channel
        for name, other in ((channel.a, channel.b), (channel.b, channel.a)):
            if name in self.routers:
                self.around[name][other] = channel
        if self.inside(channel):
            self.allocator.add_channel(channel.a, channel.b, channel.bytes_per_s, channel.latency_ns, channel.security)
            self.allocator.set_channel_up(channel.a, channel.b, channel.up)

    def remove_channel(self, a: str, b: str) -> ChannelState | None:
        channel = self.channel_states.pop(pair(a, b), None)
        if channel is not None:
            for name, other in ((a, b), (b, a)):
                self.around.get(name, {}).pop(other, None)
            if channel.owner == self.role:
                self.allocator.remove_channel(a, b)
        return channel

    def inside(self, channel: ChannelState) -> bool:
        return channel.a in self.routers and channel.b in self.routers

    def border(self) -> bool:
        """Whether any channel leads to another cloud."""
        return any(not self.inside(channel) for channel in self.channel_states.values())

    # reports

    def router_up(self, name: str, up: bool) -> None:
        self.routers[name].up = up
        self.allocator.set_router_up(name, up)

    def links(self, name: str, connected: Iterable[str]) -> bool:
        """A router reports all its links; True if a channel changed."""
        there = set(connected)
        changed = [self.link(name, peer, peer in there) for peer in list(self.around[name])]
        return any(changed)

    def link(self, name: str, peer: str, up: bool) -> bool:
        """A router reports one (GS-150). Paths that use it stay; new ones avoid it while it is down."""
        channel = self.around.get(name, {}).get(peer)
        if channel is None:
            return False
        before = channel.up
        (channel.down.discard if up else channel.down.add)(name)
        if before == channel.up:
            return False
        if self.inside(channel):
            self.allocator.set_channel_up(channel.a, channel.b, channel.up)
        return True

    def whole(self) -> bool:
        """Every router is there and every channel inside is up."""
        return all(router.up for router in self.routers.values()) and all(
            channel.up for channel in self.channel_states.values() if self.inside(channel)
        )

    def usable(self, routers: tuple[str, ...], before: str, after: str) -> str:
        """The first router or channel of a segment that cannot be used now; empty if all can."""
        for name in routers:
            if name not in self.routers or not self.routers[name].up:
                return f"router/{name}"
        path = [name for name in (before, *routers, after) if name]
        for a, b in pairwise(path):
            channel = self.channel_states.get(pair(a, b))
            if channel is None or not channel.up:
                return f"channel/{a}/{b}"
        return ""

    # reports to others

    def channels(self, name: str) -> tuple[Channel, ...]:
        """All channels of a router: it dials those of which it is the first end."""
        return tuple(
            Channel(peer, channel.url if channel.a == name else "", channel.level, channel.data)
            for peer, channel in sorted(self.around[name].items())
        )

    def facts(self, loads: dict[str, tuple[float, ...]]) -> tuple[tuple[RouterFact, ...], tuple[ChannelFact, ...]]:
        """For the parent: every router, and every channel that this cloud sees."""
        routers = tuple(
            RouterFact(router.name, self.role, router.edge, router.events_per_s, router.up, loads.get(router.name, ()))
            for router in self.routers.values()
        )
        channels = tuple(
            ChannelFact(channel.a, channel.b, channel.bytes_per_s, channel.latency_ns, channel.security, channel.up)
            for channel in self.channel_states.values()
        )
        return routers, channels

    def router_item(self, request: AddRouter) -> RouterItem:
        return RouterItem(added=True, edge=request.edge, events_per_s=request.events_per_s or 1_000_000.0,
                          x=request.x, y=request.y)  # fmt: skip

    def channel_item(self, request: AddChannel, level: int = 1) -> ChannelItem:
        return ChannelItem(a=request.a, b=request.b, url=request.url, bytes_per_s=request.bytes_per_s or 100_000_000.0,
                           latency_ns=request.latency_ns or 1_000_000, security=request.security, data=request.data,
                           level=level)  # fmt: skip
