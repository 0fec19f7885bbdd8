"""Paths between clouds: found by the lowest common ancestor, asked of every broker on the path, then decided (GS-087).

A subscription is described by the publisher's leaf, planned over the whole map, and asked of all at once: of leaves for
their segments, of inner brokers below for the channels they manage. One that refuses names the obstacle;
everything is given back and another plan leaves that out. Any number of subscriptions are under way at the same time up
to a window, others wait for their turn: so that no answer is late only because thousands were asked for before it. What
a plan needs of the own channels is reserved while others are asked.
"""

from __future__ import annotations

from collections import deque

import msgspec

from chappe.machine import NEVER
from chappe.status.allocation.allocation import Allocator
from chappe.status.allocation.demands import Demand, Plan, Refusal
from chappe.status.inner.calls import AWAY, Calls
from chappe.status.inner.claims import Claims
from chappe.status.inner.decisions import Decision, DecisionItem, Decisions
from chappe.status.inner.netview import NetView
from chappe.status.leaf.subscriptions import as_asked, by_mode
from chappe.status.machine import PARENT, Address
from chappe.status.outbox import Outbox
from chappe.wire.base import Done, Failed, Message, Variable
from chappe.wire.management import Ask, Describe, Described, Granted, Outcome, Seek, Unseek

ATTEMPTS = 8
WINDOW = 64  # subscriptions under way at the same time
ANSWER_NS = 10_000_000_000  # a child that is connected and says nothing

QUEUED, DESCRIBE, ASK, COMMIT, WAIT, ABOVE = "queued", "describe", "ask", "commit", "wait", "above"


class InterCloudRequest(msgspec.Struct):
    """A subscription that is neither granted nor refused yet."""

    seek: Seek
    asker: Address
    number: int  # of the request that is to be answered
    until_ns: int  # how long it waits for the end of what its key had before
    state: str = QUEUED
    attempt: int = 0
    avoid: set[str] = msgspec.field(default_factory=set)
    refused: str = ""  # what the last broker said that was asked in vain
    obstacle: str = ""  # and what it named
    asked: set[str] = msgspec.field(default_factory=set)  # brokers that may have a reservation
    missing: set[str] = msgspec.field(default_factory=set)  # of these, without an answer
    source: str = ""
    item: DecisionItem | None = None

    @property
    def key(self) -> str:
        return self.seek.subscription


