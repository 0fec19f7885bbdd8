"""A node that is a broker: drives the state machine of its role while it holds the lease, stands by otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from chappe.core.outputs import Close, Output, Send
from chappe.core.sections import Manages
from chappe.errors import RefusedError
from chappe.links._socket import clocks
from chappe.runtime.broker.actions import BrokerLog
from chappe.runtime.broker.leadership import Leadership
from chappe.runtime.broker.links import PARENT, Led, Links, Parents, is_process_of
from chappe.runtime.broker.operators import ACTIONS, NOT_HERE, Operators
from chappe.runtime.broker.term import Term
from chappe.status import machine
from chappe.status.inner.broker import InnerBroker
from chappe.status.leaf.broker import LeafBroker
from chappe.status.topology import Topology
from chappe.wire import told
from chappe.wire.base import Command, Done, Failed, Message, Request
from chappe.wire.control import Subscribe, Unsubscribe
from chappe.wire.management import MANAGEMENT, Child, Join, Lead, SetFlood, Standby

if TYPE_CHECKING:
    from chappe.core.session import Session
    from chappe.runtime.node import Node

log = structlog.get_logger(__name__)

TAKEN = frozenset([*MANAGEMENT, *NOT_HERE, Done, Failed])
OF_NODE = ("links", "clients", "counters", "drops")  # listings that every node has
TICK_NS = 50_000_000
BEHIND_NS = 10_000_000_000  # an answer that has arrived and waits here to be looked at is not late


def broker_of(role: str, topology: Topology) -> machine.Broker:
    """The state machine of a role: a leaf if no broker is below it."""
    if topology.children(role):
        return InnerBroker(role, topology)
    return LeafBroker(role, topology, topology.number(role))


Make = Callable[[str, Topology], machine.Broker]


class BrokerRole:
    """One process of a broker's role (GS-156). Planning happens here and forwards nothing, so it may take its time."""

    def __init__(self, node: Node, manages: Manages, make: Make = broker_of) -> None:
        self.role = manages.role
        self._node = node
        self._manages = manages
        self._above = manages.topology.brokers[manages.role].parent  # empty: it is the root
        self._links = Links()
        self._parents = Parents()
        self._operators = Operators(node.name, lambda: node.control.book)
        self._log = BrokerLog(self.role)
        self._ticked_ns = 0
        self.leadership = Leadership(
            self.role, f"{node.name}/{node.process.hex()[:12]}", lambda: make(self.role, manages.topology),
            self._begin, self._end, lambda sends: self._perform(self._sent(sends)),
        )  # fmt: skip

    async def open(self) -> None:
        """Open the store; StoreError says what is wrong with it."""
        await self.leadership.open(self._manages.store)

    async def start(self) -> None:
        """Ask for the lease."""
        self.leadership.start(self._manages.lease_s)
        if self._above:
            self._node.management.follow(self._manages.topology.brokers[self._above].listen)

    async def stop(self) -> None:
        """Finish what is being committed, then let another process lead at once."""
        await self.leadership.stop()
        self._tell()

    def _begin(self, term: Term) -> None:
        clocks(self._node.engine)
        self._log.epoch = term.epoch
        self._happened("lead", {"process": self._node.name, "epoch": term.epoch})
        self._parents.told = bool(self._parents)
        sends = term.begin(self._links, bool(self._parents), self._node.engine.mono_ns)
        self._perform(self._sent(sends))

    def _end(self, reason: str) -> None:
        self._happened("resign", {"process": self._node.name, "reason": reason})
        self._parents.forget()
        outputs: list[Output] = self._operators.abandon(self._standing_by())
        for address in self._links:
            session = self._links.session(address)
            if session is not None and session.role == "node":
                outputs.append(Send(session.port, Standby(role=self.role)))
        self._perform(outputs)

    def _standing_by(self) -> str:
        urls = ", ".join(self._manages.topology.brokers[self.role].listen)
        return f"{self._node.name} does not lead {self.role}: another process does ({urls}), or none yet; ask again"

    # --- connections

    def opened(self, session: Session, now_ns: int) -> list[Output]:
        if not session.manager:
            return []  # its first message says what it is
        if not is_process_of(self._above, session.name):
            log.error("not a process of the parent", role=self.role, parent=self._above, name=session.name)
            return []
        greeting = self._parents.opened(session)
        term = self.leadership.term
        if term is None:
            return []
        if greeting is not None:  # it may lead by now
            return [Send(session.port, greeting)]
        return self._sent(self._meet(term, now_ns))

    def closed(self, session: Session, now_ns: int) -> list[Output]:
        if session in self._parents:
            return self._no_parent(now_ns) if self._parents.closed(session) else []
        outputs = self._operators.closed(session)
        address = self._links.release(session)
        term = self.leadership.term
        if address is None or term is None:
            return outputs
        return outputs + self._sent(self._lose(term, address, now_ns))

    # --- messages

    def takes(self, message: Message) -> bool:
        if isinstance(message, Subscribe | Unsubscribe) and told.at_brokers(message.pattern):
            self._log.on = True  # the next tick sees whether somebody is still there
            return False
        return type(message) in TAKEN or isinstance(message, Command)

    def receive(self, session: Session, message: Message, now_ns: int) -> list[Output]:
        term = self.leadership.term
        if session.role == "client":
            return self._from_client(term, session, message, now_ns)
        if session in self._parents:
            return self._from_parent(term, session, message, now_ns)
        match message:
            case Join():
                return self._join(term, session, message, now_ns)
            case Child():
                return self._child(term, session, message, now_ns)
            case Command():
                reason = f"{self._node.name} is a broker and has no table"
                return [Send(session.port, Failed(id=message.id, code="unsupported", reason=reason))]
        address = self._links.address(session)
        if term is None or address is None:
            if isinstance(message, Request) and not isinstance(message, Done | Failed):
                reason = self._standing_by() if term is None else "say Join or Child first"
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
        return self._sent(self._hear(term, address, message, now_ns))

    def _join(self, term: Term | None, session: Session, join: Join, now_ns: int) -> list[Output]:
        if join.router != session.name:
            return [Close(session.port, f"Join: {session.name!r} may not join as {join.router!r}", "identity")]
        return self._bound(term, session, f"router/{join.router}", join, now_ns)

    def _child(self, term: Term | None, session: Session, child: Child, now_ns: int) -> list[Output]:
        topology = self._manages.topology
        another = session.name != child.role and (session.name in topology.routers or session.name in topology.brokers)
        if another or not is_process_of(child.role, session.name):
            reason = f"Child: {session.name!r} may not speak for {child.role!r}; that is for {child.role}-1, -2 …"
            return [Send(session.port, Failed(id=child.id, code="denied", reason=reason))]
        address = f"child/{child.role}"
        if self._links.outranks(address, session, child.epoch):
            reason = f"epoch {child.epoch} of {child.role} is over"
            return [Send(session.port, Failed(id=child.id, code="stale", reason=reason))]
        outputs = self._bound(term, session, address, child, now_ns)
        self._links.at(address, child.epoch)
        return outputs

    def _bound(
        self, term: Term | None, session: Session, address: machine.Address, message: Message, now_ns: int
    ) -> list[Output]:
        """First message of a connection, or the first after another process has begun to lead."""
        before = self._links.session(address)
        fresh = self._links.bind(address, session)
        if term is None:
            return [Send(session.port, Standby(role=self.role))]
        outputs = self._lose(term, address, now_ns) if before is not None and before is not session else []
        if fresh:
            outputs += term.connected(address, now_ns)
        return self._sent(outputs + self._hear(term, address, message, now_ns))

    def _from_parent(self, term: Term | None, session: Session, message: Message, now_ns: int) -> list[Output]:
        if term is None:
            return []
        match message:
            case Lead():
                led = self._parents.leads(session, message.epoch)
                if led is Led.NO:
                    return []
                if led is Led.ANEW:  # whoever has just begun to lead knows nothing of this child
                    return self._no_parent(now_ns)
            case Standby():
                return self._no_parent(now_ns) if self._parents.stands_by(session) else []
            case _ if not self._parents.is_led_by(session):
                return []  # one that does not know yet that it stands by
        return self._sent(self._hear(term, PARENT, message, now_ns))

    def _no_parent(self, now_ns: int) -> list[Output]:
        """The parent is not who it was; ask those that are there who leads."""
        term = self.leadership.term
        if term is None:
            return []
        outputs = self._lose(term, PARENT, now_ns) if self._parents.told else []
        self._parents.told = False
        return self._sent(outputs + self._meet(term, now_ns))

    def _meet(self, term: Term, now_ns: int) -> list[machine.Send]:
        """Tell the broker that there is a parent, once."""
        if self._parents.told or not self._parents:
            return []
        self._parents.told = True
        return term.connected(PARENT, now_ns)

    def _from_client(self, term: Term | None, session: Session, message: Message, now_ns: int) -> list[Output]:
        if not isinstance(message, Request):
            return [Close(session.port, f"{type(message).__name__} is not expected from a client")]
        if type(message) not in ACTIONS:
            reason = f"{self._node.name} is a broker; connect to a router for {type(message).__name__}"
            return [Send(session.port, Failed(id=message.id, code="unsupported", reason=reason))]
        refusal = self._operators.refusal(session, message)
        if refusal is not None:
            return [refusal]
        if term is None:
            return [self._operators.failed(session, message, self._standing_by())]
        return [self._operators.intend(session, message, partial(self._ask, session, message))]

    def _ask(self, session: Session, message: Request, number: int, now_ns: int) -> list[Output]:
        """What somebody asks for is written down; this process may not lead any more."""
        term = self.leadership.term
        if term is None:
            return [self._operators.failed(session, message, self._standing_by(), number)]
        if self._node.control.sessions.get(session.port) is not session:
            return [self._operators.failed(session, message, "the connection ended before it was done", number)]
        address = self._operators.asked(session, message, number)
        outputs = term.connected(address, now_ns) if self._links.bind(address, session) else []
        return self._sent(outputs + self._hear(term, address, message, now_ns))

    def _hear(self, term: Term, address: machine.Address, message: Message, now_ns: int) -> list[machine.Send]:
        if self._log.on:
            self._log.received(address, message, time.time_ns())
        return term.receive(address, message, now_ns)

    def _lose(self, term: Term, address: machine.Address, now_ns: int) -> list[machine.Send]:
        if self._log.on:
            self._log.lost(address, time.time_ns())
        return term.lost(address, now_ns)

    # --- time and facts

    def tick(self, now_ns: int) -> list[Output]:
        self.leadership.alive()
        self._tell()
        term = self.leadership.term
        since_ns = now_ns - self._ticked_ns
        if term is None or since_ns < TICK_NS or (self._node.shell.behind and since_ns < BEHIND_NS):
            return []
        self._ticked_ns = now_ns
        return self._sent(term.tick(now_ns))

    def rows(self, what: str) -> list[dict[str, Any]] | None:
        """What the broker shows; `broker`: this process. RefusedError while it stands by."""
        term = self.leadership.term
        if what in OF_NODE:
            return None
        if what == "broker":
            return [{"name": self._node.name, "role": self.role, "state": self.leadership.state,
                     "epoch": self.leadership.epoch, "leads": term is not None,
                     "waiting": term.waiting if term is not None else 0}]  # fmt: skip
        if term is None:
            raise RefusedError(self._standing_by())
        return term.broker.rows(what)

    def gauges(self) -> dict[str, float]:
        """For /metrics."""
        term, tally = self.leadership.term, self.leadership.tally
        return {
            "broker_leading": float(term is not None), "broker_epoch": self.leadership.epoch,
            "broker_terms": self.leadership.terms, "broker_commits": tally.commits, "broker_changes": tally.changes,
            "broker_commit_seconds": tally.seconds, "broker_slowest_commit_seconds": tally.slowest_s,
            "broker_waiting_messages": term.waiting if term is not None else 0,
            "broker_log_dropped": self._log.dropped,
        }  # fmt: skip

    # --- out

    def _sent(self, sends: list[machine.Send]) -> list[Output]:
        """As outputs of a node; what has no connection is dropped, the broker tells again when it is back."""
        outputs: list[Output] = []
        log_ns = time.time_ns() if self._log.on else 0
        for send in sends:
            before = len(outputs)
            if send.to == PARENT:
                outputs += [Send(port, send.message) for port in self._parents.addressed(send.message)]
            elif (session := self._links.session(send.to)) is not None:
                outputs.append(self._operators.answer(session, send.message) or Send(session.port, send.message))
            if log_ns and len(outputs) > before:
                self._log.sent(send.to, send.message, log_ns)
        return outputs

    def _happened(self, action: str, detail: dict[str, Any]) -> None:
        if self._log.on:
            self._log.happened(action, self.role, detail, time.time_ns())

    def _tell(self) -> None:
        """Tell those who listen what was done; nobody: nothing is written down."""
        listened = any(session.subscriptions for session in self._node.control.sessions.values())
        if listened:
            for body in self._log.take(time.time_ns()):
                self._node.telling.publish(told.broker_topic(self.role), body)
        elif self._log.on:
            self._log.forget()
        self._log.on = listened

    def _perform(self, outputs: list[Output]) -> None:
        self._node.shell.perform(outputs)
        self._node.tick.soon()
