"""Violations of the quality of watched streams: values that come late, and values that do not come (GS-045).

No clock and no loop in here: times are arguments, and `deadline_ns` says when `tick` has something to do. All watches
of a client share one heap; a value that comes in time only moves the expectation, not the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Generic, Literal, TypeVar

Key = TypeVar("Key", bound=Hashable)
SLACK_NS = 50_000_000  # for scheduling and clocks, beside half a publishing period of jitter


@dataclass(frozen=True, slots=True)
class Terms:
    """What a stream promises: one of `every` published values, each within the bound."""

    rate_num: int
    rate_den: int
    every: int
    slowest_ns: int = 0  # the publisher promises at least one value in so long; 0: by its rate
    bound_ns: int = 0  # from creation to reception; 0: none
    slack_ns: int | None = None

    @property
    def scale(self) -> int:
        """Instants are counted in so many parts of a nanosecond, in which the grid of the filter is whole numbers."""
        return self.rate_num or 1

    @property
    def interval(self) -> int:
        """Between two values that the watch must get, in parts; 0 where nothing is promised.

        A publisher that is as slow as it may be hits the grid of the filter only once in `every` of its values.
        """
        if self.rate_num == 0:
            return self.slowest_ns
        return self.every * max(self.rate_den, self.slowest_ns * self.rate_num)

    @property
    def tolerance_ns(self) -> int:
        """How long after its nominal time a value may come."""
        slack = SLACK_NS if self.slack_ns is None else self.slack_ns
        half = self.rate_den // (2 * self.rate_num) if self.rate_num else 0
        return self.bound_ns + slack + half

    def nominal(self, created_ns: int) -> int:
        """The instant on the filter's grid that a value belongs to, in parts (GS-060)."""
        if self.rate_num == 0:
            return created_ns
        period = (created_ns * self.rate_num + self.rate_den // 2) // self.rate_den
        return (period - period % self.every) * self.rate_den


@dataclass(frozen=True, slots=True)
class Violation(Generic[Key]):
    """A broken promise: `late` values came, `missed` ones did not, `count` of them in a row."""

    watch: Key
    kind: Literal["late", "missed"]
    nominal_ns: int  # when the value was due: of several the last
    at_ns: int  # when it was noticed
    latency_ns: int | None = None  # of a late value
    count: int = 1


class _Expectation(Generic[Key]):
    """One stream: the next instant at which a value is due."""

    __slots__ = ("due", "interval", "key", "scheduled", "since_ns", "terms", "tolerance_ns")

    def __init__(self, key: Key, terms: Terms, now_ns: int) -> None:
        self.key = key
        self.scheduled = -1  # serial of its entry in the heap
        self.restart(terms, now_ns)

    def restart(self, terms: Terms, now_ns: int) -> None:
        """Begin to expect at the first instant that lies ahead."""
        self.terms = terms
        self.interval = terms.interval
        self.tolerance_ns = terms.tolerance_ns
        self.since_ns = now_ns
        self.due = terms.nominal(now_ns) + self.interval

    @property
    def deadline_ns(self) -> int:
        return self.due // self.terms.scale + self.tolerance_ns


class Detector(Generic[Key]):
    """The expectations of all streams that are supervised."""

    def __init__(self) -> None:
        self.suppressed = 0  # violations while a mode change was announced
        self.changing = False
        self._streams: dict[Key, _Expectation[Key]] = {}
        self._heap: list[tuple[int, int, _Expectation[Key]]] = []
        self._serial = count()

    def follow(self, key: Key, terms: Terms, now_ns: int) -> None:
        """Expect values from now on; of a stream that is followed already, under other terms."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Expectation(key, terms, now_ns)
        elif stream.terms == terms:
            return
        else:
            stream.restart(terms, now_ns)
        self._schedule(stream)

    def forget(self, key: Key) -> None:
        """Expect nothing of it any more."""
        stream = self._streams.pop(key, None)
        if stream is not None:
            stream.scheduled = -1

    def announce(self) -> None:
        """A mode change is coming: nothing counts as violated until `settle` (GS-115)."""
        self.changing = True

    def settle(self, now_ns: int) -> None:
        """The mode is in force: every stream begins anew."""
        self.changing = False
        for stream in self._streams.values():
            stream.restart(stream.terms, now_ns)
            self._schedule(stream)

    def received(self, key: Key, created_ns: int, received_ns: int) -> Violation[Key] | None:
        """A value has come; a violation if it was too long on its way."""
        stream = self._streams.get(key)
        if stream is None:
            return None
        terms = stream.terms
        nominal = terms.nominal(created_ns)
        if nominal + stream.interval > stream.due:
            stream.due = nominal + stream.interval
        latency = received_ns - created_ns
        if terms.bound_ns == 0 or latency <= terms.bound_ns or created_ns < stream.since_ns:
            return None  # what was created before it was watched is a kept value, not a late one
        if self.changing:
            self.suppressed += 1
            return None
        return Violation(key, "late", nominal // terms.scale, received_ns, latency)

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` may find something, None: never."""
        while self._heap and self._heap[0][2].scheduled != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def tick(self, now_ns: int) -> list[Violation[Key]]:
        """Values that should have come by now; of each stream one violation, whatever time has passed."""
        found: list[Violation[Key]] = []
        while (deadline := self.deadline_ns) is not None and deadline <= now_ns:
            stream = heapq.heappop(self._heap)[2]
            if stream.deadline_ns <= now_ns:
                scale = stream.terms.scale
                missed = 1 + (now_ns - stream.deadline_ns) * scale // stream.interval
                stream.due += missed * stream.interval
                if self.changing:
                    self.suppressed += missed
                else:
                    nominal = (stream.due - stream.interval) // scale
                    found.append(Violation(stream.key, "missed", nominal, now_ns, None, missed))
            self._schedule(stream)
        return found

    def _schedule(self, stream: _Expectation[Key]) -> None:
        if stream.interval == 0:
            stream.scheduled = -1
            return
        stream.scheduled = next(self._serial)
        heapq.heappush(self._heap, (stream.deadline_ns, stream.scheduled, stream))
