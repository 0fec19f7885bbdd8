"""Which rounds a subscriber must get and which it may get: that changes while the demo runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Schedule:
    """Stretches of rounds: in each, multiples of `due` must come and multiples of `may` can; 0 is none.

    While something is being changed the old rule, the new rule and what both have in common meet: what both want is
    due, what either wants may come. A stretch is announced before its first round is there.
    """

    def __init__(self, first: int, every: int) -> None:
        self.first = first
        self._starts = [first]
        self._rules = [(every, every)]

    def change(self, start: int, one: int, other: int) -> None:
        """From that round on either rule may be in force; one of the two divides the other, or is 0."""
        self._add(start, max(one, other) if one and other else 0, min(one, other) or max(one, other))

    def settle(self, start: int, every: int) -> None:
        """From that round on this rule is in force."""
        self._add(start, every, every)

    def _add(self, start: int, due: int, may: int) -> None:
        self._starts.append(max(start, self._starts[-1] + 1))
        self._rules.append((due, may))

    def _rule(self, number: int) -> tuple[int, int]:
        return self._rules[bisect_right(self._starts, number) - 1] if number >= self.first else (0, 0)

    def is_due(self, number: int) -> bool:
        """It must come."""
        due, _ = self._rule(number)
        return bool(due) and number % due == 0

    def may_come(self, number: int) -> bool:
        """It must or can come."""
        _, may = self._rule(number)
        return bool(may) and number % may == 0

    def next_due(self, number: int) -> int | None:
        """The first round from that one on that must come; None while none is known."""
        return next((low for low, _, _ in self._dues(number, None)), None)

    def count(self, low: int, high: int) -> int:
        """How many must come from one round to another, both included."""
        return sum((end - start) // due + 1 for start, end, due in self._dues(low, high) if end is not None)

    def dues(self, low: int, high: int) -> Iterator[int]:
        """Those rounds."""
        for start, end, due in self._dues(low, high):
            assert end is not None
            yield from range(start, end + 1, due)

    def _dues(self, low: int, high: int | None) -> Iterator[tuple[int, int | None, int]]:
        """(first due round, last round, step) of each stretch between two rounds."""
        low = max(low, self.first)
        for place in range(bisect_right(self._starts, low) - 1, len(self._starts)):
            due = self._rules[place][0]
            following = self._starts[place + 1] - 1 if place + 1 < len(self._starts) else None
            end = high if following is None else following if high is None else min(high, following)
            start = max(low, self._starts[place])
            if due:
                start = -(-start // due) * due
                if end is None or start <= end:
                    yield start, end, due
