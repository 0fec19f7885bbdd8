"""Peer updates: what this cell and its neighbours advertise about names (BF-10, BF-12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chappe.cells.adverts import Difference, checked
from chappe.cells.directory import Directory
from chappe.cells.neighbour import Neighbour
from chappe.cells.own_advert import OwnAdvert
from chappe.cells.router import Router
from chappe.cells.trie import Trie
from chappe.errors import ProtocolError
from chappe.machine import Effect, Send
from chappe.wire.celladverts import Entry
from chappe.wire.cells import MAX_ENTRIES, CellPeers, CellResync

AT_ONCE = 12  # names whose entries are computed in one slice, which takes about a millisecond
OWN_STAMP = 0  # of own names: that of their record counts
RESYNC_UPDATES = 2  # between two requests for everything to one neighbour


class PeerUpdates:
    """One advert for all neighbours, sent as differences; each neighbour's advert is kept as far as it was heard.

    Which cells have a name is what the directory says: `settle` follows it, and what neighbours say counts as far as
    it agrees.
    """

    def __init__(self, me: bytes, directory: Directory, trie: Trie, router: Router, most: int, update_ns: int) -> None:
        self._me = me
        self._directory = directory
        self._trie = trie
        self._most = most
        self._update_ns = update_ns
        self._sequence = 0
        self._own = OwnAdvert(router)
        self._computing = False

    # --- names

    def settle(self, name: str, neighbours: Iterable[Neighbour], now_ns: int) -> None:
        """Cells got a name, or have it no more: of several the one counts that got it last."""
        owners = self._directory.owners(name)
        known = self._trie.find(name)
        if not owners:
            self._trie.discard(name)
            return
        stamp, id = owners[0]
        if known is not None and known.cell == id:
            return
        self._trie.discard(name)
        self._trie.insert(self._me, Entry(name, id, stamp), now_ns)
        for neighbour in neighbours:
            entry = neighbour.advert.get(name)
            if entry is not None and entry.cell == id:
                self._trie.insert(neighbour.id, entry, now_ns)

    # --- what neighbours say

    def receive(self, neighbour: Neighbour, update: CellPeers, now_ns: int) -> list[Effect]:
        """Take an update; ProtocolError says what no cell would send. After a gap everything is asked for."""
        if update.first:
            self.forget(neighbour)
        elif update.sequence not in (neighbour.heard, neighbour.heard + 1):
            if now_ns < neighbour.resync_ns + RESYNC_UPDATES * self._update_ns:
                return []
            neighbour.resync_ns = now_ns
            return [Send(neighbour.port, CellResync())]
        neighbour.heard = update.sequence
        entries = checked(update.entries, MAX_ENTRIES)
        if len(neighbour.advert) + len(entries) > self._most:
            raise ProtocolError(f"an advert of more than {self._most} names")
        for name in update.removed:
            neighbour.advert.pop(name, None)
            self._trie.remove(neighbour.id, name)
        for entry in entries:
            neighbour.advert[entry.name] = entry
            known = self._trie.find(entry.name)
            if known is not None and known.cell == entry.cell:
                self._trie.insert(neighbour.id, entry, now_ns)
        return []

    def forget(self, neighbour: Neighbour) -> None:
        """What it said does not count any more."""
        for name in neighbour.advert:
            self._trie.remove(neighbour.id, name)
        neighbour.advert.clear()

    # --- what this cell says

    def everything(self, port: int) -> list[Effect]:
        """All that was sent so far, for a new neighbour or one that has missed something."""
        messages = list(self._messages(Difference(tuple(self._own.entries.values()))))
        first = CellPeers(self._sequence, True, messages[0].entries if messages else ())
        return [Send(port, first), *(Send(port, message) for message in messages[1:])]

    def changed(self, names: Iterable[str]) -> None:
        """What is known of these names has changed: the next update computes their entries."""
        self._own.touch(names)

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return self._computing

    def begin(self) -> None:
        """An update is due."""
        if not self._computing:
            self._own.begin()
            self._computing = True

    def work(self, neighbours: Iterable[Neighbour]) -> list[Effect]:
        """Compute some entries; after the last one send what has changed."""
        difference = self._own.step(AT_ONCE, OWN_STAMP)
        if difference is None:
            return []
        self._computing = False
        if difference == Difference():
            return []
        self._sequence += 1
        ports = [each.port for each in neighbours if each.joined]
        return [Send(port, message) for message in self._messages(difference) for port in ports]

    def _messages(self, difference: Difference) -> Iterator[CellPeers]:
        changed, removed = difference
        for at in range(0, max(len(changed), len(removed)), MAX_ENTRIES):
            to = at + MAX_ENTRIES
            yield CellPeers(self._sequence, False, changed[at:to], removed[at:to])
