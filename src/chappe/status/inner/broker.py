"""The inner QoS broker: everything between clouds, at any height of the tree (GS-087, GS-090)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from chappe.machine import NEVER, Change, Connected, Disconnected, Effect, Input
from chappe.machine import Address as AnyAddress
from chappe.status.allocation.allocation import Allocator
from chappe.status.condensation.inter_cloud import InterCloudFunctions
from chappe.status.flooding.inner import FloodItem, TreeFloods, UnfloodItem
from chappe.status.inner.administration import ChildItem, TreeAdministration
from chappe.status.inner.calls import AWAY, Calls
from chappe.status.inner.claims import ClaimItem, Claims
from chappe.status.inner.decisions import DecisionItem
from chappe.status.inner.inter_cloud import InterCloudSubscriptions
from chappe.status.inner.netview import NetView
from chappe.status.inner.promises import PromiseItem, Promises
from chappe.status.inner.rows import ROWS, Shown
from chappe.status.leaf.state import ChannelItem, Item, ModeItem
from chappe.status.machine import PARENT, Address
from chappe.status.modes.arbitration import Reply
from chappe.status.modes.machines import Entered, InnerModes, Order, Step
from chappe.status.outbox import Outbox
from chappe.status.topology import Topology
from chappe.wire.base import Done, Failed, Message, Request
from chappe.wire.management import (
    AddChannel,
    AddChild,
    Ask,
    ChangeMode,
    Child,
    Claim,
    ClearFlood,
    Commit,
    Condense,
    Describe,
    Described,
    Gone,
    Granted,
    Issued,
    Lead,
    Map,
    Outcome,
    Release,
    RemoveChannel,
    RemoveChild,
    Seek,
    SetFlood,
    Unclaim,
    Uncondense,
    Unseek,
)

Relayed = Describe | Ask | Commit | Release | AddChannel | RemoveChannel | Condense | Uncondense
RELAYED_NS = 30_000_000_000  # whoever asked has given up long before

KINDS: dict[str, type[Item]] = {
    "child": ChildItem,
    "channel": ChannelItem,
    "claim": ClaimItem,
    "decision": DecisionItem,
    "flood": FloodItem,
    "unflood": UnfloodItem,
    "mode": ModeItem,
    "promise": PromiseItem,
}


class InnerBroker:
    """Meets `chappe.status.machine.Broker`. Its children are leaves or inner brokers, and it may be a child itself."""

    def __init__(self, role: str, topology: Topology) -> None:
        self.role = role
        self.epoch = 0
        self.allocator = Allocator(topology.latency_model)
        self.view = NetView(role, topology, self.allocator)
        self._out = Outbox()
        self._calls = Calls(self._out)
        has_parent = bool(topology.brokers[role].parent)
        self.claims = Claims(self._out, self._calls, has_parent)
        self.inter_cloud = InterCloudSubscriptions(
            self._out, self._calls, self.view, self.allocator, self.claims, has_parent
        )
        self.promises = Promises(self._out, self._calls, self.view, self.allocator)
        self._condensing = InterCloudFunctions(self._out, self._calls, self.view, self.claims, has_parent)
        self.flooding = TreeFloods(self._out, self._calls, self.view, self.claims, has_parent)
        self.modes = InnerModes(self.view.height)
        self._administration = TreeAdministration(
            self._out, self._calls, self.view, self.claims, self.inter_cloud.decisions
        )
        self._shown = Shown(
            role, self.view, self.allocator, self.claims, self.inter_cloud.decisions, self.flooding, self.modes
        )
        self._connected: set[Address] = set()
        self._parent_epoch = 0

    # --- life ------------------------------------------------------------------------------------------------------

    def restore(self, items: Iterable[Change]) -> None:
        """The durable state as it was last committed."""
        found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for change in items:
            if change.kind in KINDS and change.value is not None:
                found[change.kind][change.key] = msgspec.msgpack.decode(change.value, type=KINDS[change.kind])
        self._administration.restore(found["child"], found["channel"])
        for publisher, claim in found["claim"].items():
            self.claims.restore(publisher, claim)
        for flood in [*found["flood"].values(), *found["unflood"].values()]:
            self.flooding.restore(flood)
        for mode in found["mode"].values():
            self.modes.rise(self.view.height)
            self.modes.restore(mode.mode, mode.rank)
        for decision in found["decision"].values():
            self.inter_cloud.decisions.restore(decision)
        for promise in found["promise"].values():
            self.promises.restore(promise)

    def lead(self, epoch: int, now_ns: int) -> list[Effect]:
        """It is the active broker of its role from now on: neighbours introduce themselves to it."""
        self.epoch = epoch
        self._calls.lead(epoch)
        self.promises.lead(now_ns)
        for address in sorted(self._connected):
            if address.startswith("child/"):
                self._out.send(address, Lead(role=self.role, epoch=epoch, mode=self.modes.mode))
            elif address == PARENT:
                self._hello()
        return self._out.take()

    def _disconnected(self, address: Address, now_ns: int) -> None:
        self._connected.discard(address)
        child = address.removeprefix("child/")
        if address == PARENT:
            self._parent_epoch = 0
            self._calls.parent_up = False
        elif child in self.view.children:
            self._lost_child(child, now_ns)
        self._calls.lost(address, now_ns)

    def _lost_child(self, child: str, now_ns: int) -> None:
        self.view.lost(child)
        self._tell_map()  # before the answers that fail, so that nobody above plans through it again
        self._carry_out(self.modes.lost(child, now_ns), now_ns)

    def receive(self, source: AnyAddress, message: Input, now_ns: int) -> list[Effect]:
        address = str(source)
        if isinstance(message, Connected):
            self._connected.add(address)
            if address == PARENT and self.epoch:
                self._hello()
            return self._out.take()
        if isinstance(message, Disconnected):
            self._disconnected(address, now_ns)
            return self._turn()
        if not self.epoch:
            return []
        if isinstance(message, Done | Failed | Described | Granted | Issued):
            self._calls.answered(address, message, now_ns)
        elif address == PARENT:
            self._of_parent(message, now_ns)
        elif address.startswith("child/"):
            self._of_child(address, message, now_ns)
        else:
            self._of_operator(address, message, now_ns)
        self.inter_cloud.proceed(now_ns)
        return self._turn()

    def _of_child(self, address: Address, message: Message, now_ns: int) -> None:
        child = address.removeprefix("child/")
        below = self.view.children.get(child)
        match message:
            case Child():
                self._child(address, message, now_ns)
            case _ if below is None or not below.up:
                pass  # it has not introduced itself: it will, and say everything again
            case Seek():
                self._tell_map()  # what is sought above is planned by what is known there
                self.inter_cloud.seek(address, message, now_ns)
            case Unseek():
                self.inter_cloud.unseek(address, message, now_ns)
            case Outcome():
                self.inter_cloud.outcome(address, message, now_ns)
            case Map():
                self._map(address, message, now_ns)
            case Claim() if self.view.child_of(message.cloud) not in ("", child):
                reason = f"{message.cloud} is not below {child}, which may not claim names for it"
                self._out.send(address, Failed(id=message.id, reason=reason, code="denied"))
            case Claim():
                self.claims.claim(address, message, now_ns)
            case Unclaim() if self.view.child_of(message.cloud) not in ("", child):
                pass  # not its name to give up
            case Unclaim():
                self.claims.unclaim(message)
            case Condense():
                self._condensing.condense(address, message, now_ns)
            case Uncondense():
                self._condensing.uncondense(address, message, now_ns)
            case SetFlood():
                self.flooding.renewed(address, message, now_ns)
            case _:
                self._unsupported(address, message)

    def _of_parent(self, message: Message, now_ns: int) -> None:
        match message:
            case Lead():
                self._lead(message, now_ns)
            case Ask() if message.cloud == self.role:
                self.promises.ask(message, now_ns)
            case Commit() if message.cloud == self.role:
                self.promises.commit(message)
            case Release() if message.cloud == self.role:
                self.promises.release(message)
            case Describe() | Ask() | Commit() | Release() | AddChannel() | RemoveChannel() | Condense() | Uncondense():
                self._relay(message, now_ns)
            case Gone():
                child = self.view.reached(message.cloud)
                if child:
                    self._out.send(f"child/{child}", message)
            case _:
                self._of_both(PARENT, message, now_ns)

    def _of_operator(self, address: Address, message: Message, now_ns: int) -> None:
        match message:
            case AddChild():
                self._administration.add_child(address, message)
            case RemoveChild():
                if self._administration.remove_child(address, message):
                    self.flooding.forget(message.role)
                    self._carry_out(self.modes.lost(message.role, now_ns), now_ns)
            case AddChannel():
                self._administration.add_channel(address, message, now_ns)
            case RemoveChannel():
                self._administration.remove_channel(address, message, now_ns)
            case _:
                self._of_both(address, message, now_ns)

    def _of_both(self, address: Address, message: Message, now_ns: int) -> None:
        match message:
            case ChangeMode():
                there = [child.role for child in self.view.children.values() if child.up]
                away = [child.role for child in self.view.children.values() if not child.up]
                self._carry_out(self.modes.change(address, message, there, now_ns, away), now_ns)
            case SetFlood():
                self.flooding.set(address, message, now_ns)
            case ClearFlood():
                self.flooding.clear(address, message, now_ns)
            case _:
                self._unsupported(address, message)

    def _unsupported(self, address: Address, message: Message) -> None:
        if isinstance(message, Request):
            reason = f"the inner broker {self.role} takes no {type(message).__name__} from {address}"
            self._out.send(address, Failed(id=message.id, reason=reason, code="unsupported"))

    def tick(self, now_ns: int) -> list[Effect]:
        if not self.epoch:
            return []
        self._carry_out(self.modes.tick(now_ns), now_ns)
        self._calls.tick(now_ns)
        self.inter_cloud.tick(now_ns)
        self.promises.tick(now_ns)
        return self._turn()

    def next_tick(self) -> int:
        if not self.epoch:
            return NEVER
        return min(
            self.modes.next_tick(),
            self._calls.next_tick(),
            self.inter_cloud.next_tick(),
            self.promises.next_tick(),
        )

    def rows(self, what: str) -> list[dict[str, Any]]:
        """KeyError names what can be asked for."""
        if what not in ROWS:
            raise KeyError(f"{what!r}: an inner broker shows {', '.join(sorted(ROWS))}")
        return ROWS[what](self._shown)

    def _turn(self) -> list[Effect]:
        self._tell_map()
        return self._out.take()

    # --- children --------------------------------------------------------------------------------------------------

    def _child(self, address: Address, message: Child, now_ns: int) -> None:
        """A child (re)joins (GS-155): it gets the mode and the floods in force, and everything it was not told."""
        child = address.removeprefix("child/")
        below = self.view.children.get(child)
        if below is None:
            reason = f"{child} is not a child of {self.role}; an operator adds it (AddChild)"
            self._out.send(address, Failed(id=message.id, reason=reason, code="unknown"))
            return
        self._out.send(address, Lead(role=self.role, epoch=self.epoch, mode=self.modes.mode))
        if message.claims is not None:
            self.claims.merge({child, *self.view.below(child)}, message.claims, now_ns)
        if below.up:
            if below.issuer == message.issuer:
                return
            self._lost_child(child, now_ns)
            self._calls.lost(address, now_ns)
        self.view.joined(child, message.height, message.mode, message.issuer)
        self.modes.rise(self.view.height)
        self._carry_out(self.modes.joined(child, now_ns), now_ns)
        self.flooding.joined(child, now_ns)
        self.inter_cloud.decisions.joined(child, now_ns)
        self._administration.joined(child, now_ns)

    def _map(self, address: Address, message: Map, now_ns: int) -> None:
        child = address.removeprefix("child/")
        first = not self.view.children[child].routers
        self.view.merge(child, message)
        if first:
            self._administration.joined(child, now_ns)
            self.inter_cloud.decisions.joined(child, now_ns)

    # --- the parent ------------------------------------------------------------------------------------------------

    def _hello(self) -> None:
        issuer = f"{self.role}.{self.epoch}".encode()
        self._out.send(PARENT, Child(id=0, role=self.role, epoch=self.epoch, mode=self.modes.mode, issuer=issuer,
                                     height=self.view.height, claims=self.claims.list()))  # fmt: skip

    def _lead(self, message: Lead, now_ns: int) -> None:
        """The answer to `Child`: the parent gets the map and every request that it has not answered."""
        if message.epoch == self._parent_epoch:
            return
        self._parent_epoch, self._calls.parent_up = message.epoch, True
        self._tell_map(anyway=True)
        self._calls.again(PARENT)
        self.claims.led(now_ns)

    def _tell_map(self, anyway: bool = False) -> None:
        if (self.view.changed or anyway) and self._parent_epoch:
            self._out.send(PARENT, self.view.map())
            self.view.changed = False

    def _relay(self, message: Relayed, now_ns: int) -> None:
        """Pass a request of the parent on to the child that has that leaf, and its answer back."""
        child = self.view.reached(message.cloud)
        number = message.id
        if not child:
            reason = f"the broker {message.cloud} below {self.role} is not connected"
            self._out.send(PARENT, Failed(id=number, reason=reason, code=AWAY))
            return

        def answer(answer: Message, now_ns: int) -> None:
            self._out.send(PARENT, msgspec.structs.replace(answer, id=number))

        self._calls.call(f"child/{child}", message, answer, now_ns, RELAYED_NS)

    # --- modes -----------------------------------------------------------------------------------------------------

    def _carry_out(self, steps: Iterable[Step], now_ns: int) -> None:
        for step in steps:
            match step:
                case Entered():
                    self._out.put("mode", "mode", ModeItem(mode=step.mode, rank=step.rank))
                case Order():
                    self._order(step, now_ns)
                case Reply() if step.ok:
                    self._out.send(step.asker, Done(id=step.request_id, note=step.reason))
                case Reply():
                    failed = Failed(id=step.request_id, reason=step.reason, code=step.code)
                    self._out.send(step.asker, failed)

    def _order(self, order: Order, now_ns: int) -> None:
        def answer(message: Message, now_ns: int) -> None:
            ok = isinstance(message, Done)
            reason = message.note if isinstance(message, Done) else getattr(message, "reason", "")
            child = self.view.children.get(order.router)  # it may have been removed meanwhile
            if ok and child is not None:
                child.mode = order.mode
            self._carry_out(self.modes.answered(order.router, ok, reason, now_ns, order.number), now_ns)

        request = ChangeMode(id=0, mode=order.mode, rank=order.rank)
        self._calls.call(f"child/{order.router}", request, answer, now_ns)
