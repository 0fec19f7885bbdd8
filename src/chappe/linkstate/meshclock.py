"""The time of the mesh at one node, and which statements are too old or too new to be believed.

A node reads its wall clock once, when it starts, and counts on by its monotonic clock: a wall clock that is set later
changes nothing. Where it disagrees with its neighbours, whose statements come over connections that prove that they are
alive, it takes the median of them and itself. So a node that started with a wrong clock, or whose machine was
suspended, is right again before others stop believing it (record 0034).
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import MS, SECOND, Settings

WAIT_NS = SECOND  # a correction waits for a drawn part of this: two ends that differ do not both move
APART_NS = 10 * SECOND  # between two corrections
FOREIGN = 16_384  # originators whose time is remembered


class MeshClock:
    """Mesh time is the monotonic clock of this node plus its base; others have bases, too, as seen from here."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self.next_ns = NEVER  # when `correct` has something to do
        self.corrections = 0
        self._rng = rng
        self._base_ns: int | None = None
        self._bases: dict[str, int] = {}  # of originators, by the newest statement of each
        self._doubted: dict[str, int] = {}  # by statements that were not believed for their time
        self._corrected_ns = -NEVER

    def start(self, wall_ns: int, now_ns: int) -> None:
        """Take the wall clock."""
        self._base_ns = wall_ns - now_ns

    @property
    def base_ns(self) -> int:
        return self._base_ns or 0

    def time_ns(self, now_ns: int) -> int:
        """The time of the mesh."""
        return now_ns + self.base_ns

    def doubt(self, originator: str, time_ns: int, age_ns: int, now_ns: int, held: bool) -> str:
        """Why a statement that was not heard from its originator directly is not believed; empty if it is.

        It is fresh by this clock; or this node holds the one before it (`held`), and the time between the two is the
        time that passed here.
        """
        ahead_ns = time_ns - self.time_ns(now_ns)
        tolerance_ns = self.settings.tolerance_ns
        if -self.settings.lifetime_ns - tolerance_ns <= ahead_ns <= tolerance_ns:
            return ""
        base_ns = self._bases.get(originator)
        if held and base_ns is not None and abs(time_ns + age_ns - now_ns - base_ns) <= tolerance_ns:
            return ""
        off_s = abs(ahead_ns) / SECOND
        when = "in the future" if ahead_ns > 0 else "old"
        return (
            f"made by {originator[:64]!r}, it is {off_s:.0f} s {when}: replayed, or clocks differ by more than allowed"
        )

    def plausible(self, time_ns: int, now_ns: int) -> bool:
        """Whether a statement of that time is not in the future."""
        return time_ns <= self.time_ns(now_ns) + self.settings.tolerance_ns

    def observe(self, originator: str, time_ns: int, age_ns: int, now_ns: int, believed: bool = True) -> None:
        """A statement of an originator was verified, and believed or not."""
        bases = self._bases if believed else self._doubted
        if originator not in bases and len(bases) >= FOREIGN:
            del bases[next(iter(bases))]
        bases[originator] = time_ns + age_ns - now_ns
        if believed:
            self._doubted.pop(originator, None)

    def compare(self, neighbour: str, now_ns: int) -> None:
        """A neighbour was heard directly: plan a look at the clocks if it is far from this one."""
        if self.next_ns == NEVER and self._changed_level(self._bases.get(neighbour, self.base_ns)):
            wait_ns = MS + int(WAIT_NS * self._rng.random())
            self.next_ns = max(now_ns + wait_ns, self._corrected_ns + APART_NS)

    def forget(self, originators: Iterable[str]) -> None:
        """Nothing of these is held any more."""
        for originator in originators:
            self._bases.pop(originator, None)
            self._doubted.pop(originator, None)

    def correct(self, neighbours: Iterable[str], now_ns: int) -> int:
        """Take the time of the neighbours if this node stands alone with its own; by how much it moved."""
        self.next_ns = NEVER
        known = [self._bases[name] for name in neighbours if name in self._bases]
        base_ns = self._median(sorted((self.base_ns, *known)))
        if not self._changed_level(base_ns):
            return 0
        moved_ns, self._base_ns = base_ns - self.base_ns, base_ns
        self._corrected_ns = now_ns
        self.corrections += 1
        return moved_ns

    def _changed_level(self, base_ns: int) -> bool:
        return abs(base_ns - self.base_ns) > self.settings.tolerance_ns // 2

    def _median(self, bases: list[int]) -> int:
        """Of an even number the middle one that more originators agree with, else the later."""
        middle = len(bases) // 2
        if len(bases) % 2:
            return bases[middle]
        low, high = bases[middle - 1], bases[middle]
        return low if self._support(low) > self._support(high) else high

    def _support(self, base_ns: int) -> int:
        tolerance_ns = self.settings.tolerance_ns // 2
        every = (*self._bases.values(), *self._doubted.values(), self.base_ns)
        return sum(abs(other - base_ns) <= tolerance_ns for other in every)
