"""Requests of clients about variables: answered here, or by the broker of a managed node (GS-080)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from chappe.core.answers import failed, unknown
from chappe.core.directory import Entry
from chappe.core.edge import Edge, Then, entity_of, passed_on, subscription_of
from chappe.core.entities import Memory
from chappe.core.fallbacks import Fallbacks
from chappe.core.grants import Terms, grants_of, local_grants
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.variables import Variables
from chappe.core.waiting import Name, Waiting, WaitingWatches
from chappe.machine import RECONNECT, Close, Effect, Send
from chappe.security.patterns import variable_address
from chappe.wire import control, management
from chappe.wire.control import Answer, Failed, Grant, Request, Variable
from chappe.wire.management import SubscribeRequest

ANSWERED_AT_ONCE = 50  # watches in one turn of the loop, when their variable appears
EXPIRED_AT_ONCE = 200  # in one tick, when it does not
MAX_PENDING = 10_000  # watches of one client that wait for their variable or for a broker, and other requests that do


class Registrations:
    """Registers and watches variables for clients whose right to do so was checked.

    In a managed node a request goes to the broker first and its answer is carried out here. What a client has already
    (its link had failed, it comes back with the same session) is answered at once. A variable that the broker does not
    know is looked for in the mesh, if the node is in one; it is the broker's from the moment that it knows it.
    """

    def __init__(
        self, variables: Variables, edge: Edge | None, sessions: Sessions, mode: Callable[[], int], meshed: bool
    ) -> None:  # fmt: skip
        self.edge = edge
        self._fallbacks = Fallbacks(edge.search) if edge is not None and meshed else None
        self._variables = variables
        self._sessions = sessions
        self._mode = mode
        self._waiting = WaitingWatches(self._seek)
        self._arrived: deque[list[Waiting]] = deque()  # whose variable is there

    # --- publishing

    def register(self, session: Session, request: control.Register, now_ns: int) -> list[Effect]:
        wanted = Variable(
            0, request.publisher, request.variable, request.type, request.rate_num, request.rate_den, request.priority,
            request.options, request.slowest_ns, request.patterns, request.minimum_ns,
        )  # fmt: skip
        entry = self._variables.directory.named(request.publisher, request.variable)
        if entry is not None and entry.owner != session.port and self._sessions.get(entry.owner) is not None:
            reason = f"{entry.owner_name} publishes {'/'.join(entry.name)} already"
            return [failed(session.port, request, "exists", reason)]
        edge = self._edge_for(session)
        if session.internal and entry is not None:
            return self._registered(session, request, entry.variable)  # as the broker has placed it
        if edge is None:
            return self._registered(session, request, wanted)
        published = self._memory(edge, session).published
        known = published.get((request.publisher, request.variable))
        if known is not None:
            wanted.variable_id = known.variable_id
            if known == wanted:
                return self._registered(session, request, wanted)
            wanted.variable_id = 0
            del published[request.publisher, request.variable]  # until the broker has said which of them counts

        def then(answer: Answer) -> list[Effect]:
            if not isinstance(answer, management.Issued):
                if known is not None:
                    self._memory(edge, session).published[request.publisher, request.variable] = known
                return self._pass_on(session, answer, request.id)
            wanted.variable_id = answer.variable_id
            self._memory(edge, session).published[request.publisher, request.variable] = wanted
            return self._registered(session, request, wanted) if self._here(session) else []

        return self._ask(edge, session, request, management.Publish, then, now_ns, variable=wanted)

    def withdraw(self, session: Session, request: control.Withdraw, now_ns: int) -> list[Effect]:
        number = request.variable_id
        if number not in session.variables:
            reason = f"variable {number:#x} is not registered by you"
            return [failed(session.port, request, "unknown", reason)]
        edge = self._edge_for(session)
        if edge is None:
            ended = self._end_watches(number, "its publisher withdrew it")
            self._withdraw(session, number, now_ns)
            return [Send(session.port, control.Done(id=request.id)), *ended]

        def then(answer: Answer) -> list[Effect]:
            if isinstance(answer, Failed) and answer.code != "unknown":
                return self._pass_on(session, answer, request.id)
            entry = self._variables.directory.numbered(number)
            if entry is not None:
                self._memory(edge, session).withdraw(entry.variable)
            self._withdraw(session, number, now_ns)
            return self._pass_on(session, control.Done(id=0), request.id)

        return self._ask(edge, session, request, management.Unpublish, then, now_ns, variable_id=number)

    # --- watching

    def watch(self, session: Session, request: control.Watch, now_ns: int) -> list[Effect]:
        edge = self._edge_for(session)
        if edge is not None:
            return self._want(session, request, edge, now_ns)
        entry = self._variables.directory.named(request.publisher, request.variable)
        if entry is not None:
            return self._watch_here(session, request, entry)
        if request.wait_ns <= 0 or session.waiting >= MAX_PENDING:
            return [unknown(session.port, request)]
        self._waiting.add(session, request, now_ns)
        return []

    def _seek(self, name: Name, on: bool) -> None:
        """Look for a variable that somebody waits for, or no more."""
        self._variables.seek(variable_address(*name), on)
        if self.edge is not None and self._fallbacks is not None:
            self.edge.search.await_name(name, on)

    def unwatch(self, session: Session, request: control.Unwatch, now_ns: int) -> list[Effect]:
        number = request.variable_id
        if number not in session.watched:
            reason = f"variable {number:#x} is not watched by you"
            return [failed(session.port, request, "unknown", reason)]
        edge = self._edge_for(session)
        if edge is None or (self._fallbacks is not None and self._fallbacks.has(session.port, number)):
            self._unwatch(session, number)
            return [Send(session.port, control.Done(id=request.id))]

        def then(answer: Answer) -> list[Effect]:
            if isinstance(answer, Failed) and answer.code != "unknown":
                return self._pass_on(session, answer, request.id)
            self._memory(edge, session).release(number)
            self._unwatch(session, number)
            return self._pass_on(session, control.Done(id=0), request.id)

        return self._ask(edge, session, request, management.UnsubscribeRequest, then, now_ns, variable_id=number)

    def appeared(self, entry: Entry) -> list[Effect]:
        """Answer the watches that waited for a variable: some now, the others by `work`."""
        # What a client registered at a managed node is the broker's, which names it.
        ready = [
            item for item in self._waiting.of(entry.name) if entry.inputs or self._edge_for(item.session) is None
        ]  # fmt: skip
        if not ready:
            return []
        address = variable_address(*entry.name)
        self._variables.seek(address, True)  # who watches it now looks for it, too
        self._arrived.append(ready)
        effects = self.work()
        self._variables.seek(address, False)
        return effects

    def named(self, names: Iterable[Name], now_ns: int) -> list[Effect]:
        """The broker knows these: it is asked for those that clients wait for, or watch without a promise."""
        if self.edge is None or self._fallbacks is None:
            return []
        effects: list[Effect] = []
        for name in names:
            for item in self._waiting.of(name):
                if not item.asked and not item.session.internal and self._here(item.session):
                    item.asked = True
                    effects += self._ask_known(item.session, item.request, self.edge, now_ns, item)
            for port, request in self._fallbacks.requests(name):
                session = self._sessions.get(port)
                if session is not None:
                    effects += self._ask_known(session, request, self.edge, now_ns)
        return effects

    def _ask_known(
        self, session: Session, request: control.Watch, edge: Edge, now_ns: int, item: Waiting | None = None
    ) -> list[Effect]:
        """Ask the broker for what it did not know before; what it refuses goes on without a promise.

        A client to which the variable comes by another id connects again, and watches it as what it is now.
        """
        want = subscription_of(session, request)

        def then(answer: Answer) -> list[Effect]:
            if item is not None:
                item.asked = False
                if isinstance(answer, Failed) and answer.code == "unknown":
                    return []  # it may come yet
                if self._waiting.remove(item):
                    return self._decided(session, request, want, edge, answer)
            if not isinstance(answer, management.Granted):
                return []
            assert self._fallbacks is not None
            name, number = (want.publisher, want.variable), answer.variable.variable_id
            memory, here = self._memory(edge, session), self._here(session)
            before = self._fallbacks.number(session.port, name) if here else 0
            if here and not before and name not in memory.wanted and name not in session.wanting:  # it gave it up
                return edge.ask(
                    management.UnsubscribeRequest, lambda answer: [], now_ns, entity=want.entity, variable_id=number
                )
            if before == number:
                again = msgspec.structs.replace(request, id=0)  # a notice: it has other grants
                return self._decided(session, again, want, edge, answer)
            memory.grant(name, want, answer)  # it has asked for it anew, or will when it is back: it has only one
            reason = f"{want.publisher}/{want.variable} has a new id; connect again"
            return [Close(session.port, reason, RECONNECT)] if before else []

        return edge.ask(partial(msgspec.structs.replace, want, wait_ns=0), then, now_ns)

    def gone(self, session: Session) -> None:
        """Its connection is over."""
        if self._fallbacks is not None:
            self._fallbacks.gone(session.port)

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._arrived)

    def work(self) -> list[Effect]:
        """Answer some of the watches whose variable has appeared."""
        effects: list[Effect] = []
        left = ANSWERED_AT_ONCE
        while self._arrived and left:
            waiting = self._arrived[0]
            while waiting and left:
                left -= 1
                item = waiting.pop()
                if not self._waiting.remove(item) or not self._here(item.session):
                    continue
                entry = self._variables.directory.named(*item.name)
                if entry is None or not (entry.inputs or self._edge_for(item.session) is None):
                    effects.append(unknown(item.session.port, item.request))
                else:
                    effects += self._watch_here(item.session, item.request, entry)
            if not waiting:
                self._arrived.popleft()
        return effects

    @property
    def awaited(self) -> bool:
        """Whether any watch waits for its variable."""
        return bool(self._waiting)

    # --- functions

    def condense(self, session: Session, request: management.Condense, now_ns: int) -> list[Effect]:
        return self._place(session, request, management.Condense, now_ns, function=request.function)

    def uncondense(self, session: Session, request: management.Uncondense, now_ns: int) -> list[Effect]:
        names = {"publisher": request.publisher, "variable": request.variable}
        return self._place(session, request, management.Uncondense, now_ns, **names)

    def _place(
        self, session: Session, request: Request, kind: Callable[..., Request], now_ns: int, **fields: Any
    ) -> list[Effect]:
        edge = self._edge_for(session)
        if edge is None:
            return [failed(session.port, request, "unsupported", "no broker manages this node: it places no functions")]
        return self._ask(
            edge, session, request, kind, lambda answer: self._pass_on(session, answer, request.id), now_ns, **fields
        )  # fmt: skip

    # --- what comes by itself

    def withdrawn(self, notice: management.Withdrawn) -> list[Effect]:
        """Subscriptions that a broker has ended: their clients are notified (GS-053)."""
        assert self.edge is not None
        effects: list[Effect] = []
        for memory in self.edge.entities.withdrawn(notice.variable_id, notice.entities):
            session = self._sessions.get(memory.port)
            if session is not None and notice.variable_id in session.watched:
                self._unwatch(session, notice.variable_id)
                notice_ = management.Withdrawn(variable_id=notice.variable_id, reason=notice.reason)
                effects.append(Send(session.port, notice_))
        return effects

    def regranted(self, notice: management.Regranted) -> list[Effect]:
        """A publisher has another rate: its watches go on with the grants that follow from it (GS-073)."""
        assert self.edge is not None
        number = notice.variable.variable_id
        effects: list[Effect] = []
        for memory in self.edge.entities.regranted(notice):
            session = self._sessions.get(memory.port)
            entry = self._variables.directory.numbered(number)
            if session is None or number not in session.watched or entry is None:
                continue
            try:
                terms = grants_of(notice.grants, notice.modes)
                entry = self._variables.enter(notice.variable)
                every = self._variables.retune(entry, session.port, terms.intervals_ns, terms.priorities, terms.modes)
            except ValueError:
                continue  # the table refuses that rate, and so does the path that brings the variable here
            effects.append(Send(session.port, self._watching(0, notice.variable, every, notice.grants)))
        return effects

    def _end_watches(self, number: int, reason: str) -> list[Effect]:
        """Without a broker: those who watch it here are notified that it is over."""
        entry = self._variables.directory.numbered(number)
        sessions = [self._sessions.get(port) for port in list(entry.watchers)] if entry is not None else []
        effects: list[Effect] = []
        for session in sessions:
            if session is not None and number in session.watched:
                self._unwatch(session, number)
                effects.append(Send(session.port, management.Withdrawn(variable_id=number, reason=reason)))
        return effects

    def leave(self, session: Session, now_ns: int) -> None:
        """A client ends in good order: what it published ends here, its broker is notified when its connection ends."""
        if self._edge_for(session) is not None:
            for number in list(session.variables):
                self._withdraw(session, number, now_ns)

    def flush(self) -> list[Effect]:
        """What the broker is asked to search for."""
        return self.edge.flush() if self.edge is not None else []

    def tick(self, now_ns: int) -> list[Effect]:
        """Answer the watches whose time is over."""
        expired = self._waiting.expire(now_ns, EXPIRED_AT_ONCE)
        return [unknown(item.session.port, item.request) for item in expired if self._here(item.session)]

    def next_tick(self) -> int:
        """When the first wait is over."""
        return self._waiting.next_tick()

    # --- how it is done

    def _edge_for(self, session: Session) -> Edge | None:
        """Who answers; None: this node does, for everybody where it has no broker, and for its own workers."""
        return None if session.internal else self.edge

    def _ask(
        self, edge: Edge, session: Session, request: Request, kind: Callable[..., Request], then: Then, now_ns: int,
        **fields: Any,
    ) -> list[Effect]:  # fmt: skip
        """Ask the broker for a client, which may not have more than so many requests under way."""
        if session.asking >= MAX_PENDING:
            reason = f"{MAX_PENDING} requests wait for the broker already; wait for their answers"
            return [failed(session.port, request, "limit", reason)]
        session.asking += 1

        def answered(answer: Answer) -> list[Effect]:
            session.asking -= 1
            return then(answer)

        return edge.ask(kind, answered, now_ns, entity=entity_of(session), **fields)

    def _memory(self, edge: Edge, session: Session) -> Memory:
        """What is known of a client; of one that is forgotten already, nothing that stays."""
        entity = entity_of(session)
        return edge.entities.of(entity) or Memory(entity)

    def _here(self, session: Session) -> bool:
        return self._sessions.has(session)

    def _pass_on(self, session: Session, answer: Answer, number: int) -> list[Effect]:
        return [Send(session.port, passed_on(answer, number))] if self._here(session) else []

    def _registered(self, session: Session, request: control.Register, wanted: Variable) -> list[Effect]:
        try:
            entry = self._variables.register(session.port, session.name, wanted)
        except ValueError as error:
            return [failed(session.port, request, "invalid", str(error))]
        if entry is None:
            return [failed(session.port, request, "limit", "the ids of this node are used up")]
        session.variables.add(entry.variable.variable_id)
        answer = Send(session.port, control.Registered(id=request.id, variable_id=entry.variable.variable_id))
        return [answer, *self.appeared(entry)]

    def _withdraw(self, session: Session, number: int, now_ns: int) -> None:
        session.variables.discard(number)
        entry = self._variables.directory.numbered(number)
        if entry is not None and entry.owner in (session.port, -1):
            self._variables.withdraw(entry, now_ns)

    def _want(self, session: Session, request: control.Watch, edge: Edge, now_ns: int) -> list[Effect]:
        want = subscription_of(session, request)
        name = request.publisher, request.variable
        known = self._memory(edge, session).wanted.get(name)
        if known is not None and known[0] == want:
            return self._granted(session, request, known[1])
        if session.waiting >= MAX_PENDING:
            return [failed(session.port, request, "limit", f"{MAX_PENDING} watches wait for an answer already")]
        session.waiting += 1
        session.wanting[name] = request

        def then(answer: Answer) -> list[Effect]:
            session.waiting -= 1
            if session.wanting.get(name) is request:
                del session.wanting[name]
            if isinstance(answer, Failed) and answer.code == "unknown" and self._fallbacks is not None:
                return self._fall_back(session, request, answer, now_ns)
            return self._decided(session, request, want, edge, answer)

        # Where the node looks in the mesh, too, it is the node that waits: the broker names what comes.
        wait_ns = 0 if self._fallbacks is not None and edge.search.known else want.wait_ns
        return edge.ask(partial(msgspec.structs.replace, want, wait_ns=wait_ns), then, now_ns)

    def _decided(
        self, session: Session, request: control.Watch, want: SubscribeRequest, edge: Edge, answer: Answer
    ) -> list[Effect]:
        """The broker has granted a subscription or refused it."""
        if not isinstance(answer, management.Granted):
            return self._pass_on(session, answer, request.id)
        self._memory(edge, session).grant((request.publisher, request.variable), want, answer)
        return self._granted(session, request, answer) if self._here(session) else []

    def _fall_back(self, session: Session, request: control.Watch, answer: Failed, asked_ns: int) -> list[Effect]:
        """The broker does not know it: the mesh may, which promises nothing."""
        if not self._here(session):
            return []
        entry = self._variables.directory.named(request.publisher, request.variable)
        if entry is not None and entry.inputs:
            return self._watch_here(session, request, entry)
        if request.wait_ns <= 0 or session.waiting >= MAX_PENDING:
            return self._pass_on(session, answer, request.id)
        self._waiting.add(session, request, asked_ns)
        return []

    def _granted(self, session: Session, request: control.Watch, granted: management.Granted) -> list[Effect]:
        if self._fallbacks is not None:
            before = self._fallbacks.number(session.port, (request.publisher, request.variable))
            if before:  # it has been watching it without a promise
                self._unwatch(session, before)
        try:
            entry = self._variables.directory.numbered(granted.variable.variable_id)
            entry = entry or self._variables.enter(granted.variable)
            terms = grants_of(granted.grants, granted.modes)
        except ValueError as error:
            return [failed(session.port, request, "invalid", str(error))]
        return self._start(session, request, entry, terms, granted.grants, promised=True)

    def _watch_here(self, session: Session, request: control.Watch, entry: Entry) -> list[Effect]:
        variable = entry.variable
        if request.type and request.type != variable.type:
            reason = f"{'/'.join(entry.name)} is of type {variable.type}, not {request.type}"
            return [failed(session.port, request, "type", reason)]
        if not request.qos:
            terms = Terms([request.interval_ns], [request.priority], request.modes)
            return self._start(session, request, entry, terms, ())
        security = self._path_security(session, entry)
        grants = local_grants(variable, request.qos, security)
        if isinstance(grants, str):
            best = local_grants(variable, request.qos, security, whatever=True)
            assert not isinstance(best, str)
            return [Send(session.port, Failed(id=request.id, code="capacity", reason=grants, best=best))]
        return self._start(session, request, entry, grants_of(grants, request.modes), grants)

    def _path_security(self, session: Session, entry: Entry) -> int:
        """Of the links between publisher and subscriber, 0 if the publisher is not here: nobody knows the others."""
        owner = self._sessions.get(entry.owner)
        if entry.inputs or entry.sources or owner is None:
            return 0
        return min(session.security, owner.security)

    def _start(
        self, session: Session, request: control.Watch, entry: Entry, terms: Terms, grants: tuple[Grant | None, ...],
        promised: bool = False,
    ) -> list[Effect]:  # fmt: skip
        variable = entry.variable
        # What functions of a managed node need comes by paths of brokers, too.
        promised = promised or (session.internal and self.edge is not None)
        try:
            every = self._variables.watch(
                entry, session.port, terms.intervals_ns, terms.priorities, terms.modes, promised
            )
        except ValueError as error:
            return [failed(session.port, request, "invalid", str(error))]
        session.watched.add(variable.variable_id)
        if self._fallbacks is not None and not promised:
            self._fallbacks.add(session.port, request, variable.variable_id)
        return [Send(session.port, self._watching(request.id, variable, every, grants))]

    def _watching(
        self, request: int, variable: Variable, every: int, grants: tuple[Grant | None, ...]
    ) -> control.Watching:
        present = grants[self._mode()] if len(grants) > 1 else None
        return control.Watching(
            id=request, variable_id=variable.variable_id, type=variable.type, rate_num=variable.rate_num,
            rate_den=variable.rate_den, every=present.every if present is not None else every,
            options=variable.options, slowest_ns=variable.slowest_ns, patterns=variable.patterns, grants=grants,
        )  # fmt: skip

    def _unwatch(self, session: Session, number: int) -> None:
        session.watched.discard(number)
        if self._fallbacks is not None:
            self._fallbacks.discard(session.port, number)
        entry = self._variables.directory.numbered(number)
        if entry is not None:
            self._variables.unwatch(entry, session.port)
