"""The store of an aggregator: what is appended to it waits, and is committed together in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from chappe.aggregation import averages
from chappe.aggregation.aggregator import Party
from chappe.aggregation.config import Config
from chappe.aggregation.flatfile import FlatFile
from chappe.errors import StoreError
from chappe.executor import SerialExecutor
from chappe.machine import Append
from chappe.measure.messages import AlertEvent
from chappe.measure.record import Record
from chappe.store.opening import open_records
from chappe.store.records import EVENT_COLUMNS, RecordStore

log = structlog.get_logger(__name__)
PENDING = 200_000  # records that wait for the store; beyond, there is no room
PRUNE_S = 600.0
AGAIN_S = 1.0  # after the store has failed
DAY_NS = 86_400_000_000_000

Place = tuple[str, str, str]
Parties = Mapping[Place, Party]


class Storage:
    """Opened with `open`; `write` and `prune` run until cancelled, then `commit` stores the rest, then `close`."""

    def __init__(self, config: Config, parties: Parties, committed: Callable[[int], None]) -> None:
        """`parties`: stored with each commit as far as they have changed; `committed` gets how much was new."""
        self._config = config
        self._parties = parties
        self._committed = committed
        self._store: RecordStore | None = None
        self._flat: FlatFile | None = None
        self._thread = SerialExecutor("store")
        self._records: list[Record] = []
        self._alerts: list[AlertEvent] = []
        self._heard: dict[Place, int] = {}  # when each party that is stored was last heard of
        self._something = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    async def open(self) -> tuple[list[AlertEvent], list[Record]]:
        """Alerts that are raised and the newest record of each link, as last stored; StoreError says what to do."""
        return await self._thread.run(self._open)

    def append(self, what: Append) -> None:
        """Store this with the next commit; whoever appends waits for `room` first."""
        self._records += (each for each in what.items if isinstance(each, Record))
        self._alerts += (each for each in what.items if isinstance(each, AlertEvent))
        self._something.set()
        if len(self._records) >= PENDING:
            self.room.clear()

    async def write(self) -> None:
        """Commit what waits, again and again."""
        while True:
            await self._something.wait()
            await asyncio.sleep(self._config.aggregates.commit_s)  # what comes together is committed together
            try:
                await self.commit()
            except StoreError as error:
                log.error("nothing was stored, it is tried again", reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def commit(self) -> None:
        """Store what waits; it waits on if the store fails."""
        self._something.clear()
        records, alerts = self._records, self._alerts
        self._records, self._alerts = [], []
        parties = [each for place, each in self._parties.items() if self._heard.get(place) != each.heard_ns]
        heard = {(each.kind, each.name, each.realm): each.heard_ns for each in parties}
        try:
            new = await self._thread.run(lambda: self._put(records, alerts, parties))
        except BaseException:
            self._records, self._alerts = records + self._records, alerts + self._alerts
            self._something.set()
            raise
        self._heard |= heard
        self.room.set()
        self._committed(new)

    async def prune(self) -> None:
        """Remove what is too old or too much, again and again."""
        store, rows = self._store, self._config.aggregates.keep_rows
        assert store is not None
        while True:
            await asyncio.sleep(PRUNE_S)
            try:
                await self._thread.run(lambda: store.prune(time.time_ns(), self._age_ns, rows))
            except StoreError as error:
                log.error("the store was not pruned", reason=str(error))

    async def close(self) -> None:
        """Close the store; what waits is not stored any more."""
        if self._store is not None:
            await self._thread.run(self._store.close)
        self._thread.shutdown()

    @property
    def _age_ns(self) -> int:
        return int(self._config.aggregates.keep_days * DAY_NS)

    def _open(self) -> tuple[list[AlertEvent], list[Record]]:
        of = self._config.aggregates
        self._store = open_records(of.store)
        if of.xml:
            self._flat = FlatFile(of.xml)
        now_ns = time.time_ns()
        self._store.prune(now_ns, self._age_ns, of.keep_rows, everything=True)
        self._store.rules({rule.name: json.dumps(msgspec.to_builtins(rule)) for rule in self._config.alert}, now_ns)
        rows = self._store.open_events()
        events = [msgspec.convert(dict(zip(EVENT_COLUMNS, row, strict=True)), AlertEvent) for row in rows]
        return events, list(averages.current(self._store))

    def _put(self, records: Sequence[Record], alerts: Sequence[AlertEvent], parties: Sequence[Party]) -> int:
        assert self._store is not None
        new = self._store.write(
            [msgspec.structs.astuple(record) for record in records],
            [tuple(getattr(event, column) for column in EVENT_COLUMNS) for event in alerts],
            [(each.kind, each.name, each.realm, each.heard_ns, json.dumps(each.details)) for each in parties],
            keep_from_ns=time.time_ns() - self._age_ns,
        )
        if self._flat is not None and records:
            self._flat.append(records)
        return new
