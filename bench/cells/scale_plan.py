"""Case scale: topologies and loads from a seed (BF-42): names, lines between pairs, and who is behind a firewall."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chappe.core.sections import Cells, Config, NodeSection
from chappe.linkstate.units import Address
from chappe.sim.build import Design
from chappe.sim.clock import Streams
from chappe.sim.connection import Timing
from chappe.sim.link import Quality
from chappe.sim.network import Network

COUNTRIES = ("at", "ch", "de", "es", "fi", "fr", "it", "nl", "pl", "ro", "se", "uk")
CELLS_A_SITE = 8  # on average
SITES_A_CITY = 4
CITIES_A_COUNTRY = 3
NAMES = (1, 1, 1, 2, 2, 3)  # how many a cell has
HIDDEN = 0.15  # share of the cells that nobody can connect to
SLOWEST, FASTEST = 5e5, 2e7  # bytes a second of a line
NEAR_MS, FAR_MS = 0.5, 40.0  # one way, inside a site and between countries
START_S = 5.0  # in which all cells start
GRAIN_MS = 5.0
UPDATE_S = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """One cell of a plan."""

    cell: str
    names: tuple[str, ...]
    hidden: bool


class Plan:
    """All that a seed decides before anything runs; a line has the same rate and delay whenever it is asked for."""

    def __init__(self, cells: int, seed: int) -> None:
        self._streams = Streams(seed)
        rng = self._streams.of("places")
        sites = _sites(max(1, cells // CELLS_A_SITE))
        self.places = [_place(number, sites, rng) for number in range(cells)]
        self._sites = {place.cell: place.names[0].split(".")[:3] for place in self.places}
        hidden = {place.cell for place in self.places if place.hidden}
        self.network = Network(
            seed, timing=Timing(grain_ms=GRAIN_MS), reachable=lambda one, other: other not in hidden, quality=self.line
        )
        for place in self.places:
            section = Cells(reachable=not place.hidden, update_s=UPDATE_S)
            design = Design(Config(node=NodeSection(name=place.cell), cells=section))
            self.network.add_node(Address((), place.cell), design)
        self._open = [place.cell for place in self.places if not place.hidden]

    def line(self, one: str, other: str) -> Quality:
        """What a line carries from one cell to another; its delay is the same both ways."""
        rng = self._streams.of("rate", one, other)
        rate = SLOWEST * (FASTEST / SLOWEST) ** rng.random()
        both = self._streams.of("delay", *sorted((one, other)))
        common = sum(1 for a, b in zip(self._sites[one], self._sites[other], strict=True) if a == b)
        most = NEAR_MS + (FAR_MS - NEAR_MS) / 4**common
        return Quality(delay_ms=both.uniform(NEAR_MS, most), rate=rate)

    def begin(self) -> None:
        """Start all cells within some seconds; each knows the address of one that comes before it."""
        rng = self._streams.of("start")
        times = sorted(rng.uniform(0, START_S) for _ in self.places)
        for at, (place, when_s) in enumerate(zip(self.places, times, strict=True)):
            known = [cell for cell in self._open[: at + 1] if cell != place.cell and int(cell[1:]) < at]
            self.network.clock.after(when_s, self._start, place.cell, rng.choice(known) if known else "")

    def _start(self, cell: str, known: str) -> None:
        self.network.nodes[cell].start()
        if known:
            self.network.join(known, cell, self.line(known, cell), self.line(cell, known))


def _sites(count: int) -> list[str]:
    found = []
    for number in range(count):
        city = number // SITES_A_CITY
        country = city // CITIES_A_COUNTRY
        kind = COUNTRIES[country % len(COUNTRIES)] + (
            str(country // len(COUNTRIES)) if country >= len(COUNTRIES) else ""
        )
        found.append(f"{kind}.city{city % CITIES_A_COUNTRY}.site{number % SITES_A_CITY}")
    return found


def _place(number: int, sites: list[str], rng: random.Random) -> Place:
    """The first name is where the cell is; further ones may be of another site, as those of a service are."""
    own = [f"{rng.choice(sites)}.m{number}"]
    while len(own) < rng.choice(NAMES):
        own.append(f"{rng.choice(sites)}.s{number}-{len(own)}")
    return Place(f"c{number:04}", tuple(own), number > 0 and rng.random() < HIDDEN)
