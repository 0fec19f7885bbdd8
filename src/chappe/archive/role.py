"""The archive bound to a client: what it hears becomes rows, and publishers of durable events get confirmations."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from chappe.archive.config import Config
from chappe.archive.confirmations import OWN, DurableEvent, Identity, KnownEvents, confirmations
from chappe.archive.feeds import FEEDS, Feed
from chappe.archive.metrics import Snapshot
from chappe.archive.reader import Reader
from chappe.archive.rows import StoredEvent, event_rows, stored_event
from chappe.archive.schema import input_schema
from chappe.archive.sink import Sink
from chappe.archive.watching import Watching
from chappe.client._inbox import Message, Subscription
from chappe.client.client import Client
from chappe.client.process import run_jobs
from chappe.disk import ensure_folder
from chappe.errors import ChappeError, ConfigError, DeniedError
from chappe.wire.durable import STORE_TOPIC, decode_store_request
from chappe.wire.patterns import Pattern, matches, summarise

log = structlog.get_logger(__name__)
MESSAGES = 8192  # of a topic that are taken at once
MESSAGE_BYTES = 200  # in memory, beside the body
PATTERNS = 1 << 20
FULL = " are free"  # how a broker ends its reason if a channel or router has no room
REBUILT = 1 << 20  # rows that are read at the start for durable events that may come again
RECENT = 1 << 17  # of them that are read for other events: node and archive may have failed together, their memory gone


class Role:
    """Made with `open`, then `subscribe`, then `serve` until it is over, then `close`."""

    def __init__(self, config: Config, feeds: Mapping[str, Feed] = FEEDS) -> None:
        self.config = config
        self.of = config.archive
        self.serving = False
        self.sink = Sink(self.of)
        self.known = KnownEvents()
        self._feeds = [feeds[name] for name in self.of.feeds if name in feeds]
        self._lock: TextIO | None = None
        self._client: Client | None = None
        self._events: list[
            tuple[Subscription, tuple[Pattern, ...]]
        ] = []  # subscriptions, and the patterns of those before
        self._fed: list[tuple[Subscription, Feed]] = []
        self._again: Subscription | None = None
        self._watching: Watching | None = None
        self._left = 0  # messages that were queued at the end, and there was no time to take them
        self._logged_drops: dict[str, int] = {}  # drops that were logged

    async def open(self) -> None:
        """Go on where the log ends; ConfigError and StoreError say what to do."""
        self._lock = _locked(Path(self.of.log))
        await self.sink.open()
        await asyncio.to_thread(self._remember)

    async def subscribe(self, client: Client) -> None:
        """Subscribe to everything before this archive announces itself."""
        self._client = client
        if self.of.durable:
            await _check_confirm(client)
        wanted = summarise((Pattern("s", text) for text in self.of.topics), PATTERNS)
        for number, pattern in enumerate(wanted):
            subscription = await client.subscribe(pattern.text, on_full="drop", since=0)
            self._events.append((subscription, wanted[:number]))
        for feed in self._feeds:
            for topic in feed.topics:
                self._fed.append((await client.subscribe(topic, on_full="drop"), feed))
        if self.of.durable:
            self._again = await client.subscribe(STORE_TOPIC, on_full="drop", since=0)
        self._watching = Watching(self.of, self.sink, client)

    async def hear(self, client: Client, subscribed: Callable[[], None]) -> None:
        """Take in what a broker publishes to its own clients alone; until cancelled."""
        feeds = [(await client.subscribe(topic, on_full="drop"), feed) for feed in self._feeds if feed.at_brokers
                 for topic in feed.topics]  # fmt: skip
        assert self._watching is not None
        self._watching.brokers.append(client)
        subscribed()
        try:
            await asyncio.gather(*(self._read_feed(*each) for each in feeds))
            if not feeds:
                await asyncio.Event().wait()
        finally:
            self._watching.brokers.remove(client)

    async def serve(self, client: Client, over: asyncio.Event) -> None:
        """Until it is over; then what was heard is stored."""
        self.serving = True
        assert self._watching is not None
        jobs = [self._read_events(*each) for each in self._events]
        jobs += [self._read_feed(*each) for each in self._fed]
        if self._again is not None:
            jobs.append(self._read_again(self._again))
        arrived = asyncio.Event()
        ending = self._await_arrival(client, over, arrived)
        await run_jobs(arrived, (*jobs, self._watching.run(), self._report(client), self.sink.run(), ending))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.of.drain_timeout_s):
                await self._take_rest()
        self._watching.leave_rest()
        self._left = sum(len(queue) for queue in self._queues)
        await self.sink.close()
        with contextlib.suppress(ChappeError):
            self._publish_report(client)
            await client.flush(self.of.commit_ms / 1e3 + 5.0)

    async def close(self) -> None:
        await self.sink.close()
        if self._lock is not None:
            self._lock.close()

    def counters(self) -> dict[str, Any]:
        """What it has done, by dataset."""
        sink = self.sink
        return {
            "archive": self.of.name, "stored": dict(sink.stored), "dropped": dict(sink.dropped),
            "refused": dict(sink.refused), "ends": dict(sink.ends), "waiting_bytes": sink.waiting,
            "queue_dropped": sum(queue.dropped for queue in self._queues) + self._left,
            "watch_dropped": self._watching.dropped if self._watching is not None else 0,
            "gave_way": self._watching.gave_way if self._watching is not None else 0,
            "lost_by_node": dict(zip(("status", "events"), self._client.losses, strict=True)) if self._client else {},
        }  # fmt: skip

    def snapshot(self) -> Snapshot:
        """What it has done and what waits, for /metrics."""
        sink, watching, client = self.sink, self._watching, self._client
        queues = [("events", each) for each, _ in self._events] + [(feed.dataset, each) for each, feed in self._fed]
        if self._again is not None:
            queues.append(("events", self._again))
        queued, full = Counter[str](), Counter[str]()
        for dataset, queue in queues:
            queued[dataset] += len(queue)
            full[dataset] += queue.dropped
        if watching is not None:
            queued["status"], full["status"] = watching.queued, watching.dropped
        full["events"] += self._left
        lost = dict(zip(("status", "events"), client.losses, strict=True)) if client is not None else {}
        reasons = {"no_room": sink.dropped, "malformed": sink.refused, "queue_full": full, "lost_by_node": lost}
        return Snapshot(
            self.of.name, sink.stored, sink.bytes, sink.ends,
            {(dataset, reason): count for reason, counts in reasons.items() for dataset, count in counts.items()},
            queued, sink.waiting, sink.lag_s, sink.synced_ns / 1e9,
            client is not None and client.state == "connected",
            not sink.problem, sink.sync_failures, sink.damaged,
        )  # fmt: skip

    @property
    def _queues(self) -> list[Subscription]:
        """Of subscriptions."""
        queues = [each for each, _ in (*self._events, *self._fed)]
        return queues if self._again is None else [*queues, self._again]

    async def _await_arrival(self, client: Client, over: asyncio.Event, arrived: asyncio.Event) -> None:
        """When it is over, read until the node has answered: what it sent before lies before the answer."""
        await over.wait()
        if client.state == "connected":
            with contextlib.suppress(ChappeError):
                await client.flush(self.of.drain_timeout_s)
        arrived.set()

    # --- what comes

    async def _read_events(self, subscription: Subscription, earlier: Sequence[Pattern]) -> None:
        async for messages in subscription.batches(MESSAGES):
            self._take_events(messages, earlier)

    def _take_events(self, messages: Sequence[Message], earlier: Sequence[Pattern]) -> None:
        """Rows of messages that no other subscription of this archive takes."""
        events = []
        durable = []
        repeated = []
        taken: dict[str, bool] = {}  # by topic, of which there are few beside the messages
        for message in messages:
            topic = str(message.topic)
            wanted = taken.get(topic)
            if wanted is None:
                wanted = taken[topic] = self._takes_event(topic, earlier)
            if not wanted:
                continue
            marked = self.of.durable and message.durable
            if marked:
                event = DurableEvent(Identity(*message.identifier), message.origin or "")
                known = self.known.record_arrival(event.identity)
                if known is not None:
                    repeated += [event] * known
                    continue
                durable.append(event)
            elif self.known.is_stored(message.issuer, message.epoch, message.sequence):
                continue
            events.append(stored_event(message, marked))
        self._put_events(events, durable)
        self._acknowledge(repeated)

    async def _read_again(self, subscription: Subscription) -> None:
        async for messages in subscription.batches(MESSAGES):
            self._take_again(messages)

    def _take_again(self, messages: Sequence[Message]) -> None:
        """DurableEvent events of which their publisher has heard nothing."""
        events = []
        durable = []
        repeated = []
        for message in messages:
            try:
                store = decode_store_request(message.body)
            except ChappeError as error:
                log.warning("refused", reason=str(error))
                self.sink.refused["events"] += 1
                continue
            for was in store.events:
                event = DurableEvent(Identity(message.issuer, store.epoch, was.sequence), message.origin or "")
                known = self.known.record_arrival(event.identity)
                if known is None:
                    events.append(StoredEvent(was.topic, was.kind, *event.identity, was.created, was.body, True))
                    durable.append(event)
                elif known:
                    repeated.append(event)
        self._put_events(events, durable)
        self._acknowledge(repeated)

    def _put_events(self, events: list[StoredEvent], durable: list[DurableEvent]) -> None:
        if not events:
            return
        assert self._client is not None
        size = sum(len(each.body) for each in events) + len(events) * MESSAGE_BYTES
        make = partial(event_rows, events, self._client.node_name, time.time_ns())
        on_settled = partial(self._settled, durable) if durable else None
        if not self.sink.put("events", len(events), size, make, on_settled):
            self.known.settle((each.identity for each in durable), stored=False)

    def _settled(self, durable: Sequence[DurableEvent], stored: bool) -> None:
        self.known.settle((each.identity for each in durable), stored)
        if stored:
            self._acknowledge(durable)

    def _acknowledge(self, durable: Sequence[DurableEvent]) -> None:
        """Confirm to publishers; one that gets no confirmation sends again."""
        assert self._client is not None
        for address, body in confirmations(self.of.name, durable):
            self._client.publish(address, body)

    async def _read_feed(self, subscription: Subscription, feed: Feed) -> None:
        async for messages in subscription.batches(MESSAGES):
            self._take_feed(messages, feed)

    def _take_feed(self, messages: Sequence[Message], feed: Feed) -> None:
        size = sum(len(message.body) for message in messages) + len(messages) * MESSAGE_BYTES
        pairs = [(str(message.topic), message.body) for message in messages]
        self.sink.put(feed.dataset, len(pairs), size, partial(self._fed_rows, pairs, feed, time.time_ns()))
        crowded = feed.dataset == "broker" and any(self._crowded(topic, body, feed) for topic, body in pairs)
        if crowded and self._watching is not None:
            self._watching.give_way()

    def _crowded(self, topic: str, body: bytes, feed: Feed) -> bool:
        """Whether a broker refused somebody else because a channel or router is full."""
        if FULL.encode() not in body:
            return False
        try:
            rows = feed.rows(topic, body, 0)
        except ChappeError:
            return False  # counted where it becomes a row
        refused = (json.loads(str(row["detail"])) for row in rows if str(row["action"]).endswith("_refused"))
        return any(str(of.get("reason")).endswith(FULL) and of.get("entity") != self.of.name for of in refused)

    def _fed_rows(self, messages: Sequence[tuple[str, bytes]], feed: Feed, received_ns: int) -> pa.RecordBatch:
        """Rows of all messages that are well-formed; one that is not is counted and costs no other."""
        schema = input_schema(feed.dataset)
        found = []
        for topic, body in messages:
            try:
                rows = feed.rows(topic, body, received_ns)
                found.append(pa.RecordBatch.from_pylist(rows, schema=schema))
                found[-1].validate(full=True)
            except (ChappeError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
                self.sink.refused[feed.dataset] += 1
                log.warning("a message is refused", topic=topic, reason=str(error))
        return pa.Table.from_batches(found, schema=schema).combine_chunks().to_batches()[0] if found else _none(schema)

    def _takes_event(self, topic: str, earlier: Sequence[Pattern]) -> bool:
        """Whether an event is a row of its own: no other subscription takes it, and it is nothing that a feed reads."""
        others = (*earlier, *(Pattern("s", text) for feed in self._feeds for text in feed.topics))
        return not topic.startswith(OWN) and not any(matches(each, "s", topic.encode()) for each in others)

    async def _take_rest(self) -> None:
        """What has come and was not read before the end: events first, somebody may wait for them."""
        for subscription, earlier in self._events:
            while messages := subscription.take_nowait(MESSAGES):
                self._take_events(messages, earlier)
                await self.sink.room()
        if self._again is not None:
            while messages := self._again.take_nowait(MESSAGES):
                self._take_again(messages)
                await self.sink.room()
        for subscription, feed in self._fed:
            while messages := subscription.take_nowait(MESSAGES):
                self._take_feed(messages, feed)
                await self.sink.room()
        assert self._watching is not None
        await self._watching.take_rest()

    # --- beside it

    async def _report(self, client: Client) -> None:
        """Publish what was stored and dropped; a drop is logged, too."""
        while True:
            await asyncio.sleep(self.of.report_s)
            self._publish_report(client)

    def _publish_report(self, client: Client) -> None:
        counters = self.counters()
        if client.state == "connected":  # a report that nobody hears would wait, and there is another one soon
            client.publish(f"archive/report/{self.of.name}", json.dumps(counters).encode(), 6)
        self._log_drops(counters)

    def _log_drops(self, counters: Mapping[str, Any]) -> None:
        drops = {**counters["dropped"], "queue": counters["queue_dropped"], "watch": counters["watch_dropped"]}
        new = {
            name: count - self._logged_drops.get(name, 0)
            for name, count in drops.items()
            if count > self._logged_drops.get(name, 0)
        }
        if new:
            log.warning("rows were dropped: there was no room", **new)
        self._logged_drops = drops

    def _remember(self) -> None:
        """Events that are stored already and may be sent again: durable ones, and the last of all."""
        reader = Reader(self.sink.segments, Path(self.of.log))
        begin, end = reader.begin("events"), reader.end("events")
        recent = max(begin, end - RECENT)
        if self.of.durable:
            self._remember_range(reader, max(begin, end - REBUILT), recent, durable=True)
        self._remember_range(reader, recent, end, durable=False)

    def _remember_range(self, reader: Reader, start: int, stop: int, *, durable: bool) -> None:
        for piece in reader.plan("events", start, stop, skip_missing=True):
            try:
                for rows in reader.read_piece(piece, ("issuer", "epoch", "sequence", "durable")):
                    chosen = rows.filter(pc.fill_null(rows.column("durable"), False)) if durable else rows
                    self._remember_rows(chosen)
            except ChappeError as error:  # what cannot be read is not known: an event of it may be stored once more
                log.error("stored events cannot be read", reason=str(error))

    def _remember_rows(self, rows: pa.RecordBatch) -> None:
        for issuer, epoch, sequence in zip(*(rows.column(place).to_pylist() for place in range(3)), strict=True):
            if issuer:
                identity = Identity(issuer, epoch, sequence)
                self.known.record_arrival(identity)
                self.known.settle((identity,), stored=True)


async def _check_confirm(client: Client) -> None:
    """DeniedError unless it may confirm what it stores: publishers would wait for nothing."""
    try:
        await client.check_right("confirm", "#")
    except DeniedError as everywhere:
        try:
            await client.check_right("confirm", client.address)
        except DeniedError:
            raise DeniedError(
                f"the archive may not confirm durable events, and their publishers would wait for nothing: {everywhere}"
                "\nor store without confirming: archive.durable = false"
            ) from None


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _locked(folder: Path) -> TextIO:
    """A lock that ends with this process; ConfigError if another one has it."""
    ensure_folder(folder)
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigError(f"archive.log: another archive writes to {folder}; give each a folder of its own") from None
    return file
