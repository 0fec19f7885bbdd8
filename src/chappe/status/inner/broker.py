"""The inner QoS broker: everything between clouds, at any height of the tree (GS-087, GS-090)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from chappe.machine import NEVER, Change, Connected, Disconnected, Effect, Input
from chappe.machine import Address as AnyAddress
from chappe.status.inner.calls import AWAY
from chappe.status.inner.parts import inner_parts
from chappe.status.inner.rows import ROWS
from chappe.status.inner.state import read
from chappe.status.leaf.state import ModeItem
from chappe.status.machine import PARENT, Address
from chappe.status.modes.arbitration import Reply
from chappe.status.modes.machines import PersistMode, SendCommand, Step
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
    Names,
    Outcome,
    Release,
    RemoveChannel,
    RemoveChild,
    Search,
    Seek,
    SetFlood,
    Unclaim,
    Uncondense,
    Unseek,
)

Relayed = Describe | Ask | Commit | Release | AddChannel | RemoveChannel | Condense | Uncondense
RELAYED_NS = 30_000_000_000  # whoever asked has given up long before


class InnerBroker:
    """Meets `chappe.status.machine.Broker`. Its children are leaves or inner brokers, and it may be a child itself."""

    def __init__(self, role: str, topology: Topology) -> None:
        self.role = role
        self.epoch = 0
        self.parts = inner_parts(role, topology)
        self._connected: set[Address] = set()
        self._parent_epoch = 0

    # --- life ------------------------------------------------------------------------------------------------------

    def restore(self, items: Iterable[Change]) -> None:
        """The durable state as it was last committed."""
        found = read(items)
        self.parts.administration.restore(found["child"], found["channel"])
        for publisher, claim in found["claim"].items():
            self.parts.claims.restore(publisher, claim)
        for flood in [*found["flood"].values(), *found["unflood"].values()]:
            self.parts.flooding.restore(flood)
        for mode in found["mode"].values():
            self.parts.modes.rise(self.parts.view.height)
            self.parts.modes.restore(mode.mode, mode.rank)
        for decision in found["decision"].values():
            self.parts.inter_cloud.decisions.restore(decision)
        for reservation in found["promise"].values():
            self.parts.ancestor_reservations.restore(reservation)

    def lead(self, epoch: int, now_ns: int) -> list[Effect]:
        """It is the active broker of its role from now on: neighbours introduce themselves to it."""
        self.epoch = epoch
        self.parts.calls.lead(epoch)
        self.parts.ancestor_reservations.lead(now_ns)
        for address in sorted(self._connected):
            if address.startswith("child/"):
                self.parts.outbox.send(address, self._leads())
            elif address == PARENT:
                self._hello()
        return self.parts.outbox.take()

    def _leads(self) -> Lead:
        return Lead(role=self.role, epoch=self.epoch, mode=self.parts.modes.mode, finds=True)

    def _disconnected(self, address: Address, now_ns: int) -> None:
        self._connected.discard(address)
        child = address.removeprefix("child/")
        if address == PARENT:
            self._parent_epoch = 0
            self.parts.calls.parent_up = False
            self.parts.names.lost(PARENT)
        elif child in self.parts.view.children:
            self._lost_child(child, now_ns)
        self.parts.calls.lost(address, now_ns)

    def _lost_child(self, child: str, now_ns: int) -> None:
        self.parts.view.lost(child)
        self.parts.names.lost(f"child/{child}")
        self._send_map()  # before the answers that fail, so that nobody above plans through it again
        self._carry_out(self.parts.modes.lost(child, now_ns), now_ns)

    def receive(self, source: AnyAddress, message: Input, now_ns: int) -> list[Effect]:
        address = str(source)
        if isinstance(message, Connected):
            self._connected.add(address)
            if address == PARENT and self.epoch:
                self._hello()
            return self.parts.outbox.take()
        if isinstance(message, Disconnected):
            self._disconnected(address, now_ns)
            return self._turn()
        if not self.epoch:
            return []
        if isinstance(message, Done | Failed | Described | Granted | Issued):
            self.parts.calls.answered(address, message, now_ns)
        elif address == PARENT:
            self._of_parent(message, now_ns)
        elif address.startswith("child/"):
            self._of_child(address, message, now_ns)
        else:
            self._of_operator(address, message, now_ns)
        self.parts.inter_cloud.proceed(now_ns)
        return self._turn()

    def _of_child(self, address: Address, message: Message, now_ns: int) -> None:
        child = address.removeprefix("child/")
        below = self.parts.view.children.get(child)
        match message:
            case Child():
                self._child(address, message, now_ns)
            case _ if below is None or not below.up:
                pass  # it has not introduced itself: it will, and say everything again
            case Seek():
                self._send_map()  # an ancestor plans subscriptions by the map it has
                self.parts.inter_cloud.seek(address, message, now_ns)
            case Unseek():
                self.parts.inter_cloud.unseek(address, message, now_ns)
            case Outcome():
                self.parts.inter_cloud.outcome(address, message, now_ns)
            case Map():
                self._map(address, message, now_ns)
            case Claim() if self.parts.view.child_of(message.cloud) not in ("", child):
                reason = f"{message.cloud} is not below {child}, which may not claim names for it"
                self.parts.outbox.send(address, Failed(id=message.id, reason=reason, code="denied"))
            case Claim():
                self.parts.claims.claim(address, message, now_ns)
            case Unclaim() if self.parts.view.child_of(message.cloud) not in ("", child):
                pass  # not its name to give up
            case Unclaim():
                self.parts.claims.unclaim(message)
            case Condense():
                self.parts.functions.condense(address, message, now_ns)
            case Uncondense():
                self.parts.functions.uncondense(address, message, now_ns)
            case SetFlood():
                self.parts.flooding.renewed(address, message, now_ns)
            case Search():
                self.parts.names.search(address, message)
            case Names():
                self.parts.names.named(address, message)
            case _:
                self._unsupported(address, message)

    def _of_parent(self, message: Message, now_ns: int) -> None:
        match message:
            case Lead():
                self._lead(message, now_ns)
            case Search():
                self.parts.names.search(PARENT, message)
            case Names():
                self.parts.names.named(PARENT, message)
            case Ask() if message.cloud == self.role:
                self.parts.ancestor_reservations.ask(message, now_ns)
            case Commit() if message.cloud == self.role:
                self.parts.ancestor_reservations.commit(message)
            case Release() if message.cloud == self.role:
                self.parts.ancestor_reservations.release(message)
            case Describe() | Ask() | Commit() | Release() | AddChannel() | RemoveChannel() | Condense() | Uncondense():
                self._relay(message, now_ns)
            case Gone():
                child = self.parts.view.reached(message.cloud)
                if child:
                    self.parts.outbox.send(f"child/{child}", message)
            case _:
                self._of_both(PARENT, message, now_ns)

    def _of_operator(self, address: Address, message: Message, now_ns: int) -> None:
        match message:
            case AddChild():
                self.parts.administration.add_child(address, message)
            case RemoveChild():
                if self.parts.administration.remove_child(address, message):
                    self.parts.flooding.forget(message.role)
                    self._carry_out(self.parts.modes.lost(message.role, now_ns), now_ns)
            case AddChannel():
                self.parts.administration.add_channel(address, message, now_ns)
            case RemoveChannel():
                self.parts.administration.remove_channel(address, message, now_ns)
            case _:
                self._of_both(address, message, now_ns)

    def _of_both(self, address: Address, message: Message, now_ns: int) -> None:
        match message:
            case ChangeMode():
                there = [child.role for child in self.parts.view.children.values() if child.up]
                away = [child.role for child in self.parts.view.children.values() if not child.up]
                self._carry_out(self.parts.modes.change(address, message, there, now_ns, away), now_ns)
            case SetFlood():
                self.parts.flooding.set(address, message, now_ns)
            case ClearFlood():
                self.parts.flooding.clear(address, message, now_ns)
            case _:
                self._unsupported(address, message)

    def _unsupported(self, address: Address, message: Message) -> None:
        if isinstance(message, Request):
            reason = f"the inner broker {self.role} takes no {type(message).__name__} from {address}"
            self.parts.outbox.send(address, Failed(id=message.id, reason=reason, code="unsupported"))

    def tick(self, now_ns: int) -> list[Effect]:
        if not self.epoch:
            return []
        self._carry_out(self.parts.modes.tick(now_ns), now_ns)
        self.parts.calls.tick(now_ns)
        self.parts.inter_cloud.tick(now_ns)
        self.parts.ancestor_reservations.tick(now_ns)
        return self._turn()

    def next_tick(self) -> int:
        if not self.epoch:
            return NEVER
        return min(
            self.parts.modes.next_tick(),
            self.parts.calls.next_tick(),
            self.parts.inter_cloud.next_tick(),
            self.parts.ancestor_reservations.next_tick(),
        )

    def rows(self, what: str) -> list[dict[str, Any]]:
        """KeyError names what can be asked for."""
        if what not in ROWS:
            raise KeyError(f"{what!r}: an inner broker shows {', '.join(sorted(ROWS))}")
        return ROWS[what](self.parts.listed)

    def _turn(self) -> list[Effect]:
        self._send_map()
        self.parts.names.flush()
        return self.parts.outbox.take()

    # --- children --------------------------------------------------------------------------------------------------

    def _child(self, address: Address, message: Child, now_ns: int) -> None:
        """A child (re)joins (GS-155): it gets the mode and the floods in force, and everything it has missed."""
        child = address.removeprefix("child/")
        below = self.parts.view.children.get(child)
        if below is None:
            reason = f"{child} is not a child of {self.role}; an operator adds it (AddChild)"
            self.parts.outbox.send(address, Failed(id=message.id, reason=reason, code="unknown"))
            return
        self.parts.outbox.send(address, self._leads())
        if message.claims is not None:
            self.parts.claims.merge({child, *self.parts.view.below(child)}, message.claims, now_ns)
        if below.up:
            if below.issuer == message.issuer:
                return
            self._lost_child(child, now_ns)
            self.parts.calls.lost(address, now_ns)
        self.parts.view.joined(child, message.height, message.mode, message.issuer)
        self.parts.names.up(address, message.finds)
        self.parts.modes.rise(self.parts.view.height)
        self._carry_out(self.parts.modes.joined(child, now_ns), now_ns)
        self.parts.flooding.joined(child, now_ns)
        self.parts.inter_cloud.decisions.joined(child, now_ns)
        self.parts.administration.joined(child, now_ns)

    def _map(self, address: Address, message: Map, now_ns: int) -> None:
        child = address.removeprefix("child/")
        first = not self.parts.view.children[child].routers
        self.parts.view.merge(child, message)
        if first:
            self.parts.administration.joined(child, now_ns)
            self.parts.inter_cloud.decisions.joined(child, now_ns)

    # --- the parent ------------------------------------------------------------------------------------------------

    def _hello(self) -> None:
        issuer = f"{self.role}.{self.epoch}".encode()
        parts = self.parts
        hello = Child(id=0, role=self.role, epoch=self.epoch, mode=parts.modes.mode, issuer=issuer,
                      height=parts.view.height, claims=parts.claims.list(), finds=True)  # fmt: skip
        parts.outbox.send(PARENT, hello)

    def _lead(self, message: Lead, now_ns: int) -> None:
        """The answer to `Child`: the parent gets the map and every request that it has not answered."""
        if message.epoch == self._parent_epoch:
            return
        self._parent_epoch, self.parts.calls.parent_up = message.epoch, True
        self._send_map(anyway=True)
        self.parts.calls.again(PARENT)
        self.parts.claims.led(now_ns)
        self.parts.names.up(PARENT, message.finds)

    def _send_map(self, anyway: bool = False) -> None:
        if (self.parts.view.changed or anyway) and self._parent_epoch:
            self.parts.outbox.send(PARENT, self.parts.view.map())
            self.parts.view.changed = False

    def _relay(self, message: Relayed, now_ns: int) -> None:
        """Pass a request of the parent on to the child that has that leaf, and its answer back."""
        child = self.parts.view.reached(message.cloud)
        number = message.id
        if not child:
            reason = f"the broker {message.cloud} below {self.role} is not connected"
            self.parts.outbox.send(PARENT, Failed(id=number, reason=reason, code=AWAY))
            return

        def answer(answer: Message, now_ns: int) -> None:
            self.parts.outbox.send(PARENT, msgspec.structs.replace(answer, id=number))

        self.parts.calls.call(f"child/{child}", message, answer, now_ns, RELAYED_NS)

    # --- modes -----------------------------------------------------------------------------------------------------

    def _carry_out(self, steps: Iterable[Step], now_ns: int) -> None:
        for step in steps:
            match step:
                case PersistMode():
                    self.parts.outbox.put("mode", "mode", ModeItem(mode=step.mode, rank=step.rank))
                case SendCommand():
                    self._send_command(step, now_ns)
                case Reply() if step.ok:
                    self.parts.outbox.send(step.asker, Done(id=step.request_id, note=step.reason))
                case Reply():
                    failed = Failed(id=step.request_id, reason=step.reason, code=step.code)
                    self.parts.outbox.send(step.asker, failed)

    def _send_command(self, command: SendCommand, now_ns: int) -> None:
        def answer(message: Message, now_ns: int) -> None:
            ok = isinstance(message, Done)
            reason = message.note if isinstance(message, Done) else getattr(message, "reason", "")
            child = self.parts.view.children.get(command.router)  # it may have been removed meanwhile
            if ok and child is not None:
                child.mode = command.mode
            self._carry_out(self.parts.modes.answered(command.router, ok, reason, now_ns, command.number), now_ns)

        request = ChangeMode(id=0, mode=command.mode, rank=command.rank)
        self.parts.calls.call(f"child/{command.router}", request, answer, now_ns)
