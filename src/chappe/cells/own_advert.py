"""What a cell tells its neighbours about names, and what changed of it since it told them last (BF-12)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from chappe.cells.adverts import Difference, apply, differences
from chappe.cells.router import Router
from chappe.wire.celladverts import Entry

AT_LEAST = 128  # names in one turn
TURNS = 8  # updates until every name had its turn, at most


class OwnAdvert:
    """The advert of a cell, the same for all neighbours: `entries` is what those have that heard every difference.

    Every update tells of names that are new or gone, have a new stamp, or lost a candidate. Other news, such as another
    bandwidth, is told when it is the turn of the name: it would make every cell behind this one tell its news too, and
    theirs again, round after round.
    """

    def __init__(self, router: Router) -> None:
        self.entries: dict[str, Entry] = {}
        self._router = router
        self._names: frozenset[str] = frozenset()
        self._members: frozenset[bytes] = frozenset()
        self._turn = 0
        self._said: set[str] = set()  # names about which something was said
        self._of_turn: set[str] = set()
        self._waiting: list[str] = []  # names of the update that is under way
        self._sent: dict[str, Entry] = {}
        self._now: dict[str, Entry] = {}

    def touch(self, names: Iterable[str]) -> None:
        """Something was said about these names, beside what the trie remembers."""
        self._said.update(names)

    def begin(self) -> None:
        """An update begins: `step` goes through its names."""
        self._of_turn = self._next_turn()
        self._waiting = sorted(self._of_turn | self._touched())
        self._sent, self._now = {}, {}

    def step(self, most: int, stamp: int) -> Difference | None:
        """Look at some names of the update; after the last one, what every neighbour is to be told.

        The own names carry the `stamp`.
        """
        batch, self._waiting = self._waiting[:most], self._waiting[most:]
        for name in batch:
            if name in self.entries:
                self._sent[name] = self.entries[name]
            entry = self._entry(name, stamp)
            if entry is not None:
                sent = self._sent.get(name)
                waits = sent is not None and name not in self._of_turn and not _is_urgent(sent, entry)
                self._now[name] = sent if waits and sent is not None else entry
        if self._waiting:
            return None
        difference = differences(self._sent, self._now)
        apply(self.entries, difference)
        return difference

    def _entry(self, name: str, stamp: int) -> Entry | None:
        if name in self._names:
            return Entry(name, self._router.neighbourhood.me, stamp)
        known = self._router.trie.find(name)
        return None if known is None else self._router.entry(known)

    def _next_turn(self) -> set[str]:
        trie = self._router.trie
        turns = min(TURNS, len(trie) // AT_LEAST + 1)
        self._turn = (self._turn + 1) % turns
        return set(islice(trie, self._turn, None, turns))

    def _touched(self) -> set[str]:
        """Names about which something was said, or whose cells came near or went; the own ones."""
        trie, members, own = self._router.trie, self._router.neighbourhood.members, frozenset(self._router.names)
        names = trie.take_changed() | self._said | own
        self._said = set()
        if own != self._names:
            names.update(self._names, trie)  # which candidates are nearer depends on the own names
        for cell in members ^ self._members:
            names.update(trie.names_of(cell))
        self._names, self._members = own, members
        return names


def _is_urgent(sent: Entry, now: Entry) -> bool:
    if (sent.cell, sent.stamp, not sent.candidates) != (now.cell, now.stamp, not now.candidates):
        return True
    return not {one.cell for one in sent.candidates} <= {one.cell for one in now.candidates}
