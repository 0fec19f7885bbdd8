"""Everything below an inner broker as it knows it: children, their maps, and the channels between them that it owns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chappe.status.allocation.allocation import Allocator
from chappe.status.allocation.demands import Route
from chappe.status.leaf.state import ChannelItem
from chappe.status.leaf.topology_state import pair
from chappe.status.topology import Topology
from chappe.wire.management import ChannelFact, Map, RouterFact, Segment


class ChildState(msgspec.Struct):
    """A child broker, and what it reported of its subtree."""

    role: str
    height: int = 1
    up: bool = False
    mode: int = 0
    issuer: bytes = b""
    routers: dict[str, RouterFact] = {}
    channels: dict[str, ChannelFact] = {}
    owners: dict[str, tuple[str, str, str]] = {}  # channel -> its ends, and the inner broker that manages it


class ManagedChannel(msgspec.Struct):
    """A channel between two children: this broker manages its capacity (GS-089)."""

    item: ChannelItem
    down: set[str] = msgspec.field(default_factory=set)  # children that see it down

    @property
    def fact(self) -> ChannelFact:
        item = self.item
        return ChannelFact(item.a, item.b, item.bytes_per_s, item.latency_ns, item.security, not self.down)


class NetView:
    """The map of everything below; the allocator always knows the same. Only own channels are owned there."""

    def __init__(self, role: str, topology: Topology, allocator: Allocator) -> None:
        self.role = role
        self.topology = topology
        self.allocator = allocator
        self.children: dict[str, ChildState] = {}
        self.managed_channels: dict[str, ManagedChannel] = {}
        self.changed = False  # the parent has not got the map
        self._cloud_of: dict[str, str] = {}  # router -> cloud
        self._child_of: dict[str, str] = {}  # cloud -> child
        self._over: dict[str, str] = {}  # inner broker further down -> child
        for child in topology.children(role):
            self.children[child] = ChildState(child, topology.height(child))
        for broker in topology.brokers:
            above = list(topology.ancestors(broker))
            if role in above[1:]:
                known = self._over if topology.children(broker) else self._child_of
                known[broker] = above[above.index(role) - 1]
        for channel in topology.channel:
            if topology.owner(channel) == role:
                a, b = channel.between
                self.add_channel(ChannelItem(a=a, b=b, url=topology.routers[b].listen, bytes_per_s=channel.bytes_per_s,
                                          latency_ns=channel.latency_ns, security=channel.security, data=channel.data,
                                          level=self.height))  # fmt: skip

    @property
    def height(self) -> int:
        return 1 + max((child.height for child in self.children.values()), default=1)

    def cloud_of(self, router: str) -> str:
        """The leaf that manages a router; empty if it is not below."""
        return self._cloud_of.get(router, "")

    def child_of(self, cloud: str) -> str:
        """The child that a cloud or an inner broker is below, or is; empty if neither."""
        known = self._child_of.get(cloud, "") or self._over.get(cloud, "")
        return known or (cloud if cloud in self.children else "")

    def below(self, child: str) -> list[str]:
        """The clouds below a child."""
        return [cloud for cloud, above in self._child_of.items() if above == child]

    def brokers(self, child: str) -> list[str]:
        """A child and every broker below it, leaf or inner."""
        inner = [broker for broker, above in self._over.items() if above == child]
        return [child, *(broker for broker in self.below(child) + inner if broker != child)]

    def routers_of(self, cloud: str) -> list[str]:
        """The routers of a cloud."""
        return [router for router, above in self._cloud_of.items() if above == cloud]

    def resources_of(self, broker: str) -> set[str]:
        """What a plan leaves out to do without a broker: the routers of a leaf, the channels of an inner one."""
        owned = [owner for below in self.children.values() for owner in below.owners.values() if owner[2] == broker]
        return {f"router/{router}" for router in self.routers_of(broker)} | {
            f"channel/{one}/{other}" for a, b, _ in owned for one, other in ((a, b), (b, a))
        }

    def reached(self, cloud: str) -> str:
        """The child to which a message for that cloud goes now; empty if it is away."""
        child = self.child_of(cloud)
        return child if child and self.children[child].up else ""

    # --- changes -------------------------------------------------------------------------------------------------

    def joined(self, child: str, height: int, mode: int, issuer: bytes) -> None:
        below = self.children[child]
        below.up, below.height, below.mode, below.issuer = True, height, mode, issuer
        self._raise(below)

    def lost(self, child: str) -> None:
        """No new path leads through it until it is back; what it reported is kept."""
        below = self.children[child]
        below.up, below.issuer = False, b""
        self._raise(below)

    def merge(self, child: str, report: Map) -> None:
        """The map of a child replaces what it reported before."""
        below = self.children[child]
        routers = {router.name: router for router in report.routers}
        channels = {pair(channel.a, channel.b): channel for channel in report.channels}
        for name in below.routers.keys() - routers.keys():
            self.allocator.remove_router(name)
            self._cloud_of.pop(name, None)
        for key in below.channels.keys() - channels.keys():
            self._unmerge(below.channels[key], key)
        for name, router in routers.items():
            if below.routers.get(name) != router:
                self._cloud_of[name] = router.cloud
                self._child_of[router.cloud] = child
                self.allocator.add_router(name, router.events_per_s, router.edge, owned=False)
            self.allocator.set_router_up(name, router.up and below.up)
        before = below.channels
        below.routers, below.channels, below.owners = routers, channels, {}
        for a, b, owner in report.owners:
            if owner != self.role and self.child_of(owner) in ("", child):
                below.owners[pair(a, b)] = (a, b, owner)
                self._over[owner] = child
        for key, channel in channels.items():
            self._channel_state(child, key, channel.up)
            if (
                before.get(key) != channel
                and key not in self.managed_channels
                and channel.a in routers
                and channel.b in routers
            ):
                self.allocator.add_channel(channel.a, channel.b, channel.bytes_per_s, channel.latency_ns,
                                           channel.security, owned=False)  # fmt: skip
                self.allocator.set_channel_up(channel.a, channel.b, channel.up)
        self.changed = True

    def _unmerge(self, channel: ChannelFact, key: str) -> None:
        if key not in self.managed_channels:
            self.allocator.remove_channel(channel.a, channel.b)

    def _raise(self, below: ChildState) -> None:
        for router in below.routers.values():
            self.allocator.set_router_up(router.name, router.up and below.up)
        self.changed = True

    def _channel_state(self, child: str, key: str, up: bool) -> None:
        managed = self.managed_channels.get(key)
        if managed is not None:
            (managed.down.discard if up else managed.down.add)(child)
            self.allocator.set_channel_up(managed.item.a, managed.item.b, not managed.down)

    def add_channel(self, item: ChannelItem) -> None:
        self.managed_channels[pair(item.a, item.b)] = ManagedChannel(item)
        self.allocator.add_channel(item.a, item.b, item.bytes_per_s, item.latency_ns, item.security, owned=True)
        self.changed = True

    def remove_channel(self, a: str, b: str) -> None:
        del self.managed_channels[pair(a, b)]
        self.allocator.remove_channel(a, b)
        self.changed = True

    def add_child(self, role: str) -> None:
        self.children[role] = ChildState(role)

    def remove_child(self, role: str) -> None:
        """With everything that is below it."""
        self.merge(role, Map(routers=(), channels=()))
        for cloud in self.below(role):
            del self._child_of[cloud]
        self._over = {broker: child for broker, child in self._over.items() if child != role}
        del self.children[role]

    # --- what it is asked ---------------------------------------------------------------------------------------

    def segments(self, routes: Iterable[Route]) -> dict[str, list[Segment]]:
        """By broker what it is to reserve. Of leaves: routes cut at the borders of clouds (GS-088), one may come into
        a cloud several times. Of inner brokers: each channel that they manage."""
        found: dict[str, list[Segment]] = {}
        for route in routes:
            first = 0
            routers = route.routers
            for at in range(1, len(routers) + 1):
                cloud = self._cloud_of[routers[first]]
                if at == len(routers) or self._cloud_of[routers[at]] != cloud:
                    source = routers[first - 1] if first else ""
                    target = routers[at] if at < len(routers) else ""
                    segment = Segment(routers[first:at], source, target, route.redundant, route.modes)
                    found.setdefault(cloud, []).append(segment)
                    first = at
            for a, b in route.hops:
                child = self.children[self._child_of[self._cloud_of[a]]]
                owner = child.owners.get(pair(a, b))
                if owner is not None:
                    found.setdefault(owner[2], []).append(Segment((a, b), "", "", route.redundant, route.modes))
        return found

    def map(self) -> Map:
        """All of it, for the parent."""
        routers = [
            fact if fact.up == (fact.up and below.up) else msgspec.structs.replace(fact, up=False)
            for below in self.children.values()
            for fact in below.routers.values()
        ]
        channels = {
            key: fact for below in self.children.values() for key, fact in below.channels.items()
        }  # fmt: skip
        channels |= {key: managed.fact for key, managed in self.managed_channels.items()}
        owners = [owner for below in self.children.values() for owner in below.owners.values()]
        owners += [(managed.item.a, managed.item.b, self.role) for managed in self.managed_channels.values()]
        return Map(routers=tuple(routers), channels=tuple(channels.values()), owners=tuple(owners))

    def facts(self) -> Sequence[tuple[ChildState, RouterFact]]:
        """Every router with the child it is below."""
        return [(below, fact) for below in self.children.values() for fact in below.routers.values()]
