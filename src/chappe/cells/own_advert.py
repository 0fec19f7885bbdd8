"""What a cell tells its neighbours about names, and what changed of it since it told them last (BF-12)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from chappe.cells.adverts import Difference, apply, differences
from chappe.cells.router import Router
from chappe.wire.celladverts import Entry

AT_ONCE = 64  # names of which one update tells news that are not urgent


class OwnAdvert:
    """The advert of a cell, the same for all neighbours: `entries` is what those have that heard every difference.

    Every update tells of names that are new or gone, have a new stamp, or no candidate any more. Other news, such as
    another bandwidth, is computed and told when it is the turn of the name, so that it costs the same however many
    names there are: it makes every cell behind this one tell its news too, and theirs again, round after round.
    """

    def __init__(self, router: Router) -> None:
        self.entries: dict[str, Entry] = {}
        self._router = router
        self._names: frozenset[str] = frozenset()
        self._members: frozenset[bytes] = frozenset()
        self._turn = 0
        self._seen: dict[str, int] = {}  # generation of the neighbourhood at which the entry of a name was computed
        self._said: set[str] = set()  # names about which something was said
        self._waiting: list[str] = []  # names of the update that is under way
        self._sent: dict[str, Entry] = {}
        self._now: dict[str, Entry] = {}

    def touch(self, names: Iterable[str]) -> None:
        """Something was said about these names, beside what the trie remembers."""
        self._said.update(names)

    def begin(self) -> None:
        """An update begins: `step` goes through its names."""
        self._waiting = sorted(self._urgent() | self._next_turn())
        self._sent, self._now = {}, {}

    def step(self, most: int, stamp: int) -> Difference | None:
        """Look at some names of the update; after the last one, what every neighbour is to be told.

        The own names carry the `stamp`.
        """
        batch, self._waiting = self._waiting[:most], self._waiting[most:]
        generation = self._router.neighbourhood.generation
        for name in batch:
            if name in self.entries:
                self._sent[name] = self.entries[name]
            entry = self._entry(name, stamp)
            if entry is not None:
                self._now[name], self._seen[name] = entry, generation
        if self._waiting:
            return None
        difference = differences(self._sent, self._now)
        apply(self.entries, difference)
        return difference

    def _entry(self, name: str, stamp: int) -> Entry | None:
        if name in self._names:
            return self._router.own_entry(name, stamp)
        known = self._router.trie.find(name)
        return None if known is None else self._router.entry(known)

    def _next_turn(self) -> set[str]:
        trie = self._router.trie
        turns = len(trie) // AT_ONCE + 1
        self._turn = (self._turn + 1) % turns
        generation = self._router.neighbourhood.generation
        names = islice(trie, self._turn, None, turns)
        return {name for name in names if self._seen.get(name) != generation}

    def _urgent(self) -> set[str]:
        """Those that cannot wait of the names about which something was said, or whose cells came or went; the own."""
        trie, members, own = self._router.trie, self._router.neighbourhood.members, frozenset(self._router.names)
        names = trie.take_changed() | self._said
        self._said = set()
        for name in names:
            self._seen.pop(name, None)
        for cell in members ^ self._members:
            names.update(trie.names_of(cell))
        anew = own != self._names  # which candidates are nearer depends on the own names
        if anew:
            names.update(self._names, trie)
        self._names, self._members = own, members
        return {name for name in names if anew or self._is_urgent(name)} | own

    def _is_urgent(self, name: str) -> bool:
        sent, known = self.entries.get(name), self._router.trie.find(name)
        if sent is None or known is None or (sent.cell, sent.stamp) != (known.cell, known.stamp):
            return True
        return not any(
            one.cell in self._members and (one.cell == known.cell or known.statements.get(one.cell))
            for one in sent.candidates
        )
