"""What subscribers must get: every value and event that is due, nothing else, each once and in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from chappe.demo.phasors import VARIABLES, round_of, value

EXPLAINED = 5  # problems of one kind that are told in words; the rest is counted


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
    """Holds each value of a subscription to one of `every` rounds against the rule `round mod every == 0`."""

    def __init__(self, every: int, first: int) -> None:
        self.every = every
        self.first = _due(first, every)
        self.received = 0
        self.findings = Findings()
        self._next = [self.first] * VARIABLES
        self._gaps: set[tuple[int, int]] = set()

    def take(self, places: Iterable[int], stamps: Iterable[int], amounts: Iterable[float]) -> None:
        """Values in order of arrival: place of the variable, time stamp, value."""
        due, every, rounds = self._next, self.every, dict[int, int]()
        for place, created, amount in zip(places, stamps, amounts, strict=True):
            number = rounds.get(created)
            if number is None:
                number = rounds[created] = round_of(created)
            self.received += 1
            if number == due[place]:
                due[place] = number + every
            else:
                self._unexpected(place, number)
            if amount != value(place, number):
                self.findings.add("wrong value", f"variable {place}, round {number}: {amount}")

    def _unexpected(self, place: int, number: int) -> None:
        where = f"variable {place}, round {number}"
        if number % self.every:
            self.findings.add("wrongly filtered", f"{where} is none of every {self.every}")
        elif number > self._next[place]:
            self._gaps.update((place, gap) for gap in range(self._next[place], number, self.every))
            self._next[place] = number + self.every
        elif (place, number) in self._gaps:
            self._gaps.remove((place, number))
            self.findings.add("out of order", f"{where} came after round {self._next[place] - self.every}")
        else:
            self.findings.add("repeated", where)

    def expected(self, last: int) -> int:
        """How many values there are up to that round."""
        return VARIABLES * max(0, (last - self.first) // self.every + 1)

    def missing(self, last: int) -> int:
        """How many of them have not come."""
        late = sum(max(0, (last - due) // self.every + 1) for due in self._next)
        return late + len(self._gaps)

    def finish(self, last: int) -> None:
        """Nothing more will come: what is missing is lost."""
        for place, gap in sorted(self._gaps):
            self.findings.add("lost", f"variable {place}, round {gap}")
        for place, due in enumerate(self._next):
            for number in range(due, last + 1, self.every):
                self.findings.add("lost", f"variable {place}, round {number}")


class EventCheck:
    """Holds numbered events against their order; several receivers share the numbers of a queue group."""

    def __init__(self, receivers: int) -> None:
        self.received = 0
        self.findings = Findings()
        self._newest = [0] * receivers
        self._missing: set[int] = set()
        self._highest = 0

    def take(self, receiver: int, number: int) -> None:
        """An event in order of arrival at one receiver."""
        self.received += 1
        if number <= self._newest[receiver]:
            self.findings.add("out of order", f"event {number} after {self._newest[receiver]}")
        self._newest[receiver] = max(number, self._newest[receiver])
        if number > self._highest:
            self._missing.update(range(self._highest + 1, number))
            self._highest = number
        elif number in self._missing:
            self._missing.remove(number)
        else:
            self.findings.add("repeated", f"event {number}")

    def missing(self, last: int) -> int:
        """How many events up to that number have not come."""
        return len(self._missing) + max(0, last - self._highest)

    def finish(self, last: int) -> None:
        """Nothing more will come: what is missing is lost."""
        for number in [*sorted(self._missing), *range(self._highest + 1, last + 1)]:
            self.findings.add("lost", f"event {number}")


def _due(first: int, every: int) -> int:
    return -(-first // every) * every
