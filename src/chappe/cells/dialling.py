"""Brings the links of a cell to what its topology wants: dials, hangs up, and tells neighbours (BF-06, BF-07)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from chappe.cells.directory import Cell, Directory
from chappe.cells.neighbour import Neighbour
from chappe.cells.own_names import OwnNames
from chappe.cells.reachability import Reachability
from chappe.cells.settings import CellSettings
from chappe.cells.topology import Topology
from chappe.machine import NEVER, Dial, Effect, HangUp, Send
from chappe.wire.cells import CellWanted


class Dialling:
    """A link that is there is used, whoever opened it. Only what this end dialled does it hang up."""

    def __init__(
        self, settings: CellSettings, directory: Directory, topology: Topology, reachability: Reachability,
        names: OwnNames, neighbours: Mapping[int, Neighbour],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._directory = directory
        self._topology = topology
        self._reachability = reachability
        self._names = names
        self._neighbours = neighbours
        self._dialled: dict[bytes, Dial] = {}
        self._unwanted_ns: dict[bytes, int] = {}  # since when
        self.wanted: dict[bytes, str] = {}  # and why

    @property
    def dialled(self) -> Mapping[bytes, Dial]:
        """The cells that are dialled, connected or not."""
        return self._dialled

    def connected(self, neighbour: Neighbour) -> None:
        """A cell has said hello."""
        self._reachability.connected(neighbour.id)

    def lost(self, id: bytes, now_ns: int) -> None:
        """The link to a cell is gone: if it was dialled, it is dialled again, for a while."""
        if id in self._dialled:
            self._reachability.dialled(id, now_ns)

    def failed(self, id: bytes) -> list[Effect]:
        """A cell is no more."""
        self._reachability.forget(id)
        return self._hang_up(id)

    def near_names(self) -> Collection[str]:
        """The known names next to the own ones."""
        return self._topology.near_names(self._names)

    def next_ns(self) -> int:
        """When an attempt is given up."""
        return self._reachability.next_ns(self._dialled.keys() - self._linked().keys()) if self._reachability else NEVER

    def follow(self, now_ns: int) -> list[Effect]:
        """Choose anew, and do what follows."""
        linked = self._linked()
        effects: list[Effect] = []
        for id in self._reachability.given_up(self._dialled.keys() - linked.keys(), now_ns):
            effects += self._hang_up(id)

        def possible(cell: Cell) -> bool:
            record = cell.record
            if record.id in linked:
                return True
            return record.reachable and bool(record.urls) and self._reachability.permits(record.id, now_ns)

        self.wanted = self._topology.wanted(self._names, possible)
        for id in self.wanted:
            if id not in linked:
                effects += self._dial(id, now_ns)
        for id, neighbour in linked.items():
            if neighbour.wanted is not (id in self.wanted):
                neighbour.wanted = id in self.wanted
                effects.append(Send(neighbour.port, CellWanted(neighbour.wanted)))
        for id in list(self._dialled):
            if not self._needed(id, linked.get(id), now_ns):
                effects += self._hang_up(id)
        return effects

    def _needed(self, id: bytes, neighbour: Neighbour | None, now_ns: int) -> bool:
        if id in self.wanted or (neighbour is not None and neighbour.wants):
            self._unwanted_ns.pop(id, None)
            return True
        since_ns = self._unwanted_ns.setdefault(id, now_ns)
        return now_ns < since_ns + self._settings.reluctance * self._settings.update_ns

    def _dial(self, id: bytes, now_ns: int) -> list[Effect]:
        cell = self._directory.get(id)
        assert cell is not None
        dial, before = Dial(cell.name, cell.record.urls), self._dialled.get(id)
        if dial == before:
            return []
        self._dialled[id] = dial
        if before is None:
            self._reachability.dialled(id, now_ns)
        return [dial]

    def _hang_up(self, id: bytes) -> list[Effect]:
        self._unwanted_ns.pop(id, None)
        dial = self._dialled.pop(id, None)
        return [] if dial is None else [HangUp(dial.name)]

    def _linked(self) -> dict[bytes, Neighbour]:
        return {each.id: each for each in self._neighbours.values() if each.joined}
