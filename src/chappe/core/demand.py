"""What is wanted of one variable at a node, port by port, and what that comes to for the links it arrives by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chappe.status.allocation.rates import every_of
from chappe.wire.base import DemandTerm, Variable
from chappe.wire.constants import ALL_MODES, MODES
from chappe.wire.control import MAX_TERMS

Terms = tuple[DemandTerm, ...]

EVERYTHING: Terms = (DemandTerm(),)


class Demand:
    """Of one variable; made when somebody wants it.

    `stated` is what neighbours say that they want, `served` what goes where: the path of the engine for each term.
    `asked` is what this node asks of the neighbours that announce the variable, `recent` are those of them that were
    asked a moment ago, beside others: values may not come from there yet.
    """

    __slots__ = ("_counts", "asked", "recent", "served", "stated")

    def __init__(self) -> None:
        self.stated: dict[int, Terms] = {}
        self.served: dict[int, dict[DemandTerm, int]] = {}
        self.asked: dict[int, Terms] = {}
        self.recent: set[int] = set()
        self._counts: dict[DemandTerm, int] = {}  # how many ports each is served to

    def serve(self, port: int, paths: Mapping[DemandTerm, int]) -> bool:
        """These terms are what goes to a port now; whether other ones are served than before, all ports together."""
        old = self.served.pop(port, {})
        if paths:
            self.served[port] = dict(paths)
        before = len(self._counts)
        added = [term for term in paths if term not in old]
        for term in added:
            self._counts[term] = self._counts.get(term, 0) + 1
        changed = len(self._counts) != before
        for term in old:
            if term not in paths:
                self._counts[term] -= 1
                if not self._counts[term]:
                    del self._counts[term]
                    changed = True
        return changed

    def forget(self, port: int) -> Terms:
        """That neighbour is not asked any more, or does not know that it was; what it was asked for."""
        self.recent.discard(port)
        return self.asked.pop(port, ())

    def wanted(self, variable: Variable, without: int = -1) -> Terms:
        """The fewest terms by which everything comes that is served, to all ports or all but one."""
        alone = {term for term in self.served.get(without, ()) if self._counts[term] == 1}
        return minimal(variable, self._counts.keys() - alone if alone else self._counts)


def minimal(variable: Variable, terms: Iterable[DemandTerm]) -> Terms:
    """Those of these terms that take in the others, in order; everything, if they are too many for a message."""
    found: list[tuple[int, DemandTerm]] = []
    for every, term in sorted((every_of(variable, term.interval_ns), term) for term in terms):
        if not any(_covers(other, term) and every % less == 0 for less, other in found):
            found = [(more, other) for more, other in found if not (_covers(term, other) and more % every == 0)]
            found.append((every, term))
    if len(found) > MAX_TERMS:
        modes = 0
        for _, term in found:
            modes |= term.modes
        return (DemandTerm(0, min(term.priority for _, term in found), modes),)
    return tuple(term for _, term in found)


def combined(offered: Iterable[DemandTerm], stated: Terms) -> set[DemandTerm]:
    """What a neighbour gets of what it may have: the longer interval, less urgently, in the modes of both."""
    return {
        DemandTerm(
            max(allowed.interval_ns, term.interval_ns), max(allowed.priority, term.priority), allowed.modes & term.modes
        )
        for allowed in offered for term in stated if allowed.modes & term.modes
    }  # fmt: skip


def terms_by_mode(intervals_ns: Sequence[int], priorities: Sequence[int], modes: int) -> set[DemandTerm]:
    """Terms of a watch, as the engine takes them: one interval and priority for all modes, or 16."""
    if len(intervals_ns) == len(priorities) == 1:
        return {DemandTerm(intervals_ns[0], priorities[0], modes)}
    masks: dict[tuple[int, int], int] = {}
    for mode in range(MODES):
        if modes >> mode & 1:
            key = intervals_ns[mode % len(intervals_ns)], priorities[mode % len(priorities)]
            masks[key] = masks.get(key, 0) | 1 << mode
    return {DemandTerm(*key, mask) for key, mask in masks.items()}


def problem_of(terms: Terms) -> str:
    """What is wrong with terms that a neighbour stated, or nothing."""
    for term in terms:
        if not 0 <= term.interval_ns < 1 << 63:
            return f"an interval of {term.interval_ns} ns is not between 0 and 2**63 - 1"
        if not 0 <= term.priority <= 6:
            return f"priority {term.priority} is not between 0 and 6"
        if not 1 <= term.modes <= ALL_MODES:
            return f"mode mask {term.modes} names no mode"
    return ""


def _covers(a: DemandTerm, b: DemandTerm) -> bool:
    """Whether a port that gets `a` gets `b` with it, as far as modes and priority go."""
    return a.modes & b.modes == b.modes and a.priority <= b.priority
