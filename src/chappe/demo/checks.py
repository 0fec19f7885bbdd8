"""What subscribers must get: every value that is due, nothing else, each once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from chappe.demo.phasors import round_of
from chappe.demo.schedule import Schedule

EXPLAINED = 5  # problems of one kind that are described; the rest is counted
NEVER = 1 << 62  # no round


@dataclass(slots=True)
class Findings:
    """What was wrong, counted by kind, with the first few in words."""

    counts: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def add(self, kind: str, what: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= EXPLAINED:
            self.words.append(f"{kind}: {what}")

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class ValueCheck:
    """Holds the values of `places` variables (or of one at several places) against a schedule of rounds."""

    def __init__(self, schedule: Schedule, places: int, worth: Callable[[int, int], float]) -> None:
        self.schedule = schedule
        self.received = 0
        self.extra = 0  # that could come and did: while a mode changes
        self.findings = Findings()
        self._worth = worth
        self._next = [self._due(schedule.first)] * places
        self._newest = [-1] * places
        self._gaps: set[tuple[int, int]] = set()

    def _due(self, number: int) -> int:
        found = self.schedule.next_due(number)
        return NEVER if found is None else found

    def change(self, start: int, one: int, other: int) -> None:
        """From that round on either of two rules may be in force."""
        self.schedule.change(start, one, other)
        self._again(start)

    def settle(self, start: int, every: int) -> None:
        """From that round on this rule is in force."""
        self.schedule.settle(start, every)
        self._again(start)

    def _again(self, start: int) -> None:
        for place, number in enumerate(self._next):
            if number >= start:
                self._next[place] = self._due(max(start, self._newest[place] + 1))

    def take(self, places: Iterable[int], stamps: Iterable[int], amounts: Iterable[float]) -> None:
        """Values in order of arrival: place of the variable, time stamp, value."""
        due, newest, rounds = self._next, self._newest, dict[int, tuple[int, int]]()
        for place, created, amount in zip(places, stamps, amounts, strict=True):
            known = rounds.get(created)
            if known is None:
                number = round_of(created)
                known = rounds[created] = number, self._due(number + 1)
            number, following = known
            self.received += 1
            if number == due[place] and number > newest[place]:
                due[place], newest[place] = following, number
            else:
                self._unexpected(place, number, following)
            if amount != self._worth(place, number):
                self.findings.add("wrong value", f"variable {place}, round {number}: {amount}")

    def _unexpected(self, place: int, number: int, following: int) -> None:
        where = f"variable {place}, round {number}"
        if not self.schedule.may_come(number):
            self.findings.add("wrongly filtered", f"{where} was not asked for")
        elif (place, number) in self._gaps:
            self._gaps.remove((place, number))
            self.findings.add("out of order", f"{where} came after round {self._newest[place]}")
        elif number <= self._newest[place]:
            self.findings.add("repeated", where)
        else:
            if number > self._next[place]:
                self._gaps.update((place, gap) for gap in self.schedule.dues(self._next[place], number - 1))
                self._next[place] = following
            self._newest[place] = number
            self.extra += not self.schedule.is_due(number)

    def expected(self, last: int) -> int:
        """How many values must come up to that round."""
        return len(self._next) * self.schedule.count(self.schedule.first, last)

    def missing(self, last: int) -> int:
        """How many of them have not come."""
        return sum(self.schedule.count(due, last) for due in self._next if due <= last) + len(self._gaps)

    def finish(self, last: int) -> None:
        """Nothing more will come: what is missing is lost."""
        for place, gap in sorted(self._gaps):
            self.findings.add("lost", f"variable {place}, round {gap}")
        for place, due in enumerate(self._next):
            for number in self.schedule.dues(due, last) if due <= last else ():
                self.findings.add("lost", f"variable {place}, round {number}")
