"""Sets of values that were sampled at the same instant (GS-047, GS-064, GS-116): no loop, no clock.

Instants are those of the routers' filter: period `floor((created * num + den // 2) / den)` of the finest publishing
rate among the members. So the values of a set are not further apart than that one's publishing interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from chappe.client.merging import common_interval

Member = tuple[str, str]  # publisher, variable
PENDING = 64  # rounds that wait for values; beyond it the oldest is given up


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a set."""

    value: Any
    created: int
    received: int


@dataclass(frozen=True, slots=True)
class Snapshot(Mapping[Member, Any]):
    """The values of all members at one instant, by (publisher, variable)."""

    nominal: int  # ns since 1970 UTC
    samples: Mapping[Member, Sample]

    def __getitem__(self, member: Member) -> Any:
        return self.samples[member].value

    def __iter__(self) -> Iterator[Member]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def spread_ns(self) -> int:
        """Between the first and the last creation."""
        stamps = [sample.created for sample in self.samples.values()]
        return max(stamps) - min(stamps)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When a member sends: its publishing period, and its interval in each mode in which it lives; in ns."""

    period: Fraction
    intervals: Mapping[int, Fraction]


class Rounds:
    """The sets of one group: pending, complete, and how many were given up."""

    def __init__(self, history: int = 8, mode: int = 0) -> None:
        if history < 1:
            raise ValueError(f"a group keeps one set or more, not {history}")
        self.complete: deque[Snapshot] = deque(maxlen=history)
        self.discarded = 0  # rounds that stayed incomplete
        self.strays = 0  # values that belong to no round: off the grid, too late, or twice
        self._members: dict[Member, Rhythm] = {}
        self._pending: dict[int, dict[Member, Sample]] = {}
        self._mode, self._next = mode, mode
        self._period = Fraction(1)
        self._interval: Fraction | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(self._members)

    def add(self, member: Member, rhythm: Rhythm) -> None:
        """A member more, from the next round on; ValueError if its values never meet those of the others."""
        if self._members.get(member) == rhythm:
            return
        for other, known in self._members.items():
            if other == member:
                continue
            for mode, interval in rhythm.intervals.items():
                theirs = known.intervals.get(mode)
                if theirs is not None and theirs != interval:
                    raise ValueError(
                        f"{'/'.join(member)} comes every {float(interval) / 1e9:g} s and {'/'.join(other)} every "
                        f"{float(theirs) / 1e9:g} s in mode {mode}: choose a group interval that is a multiple of both "
                        "publishing intervals"
                    )
        self._members[member] = rhythm
        self._changed()

    def remove(self, member: Member) -> None:
        """A member less; a round that only waited for it is given up with the others that wait."""
        if self._members.pop(member, None) is not None:
            self._changed()

    def modes(self, mode: int, following: int) -> None:
        """The mode in force, and the one that is coming or the same: until then only the coarser rounds count."""
        self._mode, self._next = mode, following
        self._retime()

    def _changed(self) -> None:
        self.discarded += len(self._pending)
        self._pending.clear()
        self._retime()

    def _retime(self) -> None:
        self._interval = None
        for rhythm in self._members.values():
            for mode in (self._mode, self._next):
                interval = rhythm.intervals.get(mode)
                if interval is not None:
                    self._interval = interval if self._interval is None else common_interval(self._interval, interval)
        self._period = min((rhythm.period for rhythm in self._members.values()), default=Fraction(1))
        for nominal in [each for each in self._pending if not self._on_grid(each)]:
            del self._pending[nominal]
            self.discarded += 1

    def _nominal(self, created: int) -> int:
        """The instant of a value, in periods of the finest member."""
        num, den = self._period.denominator, self._period.numerator
        return (created * num + den // 2) // den

    def _on_grid(self, period: int) -> bool:
        return self._interval is not None and period * self._period % self._interval == 0

    def offer(self, member: Member, sample: Sample) -> Snapshot | None:
        """A value has come; the set that it completes, if it does."""
        if member not in self._members:
            return None
        period = self._nominal(sample.created)
        newest = self._nominal(self.complete[-1].nominal) if self.complete else None
        if not self._on_grid(period) or (newest is not None and period <= newest):
            self.strays += 1
            return None
        samples = self._pending.setdefault(period, {})
        samples[member] = sample
        if len(samples) < len(self._members):
            if len(self._pending) > PENDING:
                del self._pending[min(self._pending)]
                self.discarded += 1
            return None
        snapshot = Snapshot(int(period * self._period), {each: samples[each] for each in self._members})
        self.complete.append(snapshot)
        older = [each for each in self._pending if each <= period]
        for each in older:
            del self._pending[each]
        self.discarded += len(older) - 1
        return snapshot
