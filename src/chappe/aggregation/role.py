"""The aggregator bound to a client and a store: nothing is decided here, everything is carried out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import structlog

from chappe.aggregation.access import Access
from chappe.aggregation.aggregator import Aggregator, AggregatorInput, ForeignRecords
from chappe.aggregation.alerts import Alerts
from chappe.aggregation.config import Config
from chappe.aggregation.foreign.polling import poll
from chappe.aggregation.storage import Storage
from chappe.client._inbox import Subscription
from chappe.client.client import Client
from chappe.client.process import run_jobs
from chappe.errors import ChappeError
from chappe.machine import Append, Appended, Delivered, Effect, Log, Publish
from chappe.measure.record import Record

log = structlog.get_logger(__name__)
LOOK_S = 1.0  # between two looks at the time, however far the next tick is: orders may have shortened it


class Role:
    """Made with `open`, then `subscribe`, then `serve` until it is over, then `close`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.serving = False
        self.aggregator = Aggregator(config.settings(), Access(config.view), Alerts(config.alert), _utc_ns)
        self._storage = Storage(config, self.aggregator.parties, self._committed)
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Open the store and go on from what is in it; StoreError says what to do."""
        events, records = await self._storage.open()
        self.aggregator.restore(events, records)

    async def subscribe(self, client: Client) -> None:
        """Subscribe to reports before this one announces itself."""
        for topic in self.aggregator.topics:
            self._subscriptions.append(await client.subscribe(topic, on_full="block"))

    async def serve(self, client: Client, over: asyncio.Event) -> None:
        """Until it is over; then what was received is stored."""

        async def take(records: Sequence[Record]) -> None:
            await self._give("foreign", ForeignRecords(records), client)

        self.serving = True
        jobs = [self._read(each, client) for each in self._subscriptions]
        jobs += [poll(each, self.config.aggregates.realm, take) for each in self.config.foreign]
        await run_jobs(over, (*jobs, self._tick(client), self._storage.write(), self._storage.prune()))
        await self._storage.commit()
        with contextlib.suppress(ChappeError):
            await client.flush()

    async def close(self) -> None:
        """Close the store."""
        await self._storage.close()

    async def _read(self, subscription: Subscription, client: Client) -> None:
        async for batch in subscription.batches():
            await self._storage.room.wait()
            for message in batch:
                await self._give("mesh", Delivered(str(message.topic), message.body), client)

    async def _tick(self, client: Client) -> None:
        while True:
            await self._carry_out(self.aggregator.tick(time.monotonic_ns()), client)
            left_s = (self.aggregator.next_tick() - time.monotonic_ns()) / 1e9
            await asyncio.sleep(min(max(left_s, 0.001), LOOK_S))

    async def _give(self, source: str, message: AggregatorInput, client: Client) -> None:
        await self._carry_out(self.aggregator.receive(source, message, time.monotonic_ns()), client)

    def _committed(self, number: int) -> None:
        self.aggregator.receive("store", Appended(number), time.monotonic_ns())

    async def _carry_out(self, effects: Sequence[Effect], client: Client) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._storage.append(effect)
                case Publish(topic, body, content_type):
                    await client.publish_wait(topic, body, content_type=content_type)
                case Log(event, level, fields):
                    getattr(log, level)(event, **fields)
                case _:
                    raise TypeError(f"an aggregator asks for {type(effect).__name__}")


def _utc_ns(now_ns: int) -> int:
    return now_ns + time.time_ns() - time.monotonic_ns()
