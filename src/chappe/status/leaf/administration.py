"""What operators change in a cloud while it runs: routers and channels come and go (GS-014)."""

from __future__ import annotations

import math
import re

from chappe.status.flooding.leaf import LeafFlooding
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.routers import FLOOD
from chappe.status.leaf.state import ChannelItem, RouterItem
from chappe.status.leaf.topology_state import RouterState, pair
from chappe.status.machine import PARENT, Address
from chappe.status.topology import NAME, Topology, overclaimed
from chappe.wire.management import AddChannel, AddRouter, RemoveChannel, RemoveRouter


class CloudAdministration:
    """Every change is durable, sent to the routers it concerns, and refused while something uses what would go."""

    def __init__(self, cloud: Cloud, topology: Topology, registry: Registry, flooding: LeafFlooding,
                 parent: ParentLink) -> None:  # fmt: skip
        self._cloud = cloud
        self._deployed = {router.name for router in topology.router if router.cloud == cloud.role}
        self._deployed_channels = {pair(*channel.between) for channel in topology.channel}
        self._registry = registry
        self._flooding = flooding
        self._parent = parent

    def add_router(self, address: Address, request: AddRouter) -> None:
        topology_state = self._cloud.topology_state
        if request.name in topology_state.routers:
            self._cloud.fail(
                address, request.id, "exists", f"router {request.name} is in cloud {topology_state.role} already"
            )
            return
        problem = _odd(request)
        if problem:
            self._cloud.fail(address, request.id, "invalid", problem)
            return
        item = topology_state.router_item(request)
        topology_state.add_router(RouterState(request.name, item.edge, item.events_per_s, item.x, item.y))
        self._cloud.routers.add(request.name, item)
        self._cloud.outbox.put("router", request.name, item)
        self._flooding.joins(request.name)
        self._finish(address, request.id)

    def remove_router(self, address: Address, request: RemoveRouter) -> None:
        name = request.name
        if name not in self._cloud.topology_state.routers:
            self._cloud.fail(address, request.id, "unknown", f"there is no router {name} in cloud {self._cloud.role}")
            return
        uses = self._uses(name)
        if uses:
            self._cloud.fail(address, request.id, "exists", f"router {name} is in use: {uses}; end that first")
            return
        others = []
        for channel in self._cloud.topology_state.remove_router(name):
            others.append(channel.a if channel.b == name else channel.b)
            self._forget_channel(channel.a, channel.b)
        self._cloud.routers.remove(name)
        if name in self._deployed:
            self._cloud.outbox.put("router", name, RouterItem(removed=True))
        else:
            self._cloud.outbox.drop("router", name)
        self._configure(*others)
        self._finish(address, request.id)

    def add_channel(self, address: Address, request: AddChannel) -> None:
        topology_state = self._cloud.topology_state
        a, b = request.a, request.b
        inside = [name for name in (a, b) if name in topology_state.routers]
        if a == b:
            self._cloud.fail(address, request.id, "invalid", f"channel {a} - {b}: it joins a router with itself")
        elif not inside or (len(inside) == 1 and address != PARENT):
            missing = ", ".join(name for name in (a, b) if name not in topology_state.routers)
            problem = f"channel {a} - {b}: no router {missing} in cloud {topology_state.role}"
            remedy = "a channel between clouds is added at the broker above both"
            self._cloud.fail(address, request.id, "unknown", f"{problem}; {remedy}")
        elif pair(a, b) in topology_state.channel_states and address != PARENT:
            self._cloud.fail(address, request.id, "exists", f"there is a channel {a} - {b}; remove it first")
        elif not 0 <= request.bytes_per_s < math.inf or request.latency_ns < 0 or request.security not in (0, 1, 2):
            self._cloud.fail(address, request.id, "invalid", f"channel {a} - {b}: capacity and latency must not be "
                             "negative or endless, security is 0, 1 or 2")  # fmt: skip
        elif claim := overclaimed(request.url, request.data, request.security):
            self._cloud.fail(address, request.id, "invalid", f"channel {a} - {b}: {claim}")
        else:
            item = topology_state.channel_item(request, 1 if len(inside) == 2 else max(2, request.level))
            topology_state.add_channel(topology_state.channel_of(item))
            self._cloud.outbox.put("channel", pair(a, b), item)
            self._configure(a, b)
            self._finish(address, request.id)

    def remove_channel(self, address: Address, request: RemoveChannel) -> None:
        a, b = request.a, request.b
        channel = self._cloud.topology_state.channel_states.get(pair(a, b))
        if channel is None and address == PARENT:
            self._cloud.done(address, request.id)
        elif channel is None:
            self._cloud.fail(
                address, request.id, "unknown", f"there is no channel {a} - {b} in cloud {self._cloud.role}"
            )
        elif not self._cloud.topology_state.inside(channel) and address != PARENT:
            reason = f"channel {a} - {b} leads to another cloud; remove it at the broker above both"
            self._cloud.fail(address, request.id, "denied", reason)
        elif self._cloud.allocator.used(a, b):
            self._cloud.fail(address, request.id, "exists", f"channel {a} - {b} is used by paths; end these first")
        else:
            self._cloud.topology_state.remove_channel(a, b)
            self._forget_channel(a, b)
            self._configure(a, b)
            self._finish(address, request.id)

    def _forget_channel(self, a: str, b: str) -> None:
        if pair(a, b) in self._deployed_channels:
            self._cloud.outbox.put("channel", pair(a, b), ChannelItem(a=a, b=b, removed=True))
        else:
            self._cloud.outbox.drop("channel", pair(a, b))

    def _uses(self, name: str) -> str:
        published = [publication for publication in self._registry.by_id.values() if publication.edge == name]
        if published:
            variable = published[0].variable
            return f"{variable.publisher}/{variable.variable} is published there"
        paths = [key for key in self._cloud.routers.all[name].desired if key[1] != FLOOD]
        if paths:
            return f"{len(paths)} paths lead through it"
        return ""

    def _configure(self, *names: str) -> None:
        for name in names:
            if name in self._cloud.routers.all:
                self._cloud.routers.configure(name, self._cloud.topology_state.channels(name))

    def _finish(self, address: Address, request: int) -> None:
        self._parent.changed()
        self._cloud.done(address, request)


def _odd(request: AddRouter) -> str:
    """What no file of a deployment could say of a router; empty if it could."""
    if len(request.name) > 64 or not re.fullmatch(NAME, request.name):
        return f"{request.name[:64]!r} is no name of a router: 1 to 64 letters, digits, '.', '_' and '-'"
    if not 0 <= request.events_per_s < math.inf or not math.isfinite(request.x + request.y):
        return f"router {request.name}: events_per_s must not be negative, and no number endless"
    return ""
