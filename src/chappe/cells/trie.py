"""The names that a cell knows, in order, with what its neighbours say about each; bounded by use, age and variety."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice

from chappe.cells.names import ANY, gap
from chappe.wire.celladverts import Candidate, Entry

SECOND = 10**9


@dataclass(frozen=True, slots=True)
class TrieSettings:
    """Bounds, and what makes a name worth keeping (BF-16)."""

    names: int = 4096  # T: kept by a trim
    slack: float = 1.5  # f: so many times more are allowed between trims
    recency: float = 0.4  # weights of the score
    variety: float = 0.3
    use: float = 0.3
    memory_ns: int = 20 * SECOND  # tau: by which recency fades
    busy: float = 10.0  # u0: uses in one period that count as full use
    period_ns: int = 2 * SECOND  # in which uses fade to a half


@dataclass(slots=True)
class KnownName:
    """One name with whose it is and what each neighbour says about it."""

    name: str
    cell: bytes
    stamp: int
    common: int  # characters of the longest prefix that it shared with another name when it was inserted
    refreshed_ns: int  # when its stamp rose
    statements: dict[bytes, tuple[Candidate, ...]] = field(default_factory=dict)  # by the cell that made them
    inflows: dict[bytes, float] = field(default_factory=dict)  # what they say that can come into its cell
    uses: float = 0.0
    used_ns: int = 0

    def score(self, now_ns: int, settings: TrieSettings) -> float:
        """What it is worth: recent, unlike the others, and used."""
        recency = math.exp(-max(0, now_ns - self.refreshed_ns) / settings.memory_ns)
        variety = 1 - self.common / len(self.name)
        use = min(1.0, self._faded(now_ns, settings) / settings.busy)
        return settings.recency * recency + settings.variety * variety + settings.use * use

    def count_use(self, now_ns: int, settings: TrieSettings) -> None:
        """A route to it was asked for."""
        self.uses = self._faded(now_ns, settings) + 1
        self.used_ns = now_ns

    def _faded(self, now_ns: int, settings: TrieSettings) -> float:
        return self.uses * math.exp2(-max(0, now_ns - self.used_ns) / settings.period_ns)


class Trie:
    """The known names of other cells, at most `slack` times `names` of them (BF-14, BF-15).

    A sorted list and a dictionary answer what a tree of characters would, and in Python much faster: neighbours in
    order, prefixes, and the longest common prefix, which is always shared with a neighbour in order.
    """

    def __init__(self, settings: TrieSettings = TrieSettings()) -> None:
        self.settings = settings
        self.changed: set[str] = set()  # names about which something changed, until `take_changed`
        self._known: dict[str, KnownName] = {}
        self._order: list[str] = []
        self._of_cell: dict[bytes, set[str]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        """All names in order."""
        return iter(self._order)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    # --- what is said about names

    def insert(self, sender: bytes, entry: Entry, now_ns: int) -> None:
        """Keep what a cell says about a name, instead of what it said before. The entry has passed `checked`.

        Of two cells that have a name the one that says so itself counts, then the one with the higher stamp, then the
        one with the smaller id. What is said about the other one is not kept.
        """
        known = self._known.get(entry.name)
        if known is not None and entry.cell != known.cell and not _outranks(sender, entry, known):
            self.remove(sender, entry.name)  # it speaks for the other one no more
            if entry.name in self._known:
                return
            known = None
        if known is None:
            known = self._add(entry, now_ns)
        elif entry.cell != known.cell:
            self._move(known, entry.cell)
            known.statements.clear()
            known.inflows.clear()
            known.stamp, known.refreshed_ns = entry.stamp, now_ns
        elif entry.stamp > known.stamp and (sender == known.cell or known.cell not in known.statements):
            known.stamp, known.refreshed_ns = entry.stamp, now_ns
        known.statements[sender] = entry.candidates
        known.inflows[sender] = entry.inflow
        self.changed.add(entry.name)

    def remove(self, sender: bytes, name: str) -> None:
        """A cell says nothing more about a name; without any statement it is forgotten."""
        known = self._known.get(name)
        if known is not None and known.statements.pop(sender, None) is not None:
            known.inflows.pop(sender)
            self.changed.add(name)
            if not known.statements:
                self.discard(name)

    def discard(self, name: str) -> None:
        """Forget a name, whoever speaks of it."""
        known = self._known.pop(name, None)
        if known is not None:
            self.changed.add(name)
            del self._order[bisect_left(self._order, name)]
            self._leave(known)

    def take_changed(self) -> set[str]:
        """The names about which something changed since the last call, or that are gone."""
        changed, self.changed = self.changed, set()
        return changed

    def trim(self, now_ns: int, protected: Collection[str] = ()) -> list[str]:
        """Forget the least worthy names, down to T, once there are more than f times T; says which ones.

        Protected names stay: those of the own neighbours in order, and of the cells of the neighbourhood.
        """
        if len(self._order) <= int(self.settings.slack * self.settings.names):
            return []
        keep = set(protected)
        others = [known for name, known in self._known.items() if name not in keep]
        kept = max(0, self.settings.names - (len(self._order) - len(others)))
        others.sort(key=lambda known: (-known.score(now_ns, self.settings), known.name))
        gone = [known.name for known in others[kept:]]
        for name in gone:
            self.discard(name)
        return gone

    # --- questions

    def find(self, name: str) -> KnownName | None:
        """What is known of exactly this name."""
        return self._known.get(name)

    def before(self, name: str) -> Iterator[str]:
        """The smaller names, the nearest first."""
        return (self._order[place] for place in range(bisect_left(self._order, name) - 1, -1, -1))

    def after(self, name: str) -> Iterator[str]:
        """The larger names, the nearest first."""
        return islice(self._order, bisect_right(self._order, name), None)

    def nearest(self, destination: str) -> KnownName | None:
        """The known name of least gap to a destination, which may end with `*`; the smaller one of two (BF-19)."""
        exact = self._known.get(destination)
        if exact is not None:
            return exact
        place = bisect_left(self._order, destination.removesuffix(ANY))
        beside = self._order[max(0, place - 1) : place + 1]
        name = min(beside, key=lambda name: gap(name, destination), default=None)
        return None if name is None else self._known[name]

    def with_prefix(self, prefix: str) -> Iterator[str]:
        """The names with a prefix, in order."""
        for name in islice(self._order, bisect_left(self._order, prefix), None):
            if not name.startswith(prefix):
                return
            yield name

    def longest_common(self, name: str) -> int:
        """How many characters of a name begin another known name too, at most."""
        place = bisect_left(self._order, name)
        end = place + 1 if name in self._known else place
        beside = (*self._order[max(0, place - 1) : place], *self._order[end : end + 1])
        return max((_common(name, other) for other in beside), default=0)

    def names_of(self, cell: bytes) -> Collection[str]:
        """The known names of a cell."""
        return self._of_cell.get(cell, ())

    # --- how

    def _add(self, entry: Entry, now_ns: int) -> KnownName:
        known = KnownName(entry.name, entry.cell, entry.stamp, self.longest_common(entry.name), now_ns)
        self._order.insert(bisect_left(self._order, entry.name), entry.name)
        self._known[entry.name] = known
        self._of_cell.setdefault(entry.cell, set()).add(entry.name)
        return known

    def _move(self, known: KnownName, cell: bytes) -> None:
        self._leave(known)
        known.cell = cell
        self._of_cell.setdefault(cell, set()).add(known.name)

    def _leave(self, known: KnownName) -> None:
        names = self._of_cell[known.cell]
        names.discard(known.name)
        if not names:
            del self._of_cell[known.cell]


def _outranks(sender: bytes, entry: Entry, known: KnownName) -> bool:
    """Whether this entry says better whose name it is than what is known."""
    first_hand, before = sender == entry.cell, known.cell in known.statements and sender != known.cell
    if (first_hand, entry.stamp) != (before, known.stamp):
        return (first_hand, entry.stamp) > (before, known.stamp)
    return entry.cell < known.cell


def _common(a: str, b: str) -> int:
    """How many characters two names begin with alike."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
