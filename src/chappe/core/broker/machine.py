"""One process of a broker's role without I/O: who is parent, child, router or operator, and whether it leads (GS-156).

Its driver holds the lease and the store. It gives the machine a restored broker and an epoch (`lead`), commits what
`changes` returns and reports it (`committed`), and ends the term (`resign`). The machine looks at the lease by itself
before everything it does, and resigns when it has run out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from chappe.core.broker.commit_queue import CommitQueue
from chappe.core.broker.links import Led, Links, Parents, is_process_of
from chappe.core.broker.log import BrokerLog
from chappe.core.broker.operators import ACTIONS, NOT_HERE, Operators
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.errors import RefusedError
from chappe.machine import NEVER, AuditWritten, Change, Close, Connected, Disconnected, Effect, Input, Send
from chappe.machine import Address as Source
from chappe.security.rules import RuleBook
from chappe.status.machine import PARENT, Address, Broker
from chappe.status.topology import Topology
from chappe.wire.base import Answer, Command, Done, Failed, Message, Notice, Request
from chappe.wire.management import MANAGEMENT, Child, Join, Lead, SetFlood, Standby

log = structlog.get_logger(__name__)

TAKEN = frozenset([*MANAGEMENT, *NOT_HERE, Done, Failed])
OF_NODE = ("links", "clients", "counters", "drops")  # listings that every node has


class BrokerMachine:
    """Standing by or leading. `held(epoch)`: nobody else can have the lease; `sessions`: who is connected."""

    def __init__(
        self, name: str, role: str, topology: Topology, book: Callable[[], RuleBook], held: Callable[[int], bool],
        sessions: Sessions, actions: BrokerLog, wall_ns: Callable[[], int],
    ) -> None:  # fmt: skip
        self.role = role
        self.epoch = 0  # it leads in, or 0
        self.resigned = ""  # the reason why the last term ended
        self._name = name
        self._topology = topology
        self._held = held
        self._sessions = sessions
        self._log = actions
        self._wall_ns = wall_ns
        self._above = topology.brokers[role].parent  # empty: it is the root
        self._links = Links()
        self._parents = Parents()
        self._operators = Operators(name, book)
        self._broker: Broker | None = None
        self._queue = CommitQueue()

    # --- leadership

    def lead(self, broker: Broker, epoch: int, now_ns: int) -> list[Effect]:
        """Lead with a broker that has its state back: those that are connected already are notified."""
        self._broker, self.epoch, self._queue = broker, epoch, CommitQueue()
        self._log.epoch = epoch
        self._happened("lead", {"process": self._name, "epoch": epoch})
        self._parents.announced = bool(self._parents)
        return self._decide(lambda broker: self._begin(broker, now_ns))

    def _begin(self, broker: Broker, now_ns: int) -> list[Effect]:
        addresses = list(self._links)
        effects: list[Effect] = []
        for address in addresses:
            effects += broker.receive(address, Connected(), now_ns)
        effects += broker.lead(self.epoch, now_ns)
        informed = {effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Lead)}
        below = [address for address in addresses if address.startswith(("router/", "child/"))]
        leads = Lead(role=self.role, epoch=self.epoch, finds=True)
        effects += [Send(address, leads) for address in below if address not in informed]
        if self._parents:  # it is greeted by a broker that leads
            effects += broker.receive(PARENT, Connected(), now_ns)
        return effects

    def resign(self, reason: str) -> list[Effect]:
        """Stop leading at once: nothing that waits for a commit leaves."""
        if not self.epoch:
            return []
        log.info("leads no longer", role=self.role, holder=self._name, epoch=self.epoch, reason=reason)
        self._broker, self.epoch, self._queue, self.resigned = None, 0, CommitQueue(), reason
        self._happened("resign", {"process": self._name, "reason": reason})
        self._parents.forget()
        effects: list[Effect] = self._operators.abandon(self.standing_by())
        for address in self._links:
            session = self._links.session(address)
            if session is not None and session.role == "node":
                effects.append(Send(session.port, Standby(role=self.role)))
        return effects

    def _lapse(self) -> list[Effect]:
        """End a term whose lease has run out while this process was kept from running."""
        return self.resign("the lease has run out") if self.epoch and not self._held(self.epoch) else []

    def standing_by(self) -> str:
        """Why it answers nothing now."""
        urls = ", ".join(self._topology.brokers[self.role].listen)
        return f"{self._name} does not lead {self.role}: another process does ({urls}), or none yet; ask again"

    # --- commits

    @property
    def waiting(self) -> int:
        """Messages that wait for a commit."""
        return self._queue.waiting

    @property
    def has_changes(self) -> bool:
        """Whether `changes` has something to commit."""
        return self._queue.ready

    def changes(self) -> list[Change]:
        """Begin the next transaction of this term."""
        return self._queue.take()

    def committed(self, epoch: int) -> list[Effect]:
        """What `changes` returned in that epoch is durable."""
        effects = self._lapse()
        if self.epoch != epoch:
            return effects
        return self._sent(self._queue.committed())

    # --- connections

    def receive(self, source: Source, message: Input | AuditWritten, now_ns: int) -> list[Effect]:
        """A message that it takes, or what became of a connection or of an intent for the audit log."""
        if isinstance(message, AuditWritten):
            return self._written(message, now_ns)  # whoever asked may be gone by now
        assert isinstance(source, int)
        session = self._sessions.get(source)
        if session is None:
            return []
        match message:
            case Connected():
                return self._opened(session, now_ns)
            case Disconnected():
                return self._closed(session, now_ns)
        return self._hear(session, message, now_ns)

    def _opened(self, session: Session, now_ns: int) -> list[Effect]:
        """A connection whose identity is known; only a parent's counts before its first message."""
        if not session.manager:
            return []
        if not is_process_of(self._above, session.name):
            log.error("not a process of the parent", role=self.role, parent=self._above, name=session.name)
            return []
        greeting = self._parents.opened(session)
        effects = self._lapse()
        if not self.epoch:
            return effects
        if greeting is not None:  # it may lead by now
            return [Send(session.port, greeting)]
        return self._announce_parent(now_ns)

    def _closed(self, session: Session, now_ns: int) -> list[Effect]:
        effects = self._lapse()
        if session in self._parents:
            return effects + (self._change_parent(now_ns) if self._parents.closed(session) else [])
        effects += self._operators.closed(session)
        address = self._links.release(session)
        return effects if address is None else effects + self._lose(address, now_ns)

    # --- messages

    def takes(self, message: Message) -> bool:
        """Whether messages of this kind are for brokers."""
        return type(message) in TAKEN or isinstance(message, Command)

    def _hear(self, session: Session, message: Message, now_ns: int) -> list[Effect]:
        effects = self._lapse()
        if session.role == "client":
            return effects + self._from_client(session, message)
        if session in self._parents:
            return effects + self._from_parent(session, message, now_ns)
        match message:
            case Join():
                return effects + self._join(session, message, now_ns)
            case Child():
                return effects + self._child(session, message, now_ns)
            case Command():
                reason = f"{self._name} is a broker and has no table"
                return [*effects, Send(session.port, Failed(id=message.id, code="unsupported", reason=reason))]
        return effects + self._from_below(session, message, now_ns)

    def _from_below(self, session: Session, message: Message, now_ns: int) -> list[Effect]:
        address = self._links.address(session)
        if not self.epoch or address is None:
            if isinstance(message, Request):
                reason = self.standing_by() if not self.epoch else "say Join or Child first"
                return [Send(session.port, Failed(id=message.id, code="unavailable", reason=reason))]
            return []
        if (
            isinstance(message, Request)
            and type(message) in ACTIONS
            and not (address.startswith("child/") and isinstance(message, SetFlood))
        ):
            # Neither routers nor brokers below have the rights of an operator.
            kind, right = type(message).__name__, ACTIONS[type(message)]
            reason = f"{kind} is for operators and the broker above; connect as a client that may {right}"
            return [Send(session.port, Failed(id=message.id, code="denied", reason=reason))]
        return self._give(address, message, now_ns)

    def _join(self, session: Session, join: Join, now_ns: int) -> list[Effect]:
        if join.router != session.name:
            return [Close(session.port, f"Join: {session.name!r} may not join as {join.router!r}", "identity")]
        return self._bound(session, f"router/{join.router}", join, now_ns)

    def _child(self, session: Session, child: Child, now_ns: int) -> list[Effect]:
        topology = self._topology
        another = session.name != child.role and (session.name in topology.routers or session.name in topology.brokers)
        if another or not is_process_of(child.role, session.name):
            reason = f"Child: {session.name!r} may not speak for {child.role!r}; that is for {child.role}-1, -2 …"
            return [Send(session.port, Failed(id=child.id, code="denied", reason=reason))]
        address = f"child/{child.role}"
        if self._links.outranks(address, session, child.epoch):
            reason = f"epoch {child.epoch} of {child.role} is over"
            return [Send(session.port, Failed(id=child.id, code="stale", reason=reason))]
        effects = self._bound(session, address, child, now_ns)
        self._links.at(address, child.epoch)
        return effects

    def _bound(self, session: Session, address: Address, message: Message, now_ns: int) -> list[Effect]:
        """First message of a connection, or the first after another process has begun to lead."""
        before = self._links.session(address)
        fresh = self._links.bind(address, session)
        if not self.epoch:
            return [Send(session.port, Standby(role=self.role))]
        effects = self._lose(address, now_ns) if before is not None and before is not session else []
        if fresh:
            effects += self._give(address, Connected(), now_ns)
        return effects + self._give(address, message, now_ns)

    def _from_parent(self, session: Session, message: Message, now_ns: int) -> list[Effect]:
        if not self.epoch:
            return []
        match message:
            case Lead():
                led = self._parents.leads(session, message.epoch)
                if led is Led.NO:
                    return []
                if led is Led.ANEW:  # whoever has just begun to lead knows nothing of this child
                    return self._change_parent(now_ns)
            case Standby():
                return self._change_parent(now_ns) if self._parents.stands_by(session) else []
            case _ if not self._parents.is_led_by(session):
                return []  # one that does not know yet that it stands by
        return self._give(PARENT, message, now_ns)

    def _change_parent(self, now_ns: int) -> list[Effect]:
        """The parent is not who it was; ask those that are there who leads."""
        if not self.epoch:
            return []
        effects = self._lose(PARENT, now_ns) if self._parents.announced else []
        self._parents.forget()  # what was said first is out of date by now
        return effects + self._announce_parent(now_ns)

    def _announce_parent(self, now_ns: int) -> list[Effect]:
        """Let the broker know, once, that there is a parent."""
        if self._parents.announced or not self._parents:
            return []
        self._parents.announced = True
        return self._give(PARENT, Connected(), now_ns)

    def _from_client(self, session: Session, message: Message) -> list[Effect]:
        if isinstance(message, Notice | Answer):
            return [Close(session.port, f"{type(message).__name__} is not expected from a client")]
        if isinstance(message, Command) or type(message) not in ACTIONS:
            reason = f"{self._name} is a broker; connect to a router for {type(message).__name__}"
            return [Send(session.port, Failed(id=message.id, code="unsupported", reason=reason))]
        refusal = self._operators.refusal(session, message)
        if refusal is not None:
            return [refusal]
        if not self.epoch:
            return [self._operators.failed(session, message, self.standing_by())]
        return [self._operators.intend(session, message)]

    def _written(self, written: AuditWritten, now_ns: int) -> list[Effect]:
        """What an operator asks for is written down; this process may not lead any more."""
        number = written.number
        session, message = self._operators.intended(number)
        if written.error:
            return [Send(session.port, Failed(id=message.id, code="unavailable", reason=written.error))]
        effects = self._lapse()
        if not self.epoch:
            return [*effects, self._operators.failed(session, message, self.standing_by(), number)]
        if not self._sessions.has(session):
            return [self._operators.failed(session, message, "the connection ended before it was done", number)]
        address = self._operators.asked(session, message, number)
        if self._links.bind(address, session):
            effects += self._give(address, Connected(), now_ns)
        return effects + self._give(address, message, now_ns)

    # --- time and facts

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due."""
        effects = self._lapse()
        if self._broker is None or self._broker.next_tick() > now_ns:
            return effects
        return effects + self._decide(lambda broker: broker.tick(now_ns))

    def next_tick(self) -> int:
        return self._broker.next_tick() if self._broker is not None else NEVER

    def rows(self, what: str, state: str) -> list[dict[str, Any]] | None:
        """What the broker shows; `broker`: this process. RefusedError while it stands by."""
        if what in OF_NODE:
            return None
        if what == "broker":
            return [{"name": self._name, "role": self.role, "state": state, "epoch": self.epoch,
                     "leads": bool(self.epoch), "waiting": self.waiting}]  # fmt: skip
        if self._broker is None:
            raise RefusedError(self.standing_by())
        return self._broker.rows(what)

    # --- the broker

    def _give(self, address: Address, message: Input, now_ns: int) -> list[Effect]:
        if self._log.on and not isinstance(message, Connected | Disconnected):
            self._log.received(address, message, self._wall_ns())
        return self._decide(lambda broker: broker.receive(address, message, now_ns))

    def _lose(self, address: Address, now_ns: int) -> list[Effect]:
        if not self.epoch:
            return []
        if self._log.on:
            self._log.lost(address, self._wall_ns())
        self._queue.forget(address)
        return self._give(address, Disconnected(), now_ns)

    def _decide(self, call: Callable[[Broker], list[Effect]]) -> list[Effect]:
        """What the broker makes of it. A defect may leave it half changed: the term ends, the store knows better."""
        if self._broker is None:
            return []
        try:
            effects = call(self._broker)
        except Exception as error:
            log.exception("the broker failed", role=self.role, epoch=self.epoch)
            return self.resign(f"the broker failed: {error!r}")
        return self._sent(self._queue.put(effects))

    def _sent(self, sends: list[Send]) -> list[Effect]:
        """As effects of a node; what has no connection is dropped, the broker sends it again when that is back."""
        effects: list[Effect] = []
        log_ns = self._wall_ns() if self._log.on else 0
        for send in sends:
            before, to = len(effects), str(send.to)
            if to == PARENT:
                effects += [Send(port, send.message) for port in self._parents.addressed(send.message)]
            elif (session := self._links.session(to)) is not None:
                effects.append(self._operators.answer(session, send.message) or Send(session.port, send.message))
            if log_ns and len(effects) > before:
                self._log.sent(to, send.message, log_ns)
        return effects

    def _happened(self, action: str, detail: dict[str, Any]) -> None:
        if self._log.on:
            self._log.happened(action, self.role, detail, self._wall_ns())
