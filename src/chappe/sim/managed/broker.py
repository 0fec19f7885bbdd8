"""A simulated process of a broker's role: the real machine, driven by virtual time, a modelled lease and store."""

from __future__ import annotations

import time
from collections.abc import Callable

from chappe.core.broker.log import BrokerLog
from chappe.core.broker.machine import BrokerMachine
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.errors import StaleEpochError, StoreError
from chappe.machine import (
    NEVER,
    Address,
    Audit,
    AuditIntent,
    AuditWritten,
    Change,
    Close,
    Connected,
    Disconnected,
    Effect,
    Input,
    Send,
)
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.sim.clock import Clock, Timer
from chappe.sim.managed.links import ManagementLink
from chappe.sim.managed.store import RoleStore
from chappe.status.machine import Broker
from chappe.status.topology import Topology
from chappe.wire.base import Answer, Message, Request
from chappe.wire.control import decode, encode

SHARE = 3  # renewals within one lease
COMMIT_S = 0.002
RESTORE_S = 0.02
AGAIN_S = 0.1  # after a commit failed
OPERATORS = 1_000_000  # ports of operators

Make = Callable[[str, Topology], Broker]


class BrokerProcess:
    """Stands by until it has the lease of its role. `failures` are defects that ended a term."""

    def __init__(
        self, name: str, role: str, topology: Topology, clock: Clock, store: RoleStore, make: Make, lease_s: float = 5.0
    ) -> None:
        self.name = name
        self.role = role
        self.running = False
        self.links: list[ManagementLink] = []
        self.failures: list[str] = []
        self.spent_ns = 0  # real time in the machine
        self.broker: Broker | None = None  # of the present term
        self._topology = topology
        self._clock = clock
        self._store = store
        self._make = make
        self._lease_ns = round(lease_s * 1e9)
        self._life = 0
        self._sessions = Sessions()
        self._machine = self._fresh()
        self._by_port: dict[int, ManagementLink] = {}
        self._ports: dict[ManagementLink, int] = {}
        self._next_port = 1
        self._next_operator = OPERATORS
        self._answers: dict[int, Callable[[Answer], None]] = {}
        self._epoch = 0  # of the lease
        self._until_ns = 0
        self._committing = False
        self._timer: Timer | None = None

    def _fresh(self) -> BrokerMachine:
        return BrokerMachine(
            self.name, self.role, self._topology, RuleBook.open,
            lambda epoch: self._epoch == epoch and self._clock.now_ns < self._until_ns,
            self._sessions, BrokerLog(self.role), lambda: self._clock.wall_ns,
        )  # fmt: skip

    @property
    def leads(self) -> bool:
        return self.running and bool(self._machine.epoch)

    # --- life

    def start(self) -> None:
        self.running = True
        self._life += 1
        self._sessions = Sessions()
        self._machine = self._fresh()
        self._turn(self._life)
        for link in self.links:
            link.dial()

    def stop(self) -> None:
        """The process is gone: what it had not committed, and its lease runs out by itself."""
        self.running = False
        self._life += 1
        self.broker, self._epoch, self._committing = None, 0, False
        self._by_port, self._ports, self._answers = {}, {}, {}
        for link in self.links:
            link.end()

    # --- the lease

    def _turn(self, life: int) -> None:
        if life != self._life:
            return
        now_ns = self._clock.now_ns
        try:
            if not self._epoch:
                epoch = self._store.acquire(self.name, now_ns, self._lease_ns)
                if epoch is not None:
                    self._epoch, self._until_ns = epoch, now_ns + self._lease_ns
                    self._clock.after(RESTORE_S, self._restore, life, epoch)
            elif self._store.renew(self.name, self._epoch, now_ns, self._lease_ns):
                self._until_ns = now_ns + self._lease_ns
            else:
                self._epoch = 0
        except StoreError:
            if now_ns >= self._until_ns:
                self._epoch = 0
        if not self._epoch:
            self._carry_out(self._machine.resign("the lease was lost"))
        self._clock.after(self._lease_ns / SHARE / 1e9, self._turn, life)

    def _restore(self, life: int, epoch: int) -> None:
        if life != self._life or epoch != self._epoch:
            return
        broker = self._make(self.role, self._topology)
        try:
            broker.restore(self._store.load())
        except StoreError:
            self._store.give_up(self.name, epoch)
            self._epoch = 0
            return
        self.broker = broker
        self._call(lambda now_ns: self._machine.lead(broker, epoch, now_ns))

    # --- links

    def linked(self, link: ManagementLink, peer: str, dialled: bool) -> None:
        port = self._next_port
        self._next_port += 1
        self._by_port[port], self._ports[link] = link, port
        self._sessions.open(Session(port, peer, "node", dev_identity(peer, "node"), manager=dialled))
        self._receive(port, Connected())

    def unlinked(self, link: ManagementLink) -> None:
        port = self._ports.pop(link, None)
        if port is not None:
            del self._by_port[port]
            self._receive(port, Disconnected())
            self._sessions.close(port)

    def heard(self, link: ManagementLink, message: Message) -> None:
        if link in self._ports and self._machine.takes(message):
            self._receive(self._ports[link], message)

    def operate(self, request: Request, answered: Callable[[Answer], None]) -> None:
        """An operator asks for something; `answered` gets the answer, unless this process ends before."""
        self._next_operator += 1
        port = self._next_operator
        self._sessions.open(Session(port, "operator", "client", dev_identity("operator", "admin")))
        self._answers[port] = answered
        self._receive(port, request)

    # --- the machine

    def _receive(self, port: Address, message: Input | AuditWritten) -> None:
        self._call(lambda now_ns: self._machine.receive(port, message, now_ns))

    def _call(self, call: Callable[[int], list[Effect]]) -> None:
        began_ns = time.perf_counter_ns()
        effects = call(self._clock.now_ns)
        self.spent_ns += time.perf_counter_ns() - began_ns
        self._carry_out(effects)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(int() as port, message):
                    self._send(port, message)
                case Audit(answer=Send(int() as port, message)):
                    self._send(port, message)
                case AuditIntent():
                    written = AuditWritten(effect.number)
                    self._clock.at(self._clock.now_ns, self._written, self._life, effect.source, written)
                case Close(int() as port):
                    if port in self._by_port:
                        self._by_port[port].end()
        self._follow()

    def _written(self, life: int, port: Address, written: AuditWritten) -> None:
        if life == self._life:
            self._receive(port, written)

    def _send(self, port: int, message: Message) -> None:
        answered = self._answers.pop(port, None)
        if answered is not None:
            self._sessions.close(port)
            answer = decode(encode(message))
            assert isinstance(answer, Answer)
            answered(answer)
        elif port in self._by_port:
            self._by_port[port].send(self, message)

    def _follow(self) -> None:
        """The machine was called: give up the lease of a term that it has ended, commit, and wake it in time."""
        if self.broker is not None and not self._machine.epoch:
            self.broker = None
            if self._machine.resigned.startswith("the broker failed"):
                self.failures.append(self._machine.resigned)
            self._store.give_up(self.name, self._epoch)
            self._epoch = 0
        if self._machine.has_changes and not self._committing:
            self._committing = True
            epoch, changes = self._machine.epoch, self._machine.changes()
            self._clock.after(COMMIT_S, self._commit, self._life, epoch, changes)
        self._wake_at(self._machine.next_tick())

    def _commit(self, life: int, epoch: int, changes: list[Change]) -> None:
        if life != self._life:
            return
        if self._machine.epoch == epoch:
            try:
                self._store.commit(epoch, changes)
            except StaleEpochError as error:
                self._committing = False
                self._carry_out(self._machine.resign(str(error)))
                return
            except StoreError:
                self._clock.after(AGAIN_S, self._commit, life, epoch, changes)
                return
        self._committing = False
        self._carry_out(self._machine.committed(epoch))

    def _wake_at(self, when_ns: int) -> None:
        timer = self._timer
        if timer is not None and timer.waits:
            if timer.when_ns <= when_ns:
                return
            timer.cancel()
        if when_ns != NEVER and self.running:
            self._timer = self._clock.at(max(when_ns, self._clock.now_ns + 1_000_000), self._tick, self._life)

    def _tick(self, life: int) -> None:
        if life == self._life:
            self._call(self._machine.tick)