class InterCloudSubscriptions:
    """All inter-cloud subscriptions that pass here: allocated by this broker, or by one above."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, allocator: Allocator, claims: Claims,
                 has_parent: bool) -> None:  # fmt: skip
        self._out = out
        self._calls = calls
        self._view = view
        self._allocator = allocator
        self._claims = claims
        self._has_parent = has_parent
        self._pending: dict[str, InterCloudRequest] = {}
        self._waiting: dict[str, InterCloudRequest] = {}
        self._queue: deque[InterCloudRequest] = deque()
        self._running: set[str] = set()  # keys of those between their turn and their end
        self.decisions = Decisions(out, calls, view, allocator, self._concluded)

    # --- what neighbours ask -------------------------------------------------------------------------------------

    def seek(self, source: Address, seek: Seek, now_ns: int) -> None:
        """A leaf below asks for a path from another cloud; the same again gets the same answer."""
        under_way = self._pending.get(seek.subscription)
        decision = self.decisions.all.get(seek.subscription)
        before = under_way.seek if under_way is not None else None
        if before is None and decision is not None and not decision.ended:
            before = decision.item.seek
        if before is not None and not _same(before, seek):
            reason = f"the subscription {seek.subscription} has another quality; seek it under another key, then end it"
            self._out.send(source, Failed(id=seek.id, reason=reason, code="exists"))
        elif under_way is not None:
            under_way.asker, under_way.number = source, seek.id
        else:
            pending = InterCloudRequest(seek, source, seek.id, now_ns + ANSWER_NS)
            self._pending[pending.key] = pending
            self._queue.append(pending)
            self.proceed(now_ns)

    def proceed(self, now_ns: int) -> None:
        """Begin with those whose turn it is."""
        self._look()
        while self._queue and len(self._running) < WINDOW:
            pending = self._queue.popleft()
            if self._pending.get(pending.key) is pending:
                self._running.add(pending.key)
                pending.until_ns = now_ns + ANSWER_NS
                self._begin(pending, self.decisions.all.get(pending.key), now_ns)
                self._look()

    def _look(self) -> None:
        """Forget those that have ended: of a window of them, whatever the number that waits."""
        self._running = {key for key in self._running if key in self._pending}

    def _begin(self, pending: InterCloudRequest, decision: Decision | None, now_ns: int) -> None:
        if decision is None:
            self._describe(pending, now_ns)
        elif decision.ended:
            pending.state = WAIT
            self._waiting[pending.key] = pending
            self._running.discard(pending.key)
        else:
            pending.state = COMMIT
            self.decisions.confirm(decision, now_ns)
            if not decision.open:
                self._concluded(decision, None, now_ns)

    def unseek(self, source: Address, request: Unseek, now_ns: int) -> None:
        """A leaf on the path ends a subscription: the subscriber's, or another one where it begins or passes."""
        request.cloud = request.cloud or source.removeprefix("child/")
        pending = self._pending.get(request.subscription)
        decision = self.decisions.all.get(request.subscription)
        if decision is None and (pending is None or pending.state in (ABOVE, QUEUED)) and self._has_parent:
            if pending is not None and pending.state == QUEUED:  # it may have been allocated above before
                self._refuse(pending, Failed(id=0, reason="ended meanwhile", code="stale"))
            self._relay_end(source, request, now_ns)
            return
        reason = request.reason or "unsubscribed"
        if pending is not None:
            if pending.state == ASK:
                self._give_back(pending, now_ns)
            self._refuse(pending, Failed(id=0, reason=f"ended meanwhile: {reason}", code="stale"))
        if decision is not None:
            self.decisions.end(decision, reason, request.cloud, now_ns)
        self._out.send(source, Done(id=request.id))

    def _relay_end(self, source: Address, request: Unseek, now_ns: int) -> None:
        number = request.id

        def answer(message: Message, now_ns: int) -> None:
            self._out.send(source, Done(id=number) if isinstance(message, Done) else _numbered(message, number))

        self._calls.call(PARENT, request, answer, now_ns, kept=True)

    def outcome(self, source: Address, request: Outcome, now_ns: int) -> None:
        """A leaf asks for the outcome of its reservation: it gets no answer while that is not decided."""
        request.cloud = request.cloud or source.removeprefix("child/")
        pending = self._pending.get(request.subscription)
        if pending is not None and pending.state == ASK and request.cloud in pending.asked:
            return
        known = request.subscription in self.decisions.all or (pending is not None and pending.state != ABOVE)
        if known or not self._has_parent:
            self.decisions.report(request.subscription, request.cloud, now_ns)
        elif self._calls.parent_up:
            self._out.send(PARENT, request)

    # --- finding out ----------------------------------------------------------------------------------------------

    def _describe(self, pending: InterCloudRequest, now_ns: int) -> None:
        subscribe = pending.seek.request
        cloud = self._claims.cloud(subscribe.publisher)
        if not cloud:
            if self._has_parent:
                self._above(pending, now_ns)
            else:
                reason = f"nobody publishes under the name {subscribe.publisher}; correct the name or wait for it"
                self._refuse(pending, Failed(id=0, reason=reason, code="unknown"))
            return
        child = self._view.reached(cloud)
        if not child:
            reason = f"the broker {cloud} of the publisher {subscribe.publisher} is not connected"
            self._refuse(pending, Failed(id=0, reason=reason, code="unavailable"))
            return
        pending.state, pending.seek.claimed = DESCRIBE, cloud

        def answer(message: Message, now_ns: int) -> None:
            if self._pending.get(pending.key) is pending:
                self._described(pending, message, now_ns)

        request = Describe(id=0, publisher=subscribe.publisher, variable=subscribe.variable, cloud=cloud)
        self._calls.call(f"child/{child}", request, answer, now_ns, ANSWER_NS)

    def _above(self, pending: InterCloudRequest, now_ns: int) -> None:
        """Not below here: the parent decides, as soon as there is one; it may have begun to before."""
        pending.state = ABOVE
        self._running.discard(pending.key)

        def answer(message: Message, now_ns: int) -> None:
            if self._pending.get(pending.key) is pending:
                del self._pending[pending.key]
                self._out.send(pending.asker, _numbered(message, pending.number))

        self._calls.call(PARENT, msgspec.structs.replace(pending.seek), answer, now_ns, kept=True)

    def next_tick(self) -> int:
        waiting = min((pending.until_ns for pending in self._waiting.values()), default=NEVER)
        return min(self.decisions.next_tick(), waiting)

    def tick(self, now_ns: int) -> None:
        self.decisions.tick(now_ns)
        self.proceed(now_ns)
        for pending in [pending for pending in self._waiting.values() if now_ns >= pending.until_ns]:
            reason = "what this subscription had before is still being removed: a broker on its way is away"
            self._refuse(pending, Failed(id=0, reason=reason, code="unavailable"))

    def _described(self, pending: InterCloudRequest, message: Message, now_ns: int) -> None:
        subscribe = pending.seek.request
        match message:
            case Failed():
                self._refuse(pending, message)
            case Described() if subscribe.type not in ("", message.variable.type):
                name = f"{subscribe.publisher}/{subscribe.variable}"
                reason = f"{name} is of the type {message.variable.type}, not {subscribe.type}"
                self._refuse(pending, Failed(id=0, reason=reason, code="type"))
            case Described():
                pending.source = message.edge
                self._plan(pending, message.variable, now_ns)

    # --- asking ---------------------------------------------------------------------------------------------------

    def _plan(self, pending: InterCloudRequest, variable: Variable, now_ns: int) -> None:
        subscribe = pending.seek.request
        demand = Demand(variable, pending.source, pending.seek.edge, by_mode(subscribe.qos, subscribe.modes))
        while True:
            plan = self._allocator.plan(demand, frozenset(pending.avoid))
            if isinstance(plan, Refusal):
                self._fail(pending, plan)
                return
            refusal = self._allocator.reserve(pending.key, variable, plan.routes, plan.grants)
            if refusal is None:
                break
            if not self._another(pending, {refusal.obstacle}, refusal.reason):
                self._fail(pending, refusal)
                return
        self._ask(pending, variable, plan, now_ns)

    def _ask(self, pending: InterCloudRequest, variable: Variable, plan: Plan, now_ns: int) -> None:
        segments = self._view.segments(plan.routes)
        pending.state, pending.asked, pending.missing = ASK, set(segments), set(segments)
        pending.item = DecisionItem(
            seek=pending.seek,
            variable=variable,
            grants=plan.grants,
            routes=tuple((route.routers, route.redundant, route.modes) for route in plan.routes),
            clouds=tuple(segments),
        )
        attempt = pending.attempt
        for cloud, pieces in segments.items():

            def answer(message: Message, now_ns: int, cloud: str = cloud) -> None:
                current = self._pending.get(pending.key) is pending and pending.state == ASK
                if current and pending.attempt == attempt:
                    self._asked(pending, cloud, message, now_ns)

            request = Ask(id=0, subscription=pending.key, variable=variable, grants=plan.grants,
                          segments=tuple(pieces), cloud=cloud)  # fmt: skip
            self._calls.call(f"child/{self._view.child_of(cloud)}", request, answer, now_ns, ANSWER_NS)

    def _asked(self, pending: InterCloudRequest, cloud: str, message: Message, now_ns: int) -> None:
        assert pending.item is not None
        if isinstance(message, Failed):
            variable, obstacles = pending.item.variable, {message.obstacle}
            if message.code == AWAY:
                obstacles = self._view.resources_of(cloud)
            else:
                pending.asked.discard(cloud)
            self._give_back(pending, now_ns)
            if self._another(pending, obstacles, message.reason):
                self._plan(pending, variable, now_ns)
            else:
                self._refuse(pending, message)
            return
        pending.missing.discard(cloud)
        if not pending.missing:
            pending.state = COMMIT
            self.decisions.decide(pending.item, now_ns)

    def _another(self, pending: InterCloudRequest, obstacles: set[str], reason: str) -> bool:
        """Whether another choice may do: what to leave out is known, is no end of the path, and was not tried."""
        pending.refused, pending.obstacle = reason, next(iter(obstacles)) if len(obstacles) == 1 else ""
        pending.attempt += 1
        ends = {"", f"router/{pending.source}", f"router/{pending.seek.edge}"}
        if pending.attempt >= ATTEMPTS or obstacles & ends or obstacles <= pending.avoid:
            return False
        pending.avoid |= obstacles
        return True

    def _give_back(self, pending: InterCloudRequest, now_ns: int) -> None:
        self._allocator.release(pending.key)
        for cloud in sorted(pending.asked):
            self.decisions.release(pending.key, cloud, "another path is tried, or none", now_ns)
        pending.asked = set()

    # --- answering -------------------------------------------------------------------------------------------------

    def _concluded(self, decision: Decision, failed: Failed | None, now_ns: int) -> None:
        pending = self._pending.get(decision.key)
        if pending is None:
            return
        if decision.ended:
            if self._waiting.pop(pending.key, None) is not None:
                self._describe(pending, now_ns)
        elif failed is not None:
            self._refuse(pending, failed)
        elif pending.state == COMMIT:
            del self._pending[pending.key]
            subscribe, item = pending.seek.request, decision.item
            granted = Granted(id=pending.number, variable=item.variable, grants=as_asked(item.grants, subscribe.qos),
                              modes=subscribe.modes)  # fmt: skip
            self._out.send(pending.asker, granted)

    def _fail(self, pending: InterCloudRequest, refusal: Refusal) -> None:
        reason = refusal.reason if not pending.refused else f"{refusal.reason}; left out before: {pending.refused}"
        best = as_asked(refusal.best, pending.seek.request.qos)
        obstacle = refusal.obstacle or pending.obstacle
        self._refuse(pending, Failed(id=0, reason=reason, code=refusal.code, best=best, obstacle=obstacle))

    def _refuse(self, pending: InterCloudRequest, failed: Failed) -> None:
        if failed.code == AWAY:
            failed.code = "unavailable"
        self._pending.pop(pending.key, None)
        self._waiting.pop(pending.key, None)
        self._out.send(pending.asker, _numbered(failed, pending.number))


def _same(one: Seek, other: Seek) -> bool:
    """Whether two ask for the same; the numbers of requests do not count."""
    mine, theirs = one.request, other.request
    return (one.edge, mine.publisher, mine.variable, mine.type, mine.qos, mine.modes) == (
        other.edge, theirs.publisher, theirs.variable, theirs.type, theirs.qos, theirs.modes)  # fmt: skip


def _numbered(message: Message, number: int) -> Message:
    """The answer that one neighbour gave, under the number of another's request."""
    return msgspec.structs.replace(message, id=number)
