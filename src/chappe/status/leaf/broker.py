"""The leaf broker: admits publications and subscriptions of one cloud, fills its routers' tables, recovers (GS-080).

Messages and a time in, outputs out; what it promises is in docs/reference/brokers.md. Each part keeps one kind of
state; this class tells them apart and connects them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chappe.status.condensation.placement import Functions
from chappe.status.condensation.remote_functions import RemoteFunctions
from chappe.status.flooding.leaf import LeafFlooding
from chappe.status.leaf.administration import CloudAdministration
from chappe.status.leaf.admission import Admission
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.entities import Entities
from chappe.status.leaf.notices import Notices
from chappe.status.leaf.parent_link import PARENT, ParentLink
from chappe.status.leaf.path_segments import Segments
from chappe.status.leaf.publishers import Publishers
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.routers import Key
from chappe.status.leaf.rows import rows
from chappe.status.leaf.state import ModeItem, read
from chappe.status.leaf.subscriptions import Subscriptions
from chappe.status.machine import Address, Change, Output
from chappe.status.modes.arbitration import Reply
from chappe.status.modes.machines import LeafModes, Order, Step
from chappe.status.topology import Topology
from chappe.wire.base import Done, Failed, Message, Request
from chappe.wire.management import (
    AddChannel,
    AddRouter,
    Arrived,
    Ask,
    ChangeMode,
    ClearFlood,
    Commit,
    Condense,
    Describe,
    Gone,
    Granted,
    Issued,
    Join,
    Lead,
    Left,
    LinkState,
    Publish,
    Release,
    RemoveChannel,
    RemoveRouter,
    SetFlood,
    Standby,
    Uncondense,
    Unpublish,
    Unwant,
    Want,
)

SETTLE_NS = 3_000_000_000  # after it begins to lead: how long subscriptions wait for routers to join


class LeafBroker:
    """One leaf broker. `number` is the upper ten bits of the variable ids it issues."""

    def __init__(self, role: str, topology: Topology, number: int) -> None:
        self.role = role
        self.epoch = 0
        self.cloud = cloud = Cloud(role, topology, self._broken)
        self.parent = ParentLink(cloud, bool(topology.brokers[role].parent))
        self.entities = Entities(cloud, self._restarted)
        self.registry = Registry(cloud, number, self._emptied)
        self.subscriptions = Subscriptions(cloud, self._again, self._emptied)
        self.remote_subscriptions = RemoteSubscriptions(self.subscriptions, self.parent)
        self.segments = Segments(
            cloud, self.registry, self.subscriptions, self.parent,
            lambda number: self.rate_changes.under_way(number) is not None,
        )  # fmt: skip
        self.publishers = Publishers(cloud, self.parent)
        self.flooding = LeafFlooding(cloud, self.registry, self.parent)
        self.notices = Notices(cloud)
        self.admission = Admission(self)
        self.functions = Functions(
            cloud, self.registry, self.subscriptions, self.admission.announce, self.admission.withdraw,
            self.admission.give_back,
        )  # fmt: skip
        self.remote_functions = RemoteFunctions(cloud, self.parent)
        self.rate_changes = RateChanges(self, self._broken)
        self.administration = CloudAdministration(cloud, topology, self.registry, self.flooding, self.parent.changed)
        self.modes = LeafModes()
        self._settling_until_ns = 0  # 0: settled
        self._held: list[tuple[Address, Request]] = []

    # the life of a term

    def restore(self, items: Iterable[Change]) -> None:
        """The durable state as it was last committed."""
        found = read(items)
        cloud = self.cloud
        cloud.topology_state.restore(found["router"], found["channel"])
        for name in list(cloud.routers.all):
            if name not in cloud.topology_state.sites:
                cloud.routers.remove(name)
        for name in cloud.topology_state.sites:
            router = cloud.routers.add(name)
            router.item = found["router"].get(name, router.item)
        mode = found["mode"].get("mode")
        if mode is not None:
            self.modes = LeafModes(mode.mode, mode.rank)
        self.entities.restore(found["entity"])
        for leftover in found["leftover"].values():
            cloud.restore_leftover(leftover)
        self.registry.restore(found["counter"].get("variable"), found["publication"])
        self.subscriptions.restore(found["counter"].get("subscription"), found["subscription"])
        self.segments.restore(found["reservation"])
        self.functions.restore(found["function"])
        self.functions.pending_removals.restore(found["displace"])
        self.flooding.restore(found["flood"])
        self.flooding.pending_removals.restore(found["unflood"])
        self.notices.restore(found["counter"].get("notice"), found["notice"])

    def lead(self, epoch: int, now_ns: int) -> list[Output]:
        """It is the active broker of its role from now on: goes on where the one before it ended."""
        self.epoch = self.cloud.routers.epoch = epoch
        self.cloud.now_ns = now_ns
        self._settling_until_ns = now_ns + SETTLE_NS
        self.parent.lead(epoch)
        self.entities.lead(now_ns)
        self.cloud.resume()
        self.functions.resume()
        self.subscriptions.resume()
        self.rate_changes.resume()
        self.segments.resume()
        self.remote_subscriptions.resume()
        return self._out()

    def connected(self, address: Address, now_ns: int) -> list[Output]:
        """A connection is there."""
        self.cloud.now_ns = now_ns
        if address == PARENT and self.epoch:
            self.parent.hello(self.epoch, self.modes.mode, self._publishers())
        return self._out()

    def lost(self, address: Address, now_ns: int) -> list[Output]:
        """A connection is gone."""
        self.cloud.now_ns = now_ns
        kind, _, name = address.partition("/")
        self._held = [held for held in self._held if held[0] != address]
        if address == PARENT:
            self.parent.lost()
            self.publishers.lost()
            self.remote_functions.parent_lost()
        elif kind == "router" and self.cloud.routers.joined(name):
            self.cloud.topology_state.router_up(name, False)
            self.parent.changed()
            self.remote_subscriptions.lost(address)
            self.remote_functions.lost(address)
            self.cloud.routers.lose(name)
            self._steps(self.modes.lost(name, now_ns))
        return self._out()

    def receive(self, address: Address, message: Message, now_ns: int) -> list[Output]:
        """One message."""
        self.cloud.now_ns = now_ns
        if not self.epoch:
            self._stand_by(address, message)
        elif address == PARENT:
            self._from_parent(message)
        elif address.startswith("router/"):
            self._from_router(address, address[7:], message)
        elif address.startswith("operator/"):
            self._from_operator(address, message)
        elif isinstance(message, Request):
            self.cloud.fail(address, message.id, "denied", f"{self.role} is a leaf broker: it has no brokers below it")
        return self._out()

    def tick(self, now_ns: int) -> list[Output]:
        """Time-outs."""
        if not self.epoch:
            return []
        self.cloud.tick(now_ns)
        self._settle()
        self._steps(self.modes.tick(now_ns))
        self.publishers.tick(now_ns)
        self.rate_changes.tick(now_ns)
        self.remote_subscriptions.tick(now_ns)
        self.segments.tick(now_ns)
        self.functions.tick(now_ns)
        self.remote_functions.tick(now_ns)
        self.entities.tick(now_ns)
        self.parent.tick(now_ns)
        return self._out()

    def rows(self, what: str) -> list[dict[str, Any]]:
        """What `chappe show WHAT` prints."""
        return rows(self, what)

    def _out(self) -> list[Output]:
        self.cloud.routers.flush()
        self.parent.flush()
        return self.cloud.outbox.take()

    def _stand_by(self, address: Address, message: Message) -> None:
        if isinstance(message, Join):
            self.cloud.answer(address, Standby(role=self.role))
        elif isinstance(message, Request) and not isinstance(message, Done | Failed):
            self.cloud.fail(address, message.id, "unavailable", f"this process of {self.role} does not lead")

    # routers

    def _from_router(self, address: Address, router: str, message: Message) -> None:
        match message:
            case Done() | Failed():
                self._answered(router, message)
            case Want() | Condense():
                self._admit(address, message)
            case Unwant():
                self.admission.unwant(address, message)
            case Publish():
                self.admission.publish(address, message)
            case Unpublish():
                self.admission.unpublish(address, message)
            case Arrived():
                self.entities.arrived(router, message.entity)
            case Left(gone=True):
                self.entities.gone(router, message.entity)
            case Left():
                self.entities.left(router, message.entity)
            case Join():
                self._join(address, message)
            case LinkState():
                if self.cloud.topology_state.link(router, message.peer, message.up):
                    self.parent.changed()
                    self._settle()
            case Uncondense():
                self.admission.uncondense(address, message)
            case Request():
                self.cloud.fail(address, message.id, "unsupported", f"{type(message).__name__} is not for a router")

    def _admit(self, address: Address, message: Want | Condense) -> None:
        entity = message.entity
        if entity is None or self.admission.refuses(address, message.id, entity):
            return
        if self._settling_until_ns:
            self._held.append((address, message))
        else:
            self._decide(address, message)

    def _decide(self, address: Address, message: Message) -> None:
        match message:
            case Want():
                self.admission.decide(address, message)
            case Condense():
                self.admission.condense(address, message)
            case _:
                self._from_parent(message)

    def _join(self, address: Address, join: Join) -> None:
        """A router is there: kept its table, or begins anew (GS-151, GS-152)."""
        name = join.router
        if address != f"router/{name}" or name not in self.cloud.topology_state.sites:
            remedy = f"add it with `chappe topology add router {name}`, or correct the broker of its configuration"
            self.cloud.fail(address, 0, "unknown", f"there is no router {name} in cloud {self.role}; {remedy}")
            return
        topology_state = self.cloud.topology_state
        self.cloud.answer(address, Lead(role=self.role, epoch=self.epoch, mode=self.modes.mode))
        fresh = self.cloud.routers.join(join, topology_state.channels(name))
        topology_state.links(name, join.links)
        topology_state.router_up(name, True)
        self.entities.joined(name, join.entities)
        if fresh:
            self._steps(self.modes.joined(name, topology_state.sites[name].edge, self.cloud.now_ns))
        self.parent.changed()
        self._settle()

    def _answered(self, router: str, message: Done | Failed) -> None:
        sent = self.cloud.routers.answered(router, message, message.id)
        if sent is not None and sent.mode:
            reason = message.reason if isinstance(message, Failed) else ""
            self._steps(self.modes.answered(router, not reason, reason, self.cloud.now_ns, sent.mode))

    def _settle(self) -> None:
        """Requests wait until the cloud is complete, but not for long: a router may be away for good."""
        if not self._settling_until_ns:
            return
        there = self.cloud.topology_state.whole() and (self.parent.up or not self.parent.has_parent)
        if there or self.cloud.now_ns >= self._settling_until_ns:
            self._settling_until_ns = 0
            held, self._held = self._held, []
            for address, message in held:
                self._decide(address, message)

    def _broken(self, key: Key, reason: str) -> None:
        """A router refuses for good a path that it had: its subscription is over."""
        for subscription in list(self.subscriptions.by_variable.get(key[0], {}).values()):
            if any(leg.path == key[1] for leg in subscription.legs):
                self.admission.over([subscription], reason)
        self.segments.broken(key, reason)

    # parent

    def _from_parent(self, message: Message) -> None:
        match message:
            case Lead():
                self.parent.led()
                self.publishers.led(self._publishers())
                self.flooding.led()
                self._settle()
            case Describe():
                self.segments.describe(PARENT, message)
            case Ask() | Condense() if self._settling_until_ns:
                self._held.append((PARENT, message))
            case Ask():
                self.segments.ask(PARENT, message)
            case Commit():
                self.segments.commit(PARENT, message)
            case Release():
                self.segments.release(PARENT, message)
            case Gone():
                self.admission.gone(message)
            case Condense():
                self.admission.condense(PARENT, message)
            case Uncondense():
                self.admission.uncondense(PARENT, message)
            case Done() | Failed() | Granted() | Issued():
                self.parent.answered(message)
            case _:
                self._from_operator(PARENT, message)

    # operators

    def _from_operator(self, address: Address, message: Message) -> None:
        match message:
            case ChangeMode():
                self._change_mode(address, message)
            case SetFlood():
                self.flooding.set(address, message)
            case ClearFlood():
                self.flooding.clear(address, message)
            case AddRouter():
                self.administration.add_router(address, message)
            case RemoveRouter():
                self.administration.remove_router(address, message)
            case AddChannel():
                self.administration.add_channel(address, message)
            case RemoveChannel():
                self.administration.remove_channel(address, message)
            case Request():
                self.cloud.fail(address, message.id, "unsupported", f"a leaf broker has no {type(message).__name__}")

    def _change_mode(self, address: Address, request: ChangeMode) -> None:
        sites = self.cloud.topology_state.sites
        edges = [name for name, site in sites.items() if site.up and site.edge]
        inner = [name for name, site in sites.items() if site.up and not site.edge]
        away = [name for name, site in sites.items() if not site.up]
        self._steps(self.modes.change(address, request, edges, inner, self.cloud.now_ns, away))

    def _steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Order):
                self.cloud.routers.order(step.router, step.command, step.number, step.mode)  # type: ignore[arg-type]
            elif isinstance(step, Reply):
                if step.ok:
                    self.cloud.answer(step.asker, Done(id=step.request_id, note=step.reason))
                else:
                    self.cloud.fail(step.asker, step.request_id, step.code, step.reason)
            else:
                self.cloud.outbox.put("mode", "mode", ModeItem(mode=step.mode, rank=step.rank))

    # end-entities

    def _publishers(self) -> list[str]:
        """Names that this cloud needs: of what is published, and of functions on their way into a router."""
        return list(dict.fromkeys([*self.registry.publishers, *(publisher for publisher, _ in self.functions.by_name)]))

    def _again(self, address: Address, want: Want, tries: int) -> None:
        self.admission.decide(address, want, tries)

    def _restarted(self, name: str, reason: str) -> None:
        self.admission.withdraw_all(name, reason)

    def _emptied(self, name: str) -> None:
        if name not in self.registry.by_entity and name not in self.subscriptions.by_owner:
            self.entities.emptied(name)
