"""To which cells a cell wants links: near its names, at random, and far away (BF-06 to BF-09)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator

from chappe.cells.directory import Cell, Directory
from chappe.cells.settings import CellSettings
from chappe.cells.trie import Trie

LOOKED_AT = 64  # names to each side before the search for those that can be reached ends


class Topology:
    """Chooses anew whenever it is asked; random and far ones stay chosen as long as they can be had."""

    def __init__(self, me: bytes, settings: CellSettings, directory: Directory, trie: Trie, rng: random.Random) -> None:
        self._me = me
        self._settings = settings
        self._directory = directory
        self._trie = trie
        self._rng = rng
        self._random: list[bytes] = []
        self._far: list[bytes] = []

    def wanted(self, names: Iterable[str], possible: Callable[[Cell], bool]) -> dict[bytes, str]:
        """The cells to have links to, and why; `possible(cell)`: there is a link, or one may be tried."""
        settings = self._settings
        found: dict[bytes, str] = {}
        for name in names:
            for side in (self._trie.before(name), self._trie.after(name)):
                for id in self._nearest(side, possible):
                    found.setdefault(id, "near")
        self._keep(self._random, found, possible)
        self._keep(self._far, found, possible)
        taken = {*found, *self._random, *self._far}
        if len(self._random) < settings.random or len(self._far) < settings.far:
            others = [cell for cell in self._directory if cell.record.id not in taken and possible(cell)]
            others.sort(key=lambda cell: cell.record.id)
            missing = min(settings.random - len(self._random), len(others))
            chosen = self._rng.sample(others, max(0, missing))
            self._random += [cell.record.id for cell in chosen]
            rest = [cell for cell in others if cell not in chosen]
            rest.sort(key=lambda cell: (-cell.hops, cell.record.id))
            self._far += [cell.record.id for cell in rest[: settings.far - len(self._far)]]
        found.update(dict.fromkeys(self._random, "random"))
        found.update(dict.fromkeys(self._far, "far"))
        return dict(list(found.items())[: settings.most_links])

    def near_names(self, names: Iterable[str]) -> Collection[str]:
        """The known names next to the own ones, which are never forgotten."""
        found: set[str] = set()
        for name in names:
            for side in (self._trie.before(name), self._trie.after(name)):
                found.update(other for other, _ in zip(side, range(2 * self._settings.neighbours), strict=False))
        return found

    def _nearest(self, side: Iterator[str], possible: Callable[[Cell], bool]) -> list[bytes]:
        """The first K cells of one side that can be had."""
        found: list[bytes] = []
        for name, _ in zip(side, range(LOOKED_AT), strict=False):
            known = self._trie.find(name)
            cell = self._directory.get(known.cell) if known is not None else None
            if cell is not None and cell.record.id not in found and possible(cell):
                found.append(cell.record.id)
                if len(found) == self._settings.neighbours:
                    break
        return found

    def _keep(self, chosen: list[bytes], near: Collection[bytes], possible: Callable[[Cell], bool]) -> None:
        """Those that are gone, or near by now, make room for others."""
        chosen[:] = [
            id for id in chosen if id not in near and (cell := self._directory.get(id)) is not None and possible(cell)
        ]
