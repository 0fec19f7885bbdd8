"""What a node knows about variables: by name and by id, who publishes them and where they come from."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from chappe.core.demand import Demand
from chappe.core.table import Table
from chappe.wire.control import DemandTerm, Variable

COUNTERS = 1 << 22  # ids of one leaf
BLOCK = 64  # ids of a publisher begin at a multiple
ATTEMPTS = 1000  # places looked at for a free id: where all are taken, few are free
PATHS, FLOODED, PLACED = 1, 2, 4  # why brokers keep an entry
STATIC_PATHS = 1 << 30  # paths of the configuration are numbered from here, those of brokers from 1


@dataclass(slots=True)
class Entry:
    """A variable and everybody at this node who has to do with it; ports are numbers of the engine."""

    variable: Variable
    owner: int = -1  # port of the client that registered it
    owner_name: str = ""  # kept while the client is away; empty: nobody is expected back
    inputs: tuple[int, ...] = ()  # ports of peers that announced it
    watchers: dict[int, int] = field(default_factory=dict)  # port -> path
    routes: dict[tuple[str, int], DemandTerm] = field(default_factory=dict)  # (static route, port) -> what it allows
    demand: Demand | None = None  # made when somebody wants it
    next_path: int = STATIC_PATHS
    held: int = 0  # bits of PATHS, FLOODED, PLACED
    sources: tuple[int, ...] = ()  # ports that paths of brokers come from
    origin: str = ""  # address of the node in the mesh where it is published; empty: this one
    rooted: bool = False  # it counts as published here
    sought: bool = False  # it is looked for in the mesh, for its watchers
    away_since_ns: int = 0  # since when nobody publishes it; 0: somebody does

    @property
    def name(self) -> tuple[str, str]:
        return self.variable.publisher, self.variable.variable

    @property
    def published(self) -> bool:
        """Whether there is anybody its events may come from."""
        return self.owner >= 0 or bool(self.inputs) or bool(self.sources)

    @property
    def located(self) -> bool:
        """Whether it is known where in the mesh it is published, here or elsewhere: of paths of brokers it is not."""
        return bool(self.origin) or self.rooted

    def permits(self, port: int) -> bool:
        """Whether its events may come from that port."""
        return port == self.owner or port in self.inputs or port in self.sources

    def only_from(self, port: int) -> bool:
        """Whether that peer is the only one it may come from."""
        return self.owner < 0 and self.inputs == (port,) and not self.sources

    def targets(self) -> set[int]:
        """Ports of peers it is forwarded to."""
        return {port for _, port in self.routes}

    def path(self) -> int:
        """A number that no path of this variable has had."""
        number = self.next_path
        self.next_path += 1
        return number


class Directory:
    """Variables by (publisher, variable) and by id; issues ids of one leaf."""

    def __init__(self, leaf: int) -> None:
        self.publishers: Table[str, int] = Table()  # how many variables each has
        self.types: Table[str, int] = Table()
        self._leaf = leaf
        self._next: dict[str, int] = {}  # publisher -> counter of its next id
        self._by_name: dict[tuple[str, str], Entry] = {}
        self._by_id: Table[int, Entry] = Table()

    def __len__(self) -> int:
        return len(self._by_id)

    def named(self, publisher: str, variable: str) -> Entry | None:
        return self._by_name.get((publisher, variable))

    def numbered(self, variable_id: int) -> Entry | None:
        return self._by_id.get(variable_id)

    def walk(self) -> Iterator[Entry]:
        """All entries, for whoever pauses on the way: some may come and go meanwhile."""
        for _, entry in self._by_id.walk():
            yield entry

    def add(self, entry: Entry) -> Entry:
        """Remember it; its id must be free. An older variable of the same name is known by its id alone from now on."""
        assert entry.variable.variable_id not in self._by_id
        self._by_name[entry.name] = entry
        self._by_id[entry.variable.variable_id] = entry
        self._count(entry.variable, 1)
        return entry

    def replace(self, entry: Entry, variable: Variable) -> None:
        """Its rate, type or priority is another now; name and id stay."""
        self._count(entry.variable, -1)
        entry.variable = variable
        self._count(variable, 1)

    def remove(self, entry: Entry) -> None:
        if self._by_name.get(entry.name) is entry:
            del self._by_name[entry.name]
        del self._by_id[entry.variable.variable_id]
        self._count(entry.variable, -1)
        if entry.variable.publisher not in self.publishers:
            self._next.pop(entry.variable.publisher, None)

    def issue(self, publisher: str) -> int | None:
        """A free id of this leaf, None if there is none.

        The ids of a publisher follow each other from a place that depends on its name: they are neighbours in the
        status table, and a node that lost its memory issues them again in whatever order its publishers come back.
        Where the next one is taken it goes on at another place, so that names chosen to meet cost no search.
        """
        counter = self._next.get(publisher)
        for attempt in range(ATTEMPTS):
            if counter is None:
                name = publisher if not attempt else f"{publisher}/{attempt}"
                counter = zlib.crc32(name.encode()) % (COUNTERS // BLOCK) * BLOCK
            number = self._leaf << 22 | counter % COUNTERS
            if number and number not in self._by_id:
                self._next[publisher] = counter + 1
                return number
            counter = counter + 1 if not number else None
        return None

    def _count(self, variable: Variable, change: int) -> None:
        for counter, key in ((self.publishers, variable.publisher), (self.types, variable.type)):
            count = (counter.get(key) or 0) + change
            if count:
                counter[key] = count
            else:
                del counter[key]
