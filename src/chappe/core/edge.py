"""The management links of a router: who leads, what clients ask for through it, and what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from chappe.core.entities import Entities, Memory
from chappe.core.grants import terms_of
from chappe.core.search import BrokerSearch
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.variables import Variables
from chappe.machine import Address as Source
from chappe.machine import Connected, Disconnected, Effect, NodeInput, Send
from chappe.wire.base import Answer, Failed, Message, Request
from chappe.wire.control import Watch
from chappe.wire.management import Arrived, Entity, Join, Lead, Left, LinkState, Standby, SubscribeRequest

log = structlog.get_logger(__name__)

LEADERLESS_NS = 10_000_000_000  # a request waits so long for a broker that leads
UNDER_WAY = 128  # requests that the broker has not answered: more would only wait there, in front of other edges'
SLOW_NS = 2_000_000_000  # one that takes longer (it waits for its publisher, say) does not keep others back

Then = Callable[[Answer], list[Effect]]


@dataclass(slots=True)
class _Asked:
    """A request on its way to the broker, repeated to whoever leads until it is answered."""

    message: Request
    then: Then
    since_ns: int
    sent_ns: int = 0


@dataclass(slots=True)
class _Broker:
    """A process of the broker's role."""

    name: str
    state: str = "joining"  # leading, standby
    epoch: int = 0


def entity_of(session: Session) -> Entity:
    """A client as brokers know it."""
    return Entity(session.name, session.issuer)


