"""Records and link updates on their way to other cells: what came together leaves together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chappe.cells.directory import Directory
from chappe.cells.neighbour import Neighbour
from chappe.machine import Effect, Send
from chappe.wire.cells import MAX_RECORDS, CellLinks, CellRecord, CellRecords, Heard

NOWHERE = -1  # the port of what was not heard from a neighbour


class Spread:
    """Gathers what is to be passed on, with the port that it came by."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._records: dict[bytes, tuple[CellRecord, int]] = {}
        self._links: dict[bytes, tuple[CellLinks, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._records or self._links)

    def record(self, record: CellRecord, port: int = NOWHERE) -> None:
        """A record is new."""
        self._records[record.id] = (record, port)

    def links(self, message: CellLinks, port: int = NOWHERE) -> None:
        """A link update is new, as it is to be passed on."""
        self._links[message.origin] = (message, port)

    def flush(self, neighbours: Iterable[Neighbour]) -> list[Effect]:
        """Send everything to all that it did not come from."""
        records, self._records = self._records, {}
        links, self._links = self._links, {}
        ports = [each.port for each in neighbours if each.joined]
        effects: list[Effect] = []
        origins = {port for _, port in records.values()}
        for message in self._messages(record for record, _ in records.values()):
            effects += [Send(port, message) for port in ports if origins != {port}]
        for update, origin in links.values():
            effects += [Send(port, update) for port in ports if port != origin]
        return effects

    def everything(self, port: int) -> list[Effect]:
        """All records, for a new neighbour."""
        return [Send(port, message) for message in self._messages(cell.record for cell in self._directory)]

    def _messages(self, records: Iterable[CellRecord]) -> Iterator[CellRecords]:
        heard = tuple(self._heard(record) for record in records)
        for at in range(0, len(heard), MAX_RECORDS):
            yield CellRecords(heard[at : at + MAX_RECORDS])

    def _heard(self, record: CellRecord) -> Heard:
        known = self._directory.get(record.id)
        return (known.hops if known is not None else 0, record)
