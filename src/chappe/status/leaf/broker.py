"""The leaf broker: admits publications and subscriptions of one cloud, fills its routers' tables, recovers (GS-080).

Messages and a time in, effects out; its guarantees are in docs/reference/brokers.md. Each part keeps one kind of
state; this class dispatches messages and follow-ups to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chappe.machine import NEVER, Change, Connected, Disconnected, Effect, Input
from chappe.machine import Address as AnyAddress
from chappe.status.leaf.agenda import (
    Decide,
    EntityReleased,
    FollowUp,
    InputSettled,
    PathRefused,
    Published,
    PublisherReleased,
    Withdraw,
)
from chappe.status.leaf.parts import leaf_parts
from chappe.status.leaf.rows import rows
from chappe.status.leaf.state import ModeItem, read
from chappe.status.machine import PARENT, Address
from chappe.status.modes.arbitration import Reply
from chappe.status.modes.machines import SendCommand, Step
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
    Names,
    Publish,
    Release,
    RemoveChannel,
    RemoveRouter,
    Search,
    SetFlood,
    Standby,
    SubscribeRequest,
    Uncondense,
    Unpublish,
    UnsubscribeRequest,
)

SETTLE_NS = 3_000_000_000  # after it begins to lead: how long subscriptions wait for routers to join


class LeafBroker:
    """One leaf broker. `number` is the upper ten bits of the variable ids it issues."""

    def __init__(self, role: str, topology: Topology, number: int) -> None:
        self.role = role
        self.epoch = 0
        self.parts = leaf_parts(role, topology, number)
        self._settling_until_ns = 0  # 0: settled
        self._held: list[tuple[Address, Request]] = []

    # the life of a term

    def restore(self, items: Iterable[Change]) -> None:
        """The durable state as it was last committed."""
        found = read(items)
        parts = self.parts
        cloud = parts.cloud
        cloud.topology_state.restore(found["router"], found["channel"])
        for name in list(cloud.routers.all):
            if name not in cloud.topology_state.routers:
                cloud.routers.remove(name)
        for name in cloud.topology_state.routers:
            router = cloud.routers.add(name)
            router.item = found["router"].get(name, router.item)
        mode = found["mode"].get("mode")
        if mode is not None:
            parts.modes.restore(mode.mode, mode.rank)
        parts.entities.restore(found["entity"])
        for teardown in found["leftover"].values():
            cloud.restore_teardown(teardown)
        parts.registry.restore(found["counter"].get("variable"), found["publication"])
        parts.subscriptions.restore(found["counter"].get("subscription"), found["subscription"])
        parts.segments.restore(found["reservation"])
        parts.functions.restore(found["function"])
        parts.remote_parts.restore(found["ended_part"])
        parts.functions.pending_removals.restore(found["displace"])
        parts.flooding.restore(found["flood"])
        parts.flooding.pending_removals.restore(found["unflood"])
        parts.notices.restore(found["counter"].get("notice"), found["notice"])

    def lead(self, epoch: int, now_ns: int) -> list[Effect]:
        """It is the active broker of its role from now on: goes on where the one before it ended."""
        parts = self.parts
        self.epoch = parts.cloud.routers.epoch = epoch
        parts.cloud.now_ns = now_ns
        self._settling_until_ns = now_ns + SETTLE_NS
        parts.parent.lead(epoch)
        parts.entities.lead(now_ns)
        parts.cloud.resume()
        parts.functions.resume()
        parts.remote_parts.resume()
        parts.subscriptions.resume()
        parts.rate_changes.resume()
        parts.segments.resume()
        parts.remote_subscriptions.resume()
        return self._effects()

    def receive(self, source: AnyAddress, message: Input, now_ns: int) -> list[Effect]:
        """One message, or a connection that came or went."""
        self.parts.cloud.now_ns = now_ns
        address = str(source)
        if isinstance(message, Connected):
            self._connected(address)
        elif isinstance(message, Disconnected):
            self._disconnected(address)
        elif not self.epoch:
            self._stand_by(address, message)
        elif address == PARENT:
            self._from_parent(message)
        elif address.startswith("router/"):
            self._from_router(address, address[7:], message)
        elif address.startswith("operator/"):
            self._from_operator(address, message)
        elif isinstance(message, Request):
            reason = f"{self.role} is a leaf broker: it has no brokers below it"
            self.parts.cloud.fail(address, message.id, "denied", reason)
        return self._effects()

    def tick(self, now_ns: int) -> list[Effect]:
        """Time-outs."""
        if not self.epoch:
            return []
        parts = self.parts
        parts.cloud.tick(now_ns)
        self._settle()
        self._carry_out(parts.modes.tick(now_ns))
        parts.publishers.tick(now_ns)
        parts.rate_changes.tick(now_ns)
        parts.remote_subscriptions.tick(now_ns)
        parts.segments.tick(now_ns)
        parts.functions.tick(now_ns)
        parts.remote_functions.tick(now_ns)
        parts.remote_parts.tick(now_ns)
        parts.attachments.tick(now_ns)
        parts.parent.tick(now_ns)
        parts.names.tick(now_ns)
        return self._effects()

    def next_tick(self) -> int:
        if not self.epoch:
            return NEVER
        parts = self.parts
        return min(
            self._settling_until_ns or NEVER, parts.cloud.next_tick(), parts.modes.next_tick(),
            parts.publishers.next_tick(), parts.rate_changes.next_tick(), parts.remote_subscriptions.next_tick(),
            parts.segments.next_tick(), parts.functions.next_tick(), parts.remote_functions.next_tick(),
            parts.remote_parts.next_tick(),
            parts.attachments.next_tick(), parts.parent.next_tick(), parts.names.next_tick(),
        )  # fmt: skip

    def rows(self, what: str) -> list[dict[str, Any]]:
        """What `chappe show WHAT` prints."""
        return rows(self.parts, what)

    def _effects(self) -> list[Effect]:
        """The end of a turn: what its parts left for others to do is done first."""
        cloud = self.parts.cloud
        while (follow_up := cloud.agenda.next()) is not None:
            self._follow_up(follow_up)
        cloud.routers.flush()
        self.parts.parent.flush()
        self.parts.names.flush()
        return cloud.outbox.take()

    def _follow_up(self, follow_up: FollowUp) -> None:
        parts = self.parts
        match follow_up:
            case Decide(address, request, attempts):
                parts.subscribing.decide(address, request, attempts)
            case PathRefused(key, reason):
                parts.withdrawals.path_refused(key, reason)
            case EntityReleased(name):
                if name not in parts.registry.by_entity and name not in parts.subscriptions.by_owner:
                    parts.entities.emptied(name)
            case Published(publication):
                parts.publishing.published(publication)
            case Withdraw(publication, reason):
                parts.withdrawals.withdraw(publication, reason)
            case InputSettled(subscription, reason, code):
                parts.functions.input_settled(subscription, reason, code)
            case PublisherReleased(publisher):
                parts.publishing.release_publisher(publisher)

    # connections

    def _connected(self, address: Address) -> None:
        if address == PARENT and self.epoch:
            self.parts.parent.hello(self.epoch, self.parts.modes.mode, self._publishers())

    def _disconnected(self, address: Address) -> None:
        parts = self.parts
        kind, _, name = address.partition("/")
        self._held = [held for held in self._held if held[0] != address]
        parts.names.lost(address)
        if address == PARENT:
            parts.parent.lost()
            parts.publishers.lost()
            parts.remote_functions.parent_lost()
        elif kind == "router" and parts.cloud.routers.joined(name):
            parts.cloud.topology_state.router_up(name, False)
            parts.parent.changed()
            parts.remote_subscriptions.lost(address)
            parts.remote_functions.lost(address)
            parts.cloud.routers.lose(name)
            self._carry_out(parts.modes.lost(name, parts.cloud.now_ns))

    def _stand_by(self, address: Address, message: Message) -> None:
        if isinstance(message, Join):
            self.parts.cloud.answer(address, Standby(role=self.role))
        elif isinstance(message, Request):
            reason = f"this process of {self.role} does not lead"
            self.parts.cloud.fail(address, message.id, "unavailable", reason)

    # routers

    def _from_router(self, address: Address, router: str, message: Message) -> None:
        parts = self.parts
        match message:
            case Done() | Failed():
                self._answered(router, message)
            case SubscribeRequest() | Condense():
                self._admit(address, message)
            case UnsubscribeRequest():
                parts.subscribing.unsubscribe(address, message)
            case Publish():
                parts.publishing.publish(address, message)
            case Unpublish():
                parts.publishing.unpublish(address, message)
            case Arrived():
                parts.attachments.arrived(router, message.entity)
            case Left(gone=True):
                parts.attachments.gone(router, message.entity)
            case Left():
                parts.attachments.left(router, message.entity)
            case Join():
                self._join(address, message)
            case LinkState():
                if parts.cloud.topology_state.link(router, message.peer, message.up):
                    parts.parent.changed()
                    self._settle()
            case Uncondense():
                parts.condensing.uncondense(address, message)
            case Search():
                parts.names.search(address, message)
            case Request():
                parts.cloud.fail(address, message.id, "unsupported", f"{type(message).__name__} is not for a router")

    def _admit(self, address: Address, message: SubscribeRequest | Condense) -> None:
        entity = message.entity
        if entity is None or self.parts.attachments.refuses(address, message.id, entity):
            return
        if self._settling_until_ns:
            self._held.append((address, message))
        else:
            self._decide(address, message)

    def _decide(self, address: Address, message: Message) -> None:
        match message:
            case SubscribeRequest():
                self.parts.subscribing.decide(address, message)
            case Condense():
                self.parts.condensing.condense(address, message)
            case _:
                self._from_parent(message)

    def _join(self, address: Address, join: Join) -> None:
        """A router is there: kept its table, or begins anew (GS-151, GS-152)."""
        parts, name = self.parts, join.router
        topology_state = parts.cloud.topology_state
        if address != f"router/{name}" or name not in topology_state.routers:
            remedy = f"add it with `chappe topology add router {name}`, or correct the broker of its configuration"
            parts.cloud.fail(address, 0, "unknown", f"there is no router {name} in cloud {self.role}; {remedy}")
            return
        parts.cloud.answer(address, Lead(role=self.role, epoch=self.epoch, mode=parts.modes.mode, finds=True))
        fresh = parts.cloud.routers.join(join, topology_state.channels(name))
        topology_state.links(name, join.links)
        topology_state.router_up(name, True)
        parts.attachments.joined(name, join.entities)
        if fresh:
            self._carry_out(parts.modes.joined(name, topology_state.routers[name].edge, parts.cloud.now_ns))
        parts.parent.changed()
        self._settle()

    def _answered(self, router: str, message: Done | Failed) -> None:
        sent = self.parts.cloud.routers.answered(router, message, message.id)
        if sent is not None and sent.mode:
            reason = message.reason if isinstance(message, Failed) else ""
            self._carry_out(self.parts.modes.answered(router, not reason, reason, self.parts.cloud.now_ns, sent.mode))

    def _settle(self) -> None:
        """Requests wait until the cloud is complete, but not for long: a router may be away for good."""
        if not self._settling_until_ns:
            return
        parts = self.parts
        there = parts.cloud.topology_state.whole() and (parts.parent.up or not parts.parent.has_parent)
        if there or parts.cloud.now_ns >= self._settling_until_ns:
            self._settling_until_ns = 0
            held, self._held = self._held, []
            for address, message in held:
                self._decide(address, message)

    # parent

    def _from_parent(self, message: Message) -> None:
        parts = self.parts
        match message:
            case Lead():
                parts.parent.led()
                parts.publishers.led(self._publishers())
                parts.flooding.led()
                parts.names.up(PARENT, message.finds)
                self._settle()
            case Search():
                parts.names.search(PARENT, message)
            case Names():
                parts.names.named(PARENT, message)
            case Describe():
                made_of = parts.functions.made_of((message.publisher, message.variable))
                parts.segments.describe(PARENT, message, made_of)
            case Ask() | Condense() if self._settling_until_ns:
                self._held.append((PARENT, message))
            case Ask():
                parts.segments.ask(PARENT, message)
            case Commit():
                parts.segments.commit(PARENT, message)
            case Release():
                parts.segments.release(PARENT, message)
            case Gone():
                parts.cancellations.cancelled_above(message)
            case Condense():
                parts.condensing.condense(PARENT, message)
            case Uncondense():
                parts.condensing.uncondense(PARENT, message)
            case Done() | Failed() | Granted() | Issued():
                parts.parent.answered(message)
            case _:
                self._from_operator(PARENT, message)

    # operators

    def _from_operator(self, address: Address, message: Message) -> None:
        parts = self.parts
        match message:
            case ChangeMode():
                self._change_mode(address, message)
            case SetFlood():
                parts.flooding.set(address, message)
            case ClearFlood():
                parts.flooding.clear(address, message)
            case AddRouter():
                parts.administration.add_router(address, message)
            case RemoveRouter():
                parts.administration.remove_router(address, message)
            case AddChannel():
                parts.administration.add_channel(address, message)
            case RemoveChannel():
                parts.administration.remove_channel(address, message)
            case Request():
                parts.cloud.fail(address, message.id, "unsupported", f"a leaf broker has no {type(message).__name__}")

    def _change_mode(self, address: Address, request: ChangeMode) -> None:
        routers = self.parts.cloud.topology_state.routers
        edges = [name for name, router in routers.items() if router.up and router.edge]
        inner = [name for name, router in routers.items() if router.up and not router.edge]
        away = [name for name, router in routers.items() if not router.up]
        self._carry_out(self.parts.modes.change(address, request, edges, inner, self.parts.cloud.now_ns, away))

    def _carry_out(self, steps: Iterable[Step]) -> None:
        cloud = self.parts.cloud
        for step in steps:
            if isinstance(step, SendCommand):
                cloud.routers.send_mode_command(step.router, step.command, step.number, step.mode)  # type: ignore[arg-type]
            elif isinstance(step, Reply):
                if step.ok:
                    cloud.answer(step.asker, Done(id=step.request_id, note=step.reason))
                else:
                    cloud.fail(step.asker, step.request_id, step.code, step.reason)
            else:
                cloud.outbox.put("mode", "mode", ModeItem(mode=step.mode, rank=step.rank))

    def _publishers(self) -> list[str]:
        """Names that this cloud needs: of what is published, and of functions on their way into a router."""
        functions = (publisher for publisher, _ in self.parts.functions.by_name)
        return list(dict.fromkeys([*self.parts.registry.publishers, *functions]))
