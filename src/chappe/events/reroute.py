"""Events that a lost neighbour had not passed on, or that had no route: each gets another, or waits for one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from chappe.engine._engine import Engine
from chappe.engine.routes import ForwardingDecision, Undelivered
from chappe.events.forwarding import ForwardingTable, NextHops

Decision = Callable[[NextHops, str, bytes], ForwardingDecision]  # with the kind of the topic, and the topic

EACH_BYTES = 400  # what an event that waits takes besides its own bytes
AGAIN_NS = 250_000_000  # what waits is tried again after this time, twice that, and so on, if the map stays as it is
SELDOM_NS = 4_000_000_000
PATIENCE_NS = 1_000_000_000  # what was planned anew again and again waits so long at most before it is once more
FAR_NS = 1 << 62
NOWHERE = -1  # port of events that no neighbour was lost with


@dataclass(slots=True, eq=False)
class _Undeliverable:
    event: Undelivered
    port: int
    until_ns: int
    waits: bool = True

    @property
    def size(self) -> int:
        return len(self.event.frame) + EACH_BYTES


class Reroute:
    """Works through the queues of lost neighbours in slices, oldest events first.

    What has no route waits, together with all that has the same one, so that a change of the map costs one question for
    each of these routes and not for each event.
    """

    def __init__(
        self,
        engine: Engine,
        forwarding: ForwardingTable,
        decision: Decision,
        undeliverable_ns: int,
        undeliverable_bytes: int,
        slice: int,
    ) -> None:
        self._engine = engine
        self._forwarding = forwarding
        self._decision = decision
        self._undeliverable_ns = undeliverable_ns
        self._limit = undeliverable_bytes
        self._slice = slice
        self._lost: dict[int, str] = {}  # ports whose queues are not empty yet, and who was there
        self._order: deque[_Undeliverable] = deque()  # by age, with some that wait no more
        self._by_route: dict[bytes, deque[_Undeliverable]] = {}
        self._due: dict[bytes, None] = {}  # routes to try again
        self._not_before: dict[bytes, int] = {}  # routes that were given again and again, and led nowhere
        self._again: dict[bytes, tuple[int, int]] = {}  # when each is tried again though the map stays, and the pause
        self._bytes = 0
        self._kept: Counter[int] = Counter()  # how many wait, by port
        self.next_ns = FAR_NS  # when to try again what waits
        self.waiting = 0  # events that have no route at the moment
        self.rerouted = 0
        self.expired = 0  # waited for too long
        self.crowded = 0  # the oldest, when there was no room for more

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do at once."""
        return bool(self._lost) or bool(self._due)

    @property
    def dropped(self) -> int:
        """Events that were given up."""
        return self.expired + self.crowded

    def begin(self, port: int, name: str) -> None:
        """That neighbour is lost."""
        self._lost[port] = name

    def arrived(self, now_ns: int) -> None:
        """Keep what came or was published while there was no route to some of its destinations."""
        for event in self._engine.take_undeliverable():
            self._keep(_Undeliverable(event, NOWHERE, now_ns + self._undeliverable_ns), now_ns)

    def returned(self, port: int) -> None:
        """The neighbour is there again: what found no other route in between takes its old one."""
        self._lost.pop(port, None)
        for source_route, group in list(self._by_route.items()):
            del self._by_route[source_route]
            for each in group:
                if each.port != port:
                    self._by_route.setdefault(source_route, deque()).append(each)
                    continue
                self._engine.reroute(each.event, [(port, source_route)])
                self.rerouted += 1
                self._settle(each)

    def work(self, now_ns: int) -> None:
        """The next slice."""
        left = self._slice
        for port in sorted(self._lost):
            left -= self._work(port, now_ns)
            if left <= 0:
                return
        while self._due and left > 0:
            source_route = next(iter(self._due))
            left -= self._retry(source_route, left)

    def finish(self, port: int, now_ns: int) -> None:
        """All of that port, which will not be there any more."""
        while port in self._lost and self._work(port, now_ns):
            pass
        for each in self._order:
            if each.port == port:
                each.port = NOWHERE  # another neighbour may get the number
        self._kept[NOWHERE] += self._kept.pop(port, 0)

    def _work(self, port: int, now_ns: int) -> int:
        events = self._engine.take_unconfirmed(port, self._slice)
        name = self._lost[port]
        if not events:
            del self._lost[port]
            if not self._kept[port]:
                self._engine.forget_undelivered(port)
        for event in events:
            hops = self._forwarding.reroute(event.source_route, name if event.received else "")
            self._send(event, hops)
            if hops.rest:
                kept = event._replace(source_route=hops.rest)
                self._keep(_Undeliverable(kept, port, now_ns + self._undeliverable_ns), now_ns)
        return len(events)

    def retry(self, now_ns: int) -> None:
        """Routes have changed: try those that wait again, but for those that were to wait longer."""
        waits = {
            source_route: when
            for source_route, when in self._not_before.items()
            if when > now_ns and source_route in self._by_route
        }
        self._not_before = waits
        self._due = {source_route: None for source_route in self._by_route if source_route not in waits}
        self._plan()

    def again(self, now_ns: int) -> None:
        """It is time to try some again though routes have not changed: another map may have been wrong.

        Each route has a pause of its own: one that leads nowhere for long does not keep others waiting.
        """
        for source_route in self._by_route:
            when_ns, pause_ns = self._again.get(source_route, (0, AGAIN_NS))
            when_ns = max(when_ns, self._not_before.get(source_route, 0))
            if when_ns <= now_ns:
                self._due[source_route] = None
                self._again[source_route] = now_ns + pause_ns, min(2 * pause_ns, SELDOM_NS)
        self._plan()

    def _plan(self) -> None:
        """When the next of those that wait is tried again."""
        self._again = {source_route: self._again[source_route] for source_route in self._by_route}
        self._not_before = {
            source_route: when for source_route, when in self._not_before.items() if source_route in self._by_route
        }
        times = (
            max(when_ns, self._not_before.get(source_route, 0)) for source_route, (when_ns, _) in self._again.items()
        )
        self.next_ns = min(times, default=FAR_NS)

    def _retry(self, source_route: bytes, limit: int) -> int:
        """Send up to so many of those that wait with that route wherever there is one now; how many were looked at."""
        group = self._by_route.get(source_route)
        if group is None:
            del self._due[source_route]
            return 0
        hops = self._forwarding.reroute(source_route)
        if not hops.branches and hops.rest:
            del self._due[source_route]
            return 1
        # One part of a unit may be reached and the others not: then all of them wait on as they did.
        looked = min(limit, len(group)) if hops.rest != source_route else len(group)
        for _ in range(looked):
            each = group.popleft()
            self._send(each.event, hops)
            if hops.rest:
                each.event = each.event._replace(source_route=hops.rest)
                self._by_route.setdefault(hops.rest, deque()).append(each)
                self._again.setdefault(hops.rest, self._again[source_route])
            else:
                self._settle(each)
        if not group:
            del self._by_route[source_route]
        if not group or hops.rest == source_route:
            del self._due[source_route]
        return looked

    def expire(self, now_ns: int) -> None:
        """Give up what has waited for too long."""
        while self._order and (not self._order[0].waits or self._order[0].until_ns <= now_ns):
            each = self._order.popleft()
            if each.waits:
                self.expired += 1
                self._give_up(each, waited=True)

    def _send(self, event: Undelivered, hops: NextHops) -> None:
        if hops.branches:
            self._engine.reroute(event, self._decision(hops, event.kind, event.topic).next_hops)
            self.rerouted += 1

    def _keep(self, undeliverable: _Undeliverable, now_ns: int) -> None:
        source_route = undeliverable.event.source_route
        if source_route not in self._by_route:
            self._again[source_route] = now_ns + AGAIN_NS, 2 * AGAIN_NS
            self.next_ns = min(self.next_ns, now_ns + AGAIN_NS)
        patience = self._forwarding.patience(source_route)
        if patience and self._not_before.get(source_route, 0) <= now_ns:
            self._not_before[source_route] = now_ns + min(AGAIN_NS << (patience - 1), PATIENCE_NS)
        self._order.append(undeliverable)
        self._by_route.setdefault(undeliverable.event.source_route, deque()).append(undeliverable)
        self._bytes += undeliverable.size
        self._kept[undeliverable.port] += 1
        self.waiting += 1
        while self._bytes > self._limit:
            each = self._order.popleft()
            if each.waits:
                self.crowded += 1
                self._give_up(each, waited=False)

    def _give_up(self, each: _Undeliverable, *, waited: bool) -> None:
        source_route = each.event.source_route
        self._by_route[source_route].remove(each)
        if not self._by_route[source_route]:
            del self._by_route[source_route]
        self._engine.drop_undelivered(each.event, waited)
        self._settle(each)

    def _settle(self, each: _Undeliverable) -> None:
        """It waits no more."""
        each.waits = False
        self._bytes -= each.size
        self._kept[each.port] -= 1
        if not self._kept[each.port]:
            del self._kept[each.port]
            if each.port not in self._lost:
                self._engine.forget_undelivered(each.port)
        self.waiting -= 1
        if not self.waiting:
            self._order.clear()
            self._again.clear()
            self.next_ns = FAR_NS
