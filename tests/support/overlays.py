"""Overlays of cells without messages: links as section 2.3 wants them, adverts exchanged round by round."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from chappe.cells.adverts import Difference, checked
from chappe.cells.names import cell_id, least_gap
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.own_advert import OwnAdvert
from chappe.cells.router import Router
from chappe.cells.trie import Trie, TrieSettings
from chappe.wire.celladverts import Entry

SECOND = 10**9
DEFAULT = TrieSettings()


def updated(advert: OwnAdvert, stamp: int) -> Difference:
    """A whole update at once: what every neighbour is to be told."""
    advert.begin()
    while (difference := advert.step(1_000, stamp)) is None:
        pass
    return difference


class Cell:
    """One cell with all that it decides by."""

    def __init__(self, number: int, names: set[str], radius: int, rng: random.Random, settings: TrieSettings) -> None:
        self.id = cell_id(f"cell{number}")
        self.names = names
        self.trie = Trie(settings)
        self.near = Neighbourhood(self.id, radius)
        self.router = Router(self.names, self.trie, self.near, rng)
        self.advert = OwnAdvert(self.router)


class Overlay:
    """Cells with K smaller and larger neighbours for each name and M random ones."""

    def __init__(
        self,
        names: list[set[str]],
        rng: random.Random,
        *,
        radius: int = 2,
        k: int = 2,
        m: int = 1,
        settings: TrieSettings = DEFAULT,
    ) -> None:
        self.rng = rng
        self.now_ns = SECOND
        self.stamp = 1
        self.cells = {
            cell.id: cell for number, own in enumerate(names) for cell in [Cell(number, own, radius, rng, settings)]
        }
        self.links: dict[bytes, dict[bytes, float]] = {cell: {} for cell in self.cells}
        self._connect(k, m)
        self.flood_links()

    def _connect(self, k: int, m: int) -> None:
        order = sorted((name, cell.id) for cell in self.cells.values() for name in cell.names)
        for cell in self.cells.values():
            for name in cell.names:
                place = bisect_left(order, (name, cell.id))
                for side in (reversed(order[:place]), order[place + 1 :]):
                    others = dict.fromkeys(other for _, other in side if other != cell.id)
                    for other in list(others)[:k]:
                        self.link(cell.id, other)
            for other in self.rng.sample(sorted(self.cells), m if cell.names else m + 1):
                if other != cell.id:
                    self.link(cell.id, other)

    def link(self, a: bytes, b: bytes) -> None:
        for tail, head in ((a, b), (b, a)):
            self.links[tail].setdefault(head, self.rng.choice([float("nan"), 1e5, 1e6, self.rng.uniform(1e4, 1e9)]))

    def flood_links(self) -> None:
        """Every cell hears the links of those within its radius."""
        for cell in self.cells.values():
            cell.near.set_links(cell.id, self.links[cell.id])
            for _ in range(cell.near.radius):
                for other in list(cell.near.hops):
                    cell.near.set_links(other, self.links[other])

    def exchange(self, rounds: int) -> None:
        """Peer updates as differences, to direct neighbours only."""
        for _ in range(rounds):
            self.now_ns += 2 * SECOND
            updates = {cell.id: updated(cell.advert, self.stamp) for cell in self.cells.values()}
            for sender, update in updates.items():
                for neighbour in self.links[sender]:
                    self.hear(self.cells[neighbour], sender, update.changed, update.removed)

    def hear(self, cell: Cell, sender: bytes, changed: tuple[Entry, ...], removed: tuple[str, ...]) -> None:
        for entry in checked(changed):
            if entry.name not in cell.names:
                cell.trie.insert(sender, entry, self.now_ns)
        for name in removed:
            cell.trie.remove(sender, name)

    def neighbours_with(self, id: bytes, prefix: str) -> list[bytes]:
        """The neighbours of a cell that have the prefix, as far as it knows."""
        names_of = self.cells[id].trie.names_of
        return [other for other in self.links[id] if any(name.startswith(prefix) for name in names_of(other))]

    def walk(self, start: bytes, destination: str) -> Iterator[bytes]:
        """The main cells that one parcel passes, until a cell has no route; every path is checked hop by hop."""
        at = self.cells[start]
        yield at.id
        while routes := at.router.routes(destination, self.now_ns):
            route = self.rng.choices(routes, [route.share for route in routes])[0]
            for hop_from, hop_to in zip((at.id, *route.hops), route.hops, strict=False):
                assert hop_to in self.links[hop_from]
            at = self.cells[route.hops[-1]]
            yield at.id

    def gaps(self, trace: list[bytes], destination: str) -> list[int | None]:
        return [least_gap(self.cells[cell].names, destination) for cell in trace]

    def owner(self, name: str) -> bytes:
        return next(cell.id for cell in self.cells.values() if name in cell.names)

    def capacities(self) -> Mapping[tuple[bytes, bytes], float]:
        return {(tail, head): value for tail, heads in self.links.items() for head, value in heads.items()}


def random_names(count: int, rng: random.Random, least: int = 1, most: int = 3) -> list[set[str]]:
    """Names of `count` cells, hierarchical ones among them, all different."""
    used: set[str] = set()
    cells = []
    for _ in range(count):
        own: set[str] = set()
        wanted = rng.randint(least, most)
        while len(own) < wanted:
            parts = [rng.choice("abcdé") + rng.choice("xyz") for _ in range(rng.randint(1, 3))]
            name = ".".join(parts) + str(rng.randrange(1000))
            if name not in used:
                used.add(name)
                own.add(name)
        cells.append(own)
    return cells