class Edge:
    """Knows the broker with the highest epoch, joins it, and asks it for clients (GS-080).

    `fence(epoch)` raises the epoch that commands must have and says whether it is not over.
    """

    def __init__(
        self, router: str, process: bytes, role: str, away_ns: int, fence: Callable[[int], bool], sessions: Sessions,
        variables: Variables,
    ) -> None:  # fmt: skip
        self.role = role
        self.entities = Entities(away_ns)
        self.search = BrokerSearch()
        self.leader: int | None = None  # its port
        self.epoch = 0
        self._router = router
        self._process = process
        self._fence = fence
        self._sessions = sessions
        self._variables = variables
        self._brokers: dict[int, _Broker] = {}
        self._asked: dict[int, _Asked] = {}
        self._queue: deque[int] = deque()  # of these, not sent to the present leader yet
        self._under_way: dict[int, None] = {}  # sent, oldest first, and not slow
        self._gone: dict[str, Entity] = {}  # said goodbye while nobody led, the last of each name
        # An answer that was meant for an earlier process of this router must not fit to a request of this one.
        self._number = int.from_bytes(process[:5], "big") << 16
        self._leaderless_ns = 0

    # --- a machine

    def receive(self, source: Source, message: NodeInput, now_ns: int) -> list[Effect]:
        """A connection came or went, or a process of the broker's role says something."""
        assert isinstance(source, int)
        session = self._sessions.get(source)
        if session is None or session.internal:
            return []
        match message:
            case Connected():
                return self._connected(session)
            case Disconnected():
                return self._disconnected(session, now_ns)
            case Lead():
                return self._lead(session, message, now_ns)
            case Standby():
                return self._standby(session, now_ns)
            case Failed(id=0):  # no answer to a request, but to its Join
                log.error("the broker does not take this router", node=self._router, broker=session.name,
                          reason=message.reason)  # fmt: skip
            case Answer():
                return self._answered(session, message, now_ns)
        return []

    @staticmethod
    def takes(message: Message) -> bool:
        """Whether messages of this kind, of brokers, are for the edge."""
        return isinstance(message, Lead | Standby | Answer)

    def tick(self, now_ns: int) -> list[Effect]:
        """Give up what waits for a leader for too long; send what waits behind slow ones."""
        self.entities.tick(now_ns)
        if self.leader is not None:
            return self._more(now_ns) if self._queue else []
        effects: list[Effect] = []
        for number, asked in list(self._asked.items()):
            if now_ns - max(asked.since_ns, self._leaderless_ns) >= LEADERLESS_NS:
                del self._asked[number]
                self._under_way.pop(number, None)
                reason = f"no broker of {self.role} leads; {self._router} forwards on, ask again later"
                effects += asked.then(Failed(id=number, code="unavailable", reason=reason))
        return effects

    def next_tick(self) -> int:
        """When a request has waited for too long, a slow one frees its place, or a client is forgotten."""
        next_ns = self.entities.next_tick()
        if self.leader is None:
            if self._asked:
                first = next(iter(self._asked.values()))
                next_ns = min(next_ns, max(first.since_ns, self._leaderless_ns) + LEADERLESS_NS)
        elif self._queue and self._under_way:
            next_ns = min(next_ns, self._asked[next(iter(self._under_way))].sent_ns + SLOW_NS)
        return next_ns

    def _connected(self, session: Session) -> list[Effect]:
        if session.manager:
            self._brokers[session.port] = _Broker(session.name)
            return [Send(session.port, self._join())]
        if session.role == "node":
            return self._send(LinkState(peer=session.name, up=True))
        entity = entity_of(session)
        for memory in self.entities.arrived(entity, session.port):
            self._abandon(memory)
        return self._send(Arrived(entity=entity))

    def _disconnected(self, session: Session, now_ns: int) -> list[Effect]:
        """Without a broker the router goes on as it is (GS-151); a channel that failed is reported (GS-150)."""
        if session.manager:
            self._brokers.pop(session.port, None)
            self._lost(session.port, now_ns)
            return []
        if session.role == "node":
            return self._send(LinkState(peer=session.name, up=False))
        return self._left(session, now_ns)

    # --- brokers

    def _lead(self, session: Session, message: Lead, now_ns: int) -> list[Effect]:
        """A broker leads: join it and repeat what has no answer; one of an older epoch is not believed."""
        broker = self._brokers.get(session.port)
        if broker is None:
            return []
        if message.role != self.role:
            log.error("the broker has another role; correct [broker]", broker=session.name, role=message.role,
                      expected=self.role)  # fmt: skip
            return []
        if not self._fence(message.epoch) or message.epoch < self.epoch:
            return []
        known = self.leader == session.port and self.epoch == message.epoch
        broker.state, broker.epoch = "leading", message.epoch
        if known:
            return []
        for port, other in self._brokers.items():
            if port != session.port and other.state == "leading":
                other.state = "standby"
        self.leader, self.epoch = session.port, message.epoch
        log.info("broker leads", router=self._router, broker=session.name, epoch=message.epoch)
        self.search.led(message.finds)
        self._queue = deque(self._asked)
        self._under_way.clear()
        gone, self._gone = self._gone, {}
        farewells = [Send(session.port, Left(entity=entity, gone=True)) for entity in gone.values()]
        return [Send(session.port, self._join()), *farewells, *self.flush(), *self._more(now_ns)]

    def _standby(self, session: Session, now_ns: int) -> list[Effect]:
        """A broker says that it does not lead."""
        broker = self._brokers.get(session.port)
        if broker is not None:
            broker.state = "standby"
            self._lost(session.port, now_ns)
        return []

    def _answered(self, session: Session, message: Answer, now_ns: int) -> list[Effect]:
        """An answer of the broker that leads; a second one to the same request changes nothing."""
        if session.port != self.leader:
            return []
        asked = self._asked.pop(message.id, None)
        self._under_way.pop(message.id, None)
        return [*asked.then(message), *self._more(now_ns)] if asked is not None else []

    # --- clients

    def _abandon(self, memory: Memory) -> None:
        """A client came back without its memory: what it published before is over (GS-153)."""
        for variable in memory.published.values():
            entry = self._variables.directory.numbered(variable.variable_id)
            if entry is not None and entry.owner < 0:
                self._variables.abandoned(entry)

    def _left(self, session: Session, now_ns: int) -> list[Effect]:
        """Its connection is lost. What it asked for is not repeated: it asks again itself, if it comes back."""
        memory = self.entities.left(entity_of(session), session.port, now_ns)
        if memory is None:
            return []
        if not session.leaves:
            return self._send(Left(entity=memory.entity))
        self.entities.forget(memory)
        if self.leader is None:
            self._gone[memory.entity.name] = memory.entity
        return self._send(Left(entity=memory.entity, gone=True))

    def ask(self, kind: Callable[..., Request], then: Then, now_ns: int, **fields: Any) -> list[Effect]:
        """Ask the broker that leads, now or as soon as there is one; `then` gets its answer, or Failed."""
        self._number += 1
        message = kind(id=self._number, **fields)
        self._asked[message.id] = _Asked(message, then, now_ns)
        if self.leader is not None:  # else whoever leads next gets everything that has no answer
            self._queue.append(message.id)
        return self._more(now_ns)

    def flush(self) -> list[Effect]:
        """What the broker that leads is to search for from now on."""
        return [Send(self.leader, message) for message in self.search.take()] if self.leader is not None else []

    def rows(self) -> list[dict[str, Any]]:
        """One row a broker process, for `List(what="broker")`."""
        found = [
            {"name": broker.name, "role": self.role, "state": broker.state, "epoch": broker.epoch,
             "leads": port == self.leader, "waiting": len(self._asked) if port == self.leader else 0}
            for port, broker in sorted(self._brokers.items(), key=lambda item: item[1].name)
        ]  # fmt: skip
        if found:
            return found
        return [{"name": "", "role": self.role, "state": "away", "epoch": self.epoch, "leads": False,
                 "waiting": len(self._asked)}]  # fmt: skip

    def _join(self) -> Join:
        return Join(
            router=self._router, issuer=self._process, epoch=self.epoch, entities=self.entities.attached(),
            links=tuple(sorted(self._sessions.neighbours())),
        )  # fmt: skip

    def _lost(self, port: int, now_ns: int) -> None:
        if self.leader == port:
            self.leader, self._leaderless_ns = None, now_ns
            self._queue.clear()
            self.search.lost()

    def _more(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._under_way and now_ns - self._asked[next(iter(self._under_way))].sent_ns >= SLOW_NS:
            del self._under_way[next(iter(self._under_way))]
        while self.leader is not None and self._queue and len(self._under_way) < UNDER_WAY:
            number = self._queue.popleft()
            asked = self._asked.get(number)
            entity: Entity | None = getattr(asked.message, "entity", None) if asked is not None else None
            if entity is not None and not self.entities.attached_as(entity):
                del self._asked[number]
            elif asked is not None:
                asked.sent_ns = now_ns
                self._under_way[number] = None
                effects.append(Send(self.leader, asked.message))
        return effects

    def _send(self, message: Message) -> list[Effect]:
        return [Send(self.leader, message)] if self.leader is not None else []


def passed_on(answer: Answer, number: int) -> Answer:
    """The same answer to the request of a client."""
    return msgspec.structs.replace(answer, id=number)


def subscription_of(session: Session, request: Watch) -> SubscribeRequest:
    """What its broker is asked for when a client asks for that watch."""
    return SubscribeRequest(
        id=0, entity=entity_of(session), publisher=request.publisher, variable=request.variable,
        type=request.type, qos=terms_of(request), modes=request.modes, wait_ns=request.wait_ns,
    )  # fmt: skip
