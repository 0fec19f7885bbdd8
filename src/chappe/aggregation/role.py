"""The aggregator bound to a client and a store: nothing is decided here, everything is carried out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from chappe.aggregation import averages
from chappe.aggregation.access import Access
from chappe.aggregation.aggregator import Aggregator, Answered, Keep, KeepEvent, Notice, Output, Party
from chappe.aggregation.alerts import Alerts
from chappe.aggregation.config import Config
from chappe.aggregation.flatfile import FlatFile
from chappe.aggregation.foreign import prometheus, pscheduler
from chappe.aggregation.foreign.mapping import Foreign
from chappe.client._inbox import Subscription
from chappe.client.client import Client
from chappe.client.process import run_jobs
from chappe.errors import ChappeError, StoreError
from chappe.executor import SerialExecutor
from chappe.measure.messages import AlertEvent, Publish
from chappe.measure.record import Record, Refused
from chappe.store.opening import open_records
from chappe.store.records import EVENT_COLUMNS, RecordStore

log = structlog.get_logger(__name__)
PENDING = 200_000  # records that wait for the store; beyond, nothing more is read
PRUNE_S = 600.0
AGAIN_S = 1.0  # after the store has failed
FETCH_S = 10.0
FETCH_BYTES = 16 << 20
DAY_NS = 86_400_000_000_000


class Role:
    """Made with `open`, then `subscribe`, then `serve` until it is over, then `close`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.serving = False
        self.aggregator = Aggregator(config.settings(), Access(config.view), Alerts(config.alert))
        self._store: RecordStore | None = None
        self._flat: FlatFile | None = None
        self._thread = SerialExecutor("store")
        self._subscriptions: list[Subscription] = []
        self._records: list[Record] = []
        self._events: list[AlertEvent] = []
        self._parties: dict[tuple[str, str, str], int] = {}  # when each was last stored
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def open(self) -> None:
        """Open the store and go on from what is in it; StoreError says what to do."""
        await self._thread.run(self._open)

    async def subscribe(self, client: Client) -> None:
        """Subscribe to reports before this one announces itself."""
        for topic in self.aggregator.topics:
            self._subscriptions.append(await client.subscribe(topic, on_full="block"))

    async def serve(self, client: Client, over: asyncio.Event) -> None:
        """Until it is over; then what was heard is stored."""
        self.serving = True
        jobs = [self._read(each, client) for each in self._subscriptions]
        jobs += [self._poll(each, client) for each in self.config.foreign]
        await run_jobs(over, (*jobs, self._tick(client), self._write(), self._prune()))
        await self._commit()
        with contextlib.suppress(ChappeError):
            await client.flush()

    async def close(self) -> None:
        if self._store is not None:
            await self._thread.run(self._store.close)
        self._thread.shutdown()

    def _open(self) -> None:
        of = self.config.aggregates
        self._store = open_records(of.store)
        if of.xml:
            self._flat = FlatFile(of.xml)
        now_ns = time.time_ns()
        self._store.prune(now_ns, self._age_ns, of.keep_rows, everything=True)
        self._store.rules({rule.name: json.dumps(msgspec.to_builtins(rule)) for rule in self.config.alert}, now_ns)
        rows = self._store.open_events()
        self.aggregator.alerts.restore(
            msgspec.convert(dict(zip(EVENT_COLUMNS, row, strict=True)), AlertEvent) for row in rows
        )
        for record in averages.current(self._store):
            self.aggregator.newest[record.link, record.node] = record

    @property
    def _age_ns(self) -> int:
        return int(self.config.aggregates.keep_days * DAY_NS)

    async def _read(self, subscription: Subscription, client: Client) -> None:
        async for batch in subscription.batches():
            await self._room.wait()
            now_ns = time.time_ns()
            for message in batch:
                await self._carry_out(self.aggregator.receive(str(message.topic), message.body, now_ns), client)

    async def _tick(self, client: Client) -> None:
        while True:
            await self._carry_out(self.aggregator.tick(time.time_ns()), client)
            left_s = (self.aggregator.next_ns() - time.time_ns()) / 1e9
            await asyncio.sleep(min(max(left_s, 0.01), 1.0))

    async def _poll(self, foreign: Foreign, client: Client) -> None:
        """Read the results of another system again and again; repeats are known by their time and dropped."""
        while True:
            try:
                text = await asyncio.to_thread(_fetch, foreign.place)
                records, refused = translate_results(foreign, text, time.time_ns())
            except (OSError, ValueError) as error:
                log.warning("a foreign system cannot be read", place=foreign.place, reason=str(error))
            else:
                for line, reason in refused[:3]:
                    log.warning("a foreign result is refused", place=foreign.place, line=line, reason=reason)
                own = [msgspec.structs.replace(each, realm=self.config.aggregates.realm) for each in records]
                await self._carry_out(self.aggregator.foreign(own, time.time_ns()), client)
            await asyncio.sleep(foreign.every_s)

    async def _carry_out(self, outputs: Sequence[Output], client: Client) -> None:
        for output in outputs:
            match output:
                case Keep(records):
                    self._records += records
                    self._something.set()
                    if len(self._records) >= PENDING:
                        self._room.clear()
                case KeepEvent(event):
                    self._events.append(event)
                    self._something.set()
                case Publish(topic, body, content_type):
                    await client.publish_wait(topic, body, content_type=content_type)
                case Answered(request, None):
                    log.warning("a monitor did not answer", node=request.node, action=request.action)
                case Answered(request, reply) if reply is not None and reply.refused:
                    log.warning("a monitor refused", node=request.node, action=request.action, why=reply.refused[:3])
                case Notice(topic, reason):
                    log.warning("refused", topic=topic, reason=reason)

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            await asyncio.sleep(self.config.aggregates.commit_s)  # what comes together is committed together
            try:
                await self._commit()
            except StoreError as error:
                log.error("nothing was stored, it is tried again", reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _commit(self) -> None:
        """Store what waits; it waits on if the store fails."""
        self._something.clear()
        records, events = self._records, self._events
        parties = [
            each for each in self.aggregator.parties.values() if self._parties.get(_place(each)) != each.heard_ns
        ]
        self._records, self._events = [], []
        try:
            new = await self._thread.run(lambda: self._put(records, events, parties))
        except BaseException:
            self._records, self._events = records + self._records, events + self._events
            self._something.set()
            raise
        self._parties.update((_place(each), each.heard_ns) for each in parties)
        self._room.set()
        self.aggregator.committed(new)

    def _put(self, records: Sequence[Record], events: Sequence[AlertEvent], parties: Sequence[Party]) -> int:
        assert self._store is not None
        new = self._store.write(
            [msgspec.structs.astuple(record) for record in records],
            [tuple(getattr(event, column) for column in EVENT_COLUMNS) for event in events],
            [(each.kind, each.name, each.realm, each.heard_ns, json.dumps(each.details)) for each in parties],
            keep_from_ns=time.time_ns() - self._age_ns,
        )
        if self._flat is not None and records:
            self._flat.append(records)
        return new

    async def _prune(self) -> None:
        store, rows = self._store, self.config.aggregates.keep_rows
        assert store is not None
        while True:
            await asyncio.sleep(PRUNE_S)
            try:
                await self._thread.run(lambda: store.prune(time.time_ns(), self._age_ns, rows))
            except StoreError as error:
                log.error("the store was not pruned", reason=str(error))


def translate_results(foreign: Foreign, text: bytes, now_ns: int) -> tuple[list[Record], list[Refused]]:
    """The records of a text of another system."""
    if foreign.kind == "pscheduler":
        return pscheduler.read(text, foreign.link)
    return prometheus.read(text.decode(), foreign.link, foreign.metric, now_ns)


def _fetch(place: str) -> bytes:
    if not place.startswith(("http://", "https://")):
        with Path(place).open("rb") as file:
            return file.read(FETCH_BYTES)
    with urllib.request.urlopen(place, timeout=FETCH_S) as answer:
        text: bytes = answer.read(FETCH_BYTES)
        return text


def _place(party: Party) -> tuple[str, str, str]:
    return party.kind, party.name, party.realm
