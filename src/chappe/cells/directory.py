"""The records of all known cells: which is newer, which have failed, and whose names are whose (BF-01, BF-04)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from chappe.cells.names import cell_id, check_name
from chappe.wire.cells import CellRecord
from chappe.wire.parcels import MAX_HOPS

AHEAD_MS = 86_400_000  # a clock may be a day ahead; a sequence beyond is none that a cell would give
NAMES_EACH = 4  # on average
OUTLIVED = 4  # so many times the cells that are known are remembered by their last sequence

Outcome = Literal["new", "old", "invalid", "collision", "self"]


@dataclass(slots=True, eq=False)
class Cell:
    """A cell that is alive, as far as anybody knows."""

    record: CellRecord
    hops: int  # that its last record came over
    heard_ns: int

    @property
    def name(self) -> str:
        """Of its node."""
        return self.record.address.rpartition("/")[2]


class Directory:
    """At most `most` cells are kept, with four names each on average.

    A sequence is a time in ms, so that a cell that has restarted is newer.
    """

    def __init__(self, me: bytes, most: int) -> None:
        self._me = me
        self._most = most
        self._cells: dict[bytes, Cell] = {}
        self._heard: OrderedDict[bytes, tuple[int, bool]] = OrderedDict()  # the last sequence, and whether alive
        self._owners: dict[str, set[bytes]] = {}
        self._names = 0  # of all records
        self.full = 0  # records for which there was no room

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells.values())

    def __contains__(self, id: bytes) -> bool:
        return id in self._cells

    def get(self, id: bytes) -> Cell | None:
        return self._cells.get(id)

    def owners(self, name: str) -> list[tuple[int, bytes]]:
        """The cells that have a name, with its stamp: the one that counts is first."""
        found = [
            (stamp, id)
            for id in self._owners.get(name, ())
            for named, stamp in self._cells[id].record.names
            if named == name
        ]
        return sorted(found, key=lambda owner: (-owner[0], owner[1]))

    def insert(self, record: CellRecord, hops: int, now_ns: int, wall_ms: int) -> Outcome:
        """Take a record: `new` is to be passed on, all else is not."""
        known = self._cells.get(record.id)
        if known is not None and known.record == record:  # as each new link says it again
            known.hops = min(known.hops, hops)
            return "old"
        if record.id != cell_id(record.address) or not _valid(record) or record.sequence > wall_ms + AHEAD_MS:
            return "invalid"
        if record.id == self._me:
            return "self"
        if known is not None and known.record.address != record.address:
            return "collision"
        sequence, alive = self._heard.get(record.id, (-1, True))
        if record.sequence < sequence or (record.sequence == sequence and (record.alive or not alive)):
            if known is not None and record.alive and record.sequence == sequence:
                known.hops = min(known.hops, hops)
            return "old"
        if record.alive and not self._room(record, known):
            self.full += 1
            return "old"
        self._remember(record)
        if known is not None:
            self._drop(record.id)
        if record.alive:
            self._cells[record.id] = Cell(record, min(hops, MAX_HOPS), now_ns)
            self._names += len(record.names)
            for name, _ in record.names:
                self._owners.setdefault(name, set()).add(record.id)
        return "new"

    def failed(self, id: bytes) -> CellRecord | None:
        """A cell does not answer any more: the record that says so, to be passed on."""
        known = self._cells.get(id)
        if known is None:
            return None
        record = msgspec.structs.replace(known.record, alive=False, urls=(), names=())
        self._remember(record)
        self._drop(id)
        return record

    def expire(self, before_ns: int) -> list[Cell]:
        """Forget the cells of which nothing was heard since then; which they were."""
        gone = [known for known in self._cells.values() if known.heard_ns < before_ns]
        for known in gone:
            self._drop(known.record.id)
        return gone

    def _room(self, record: CellRecord, known: Cell | None) -> bool:
        if known is None:
            return len(self._cells) < self._most and self._names + len(record.names) <= NAMES_EACH * self._most
        more = len(record.names) - len(known.record.names)
        return more <= 0 or self._names + more <= NAMES_EACH * self._most

    def _drop(self, id: bytes) -> None:
        names = self._cells.pop(id).record.names
        self._names -= len(names)
        for name, _ in names:
            owners = self._owners[name]
            owners.discard(id)
            if not owners:
                del self._owners[name]

    def _remember(self, record: CellRecord) -> None:
        self._heard[record.id] = (record.sequence, record.alive)
        self._heard.move_to_end(record.id)
        if len(self._heard) > OUTLIVED * self._most:
            self._heard.popitem(last=False)


def _valid(record: CellRecord) -> bool:
    try:
        for name, _ in record.names:
            check_name(name)
    except ValueError:
        return False
    return len({name for name, _ in record.names}) == len(record.names)
