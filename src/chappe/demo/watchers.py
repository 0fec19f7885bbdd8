"""The watchers of the demo: all variables at the full rate, a third and a tenth of it, each value checked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from fractions import Fraction
from operator import sub
from typing import Any

import pyarrow  # loaded before the first value comes, not by it

import chappe
from chappe.client._status import StatusStream
from chappe.client.client import Client
from chappe.demo import phasors
from chappe.demo.checks import ValueCheck
from chappe.demo.latencies import Latencies
from chappe.demo.worker import HEARTBEAT_S, REPORT_S, TIMEOUT_S, Orders, tell, until_complete, work


class Watcher:
    """One client that watches every variable at one of `every` rounds."""

    def __init__(self, name: str, every: int, client: Client, stream: StatusStream) -> None:
        self.name = name
        self.client = client
        self.stream = stream
        self.check = ValueCheck(every, 0)
        self.whole = Latencies()
        self.recent = Latencies()
        self._places = {watch.variable_id: place for place, watch in enumerate(stream.watches)}
        granted = {watch.every for watch in stream.watches}
        if granted != {every}:
            raise RuntimeError(f"{name}: asked for one of every {every} values, the node gives one of {granted}")

    @classmethod
    async def open(cls, name: str, every: int, client: Client) -> Watcher:
        variables = [(phasors.PUBLISHER, variable) for variable in phasors.NAMES]
        interval = None if every == 1 else Fraction(every) / phasors.RATE
        stream = await client.watch_many(variables, interval=interval, max_queue=1 << 22, wait_s=TIMEOUT_S)
        return cls(name, every, client, stream)

    async def run(self) -> None:
        """Check whatever comes."""
        async for batch in self.stream.arrow(max_wait=0.05):
            stamps, received = _column(batch, "created").cast("q"), _column(batch, "received").cast("q")
            places = map(self._places.__getitem__, _column(batch, "variable").cast("I"))
            self.check.take(places, stamps, _column(batch, "value").cast("d"))
            sampled = [*map(sub, received[::8], stamps[::8])]
            self.whole.add(sampled)
            self.recent.add(sampled)

    def report(self, latencies: Latencies) -> dict[str, Any]:
        status_lost, _ = self.client.losses
        return {
            "received": self.check.received,
            "p50_ms": latencies.percentile_ms(0.5),
            "p99_ms": latencies.percentile_ms(0.99),
            "dropped": self.stream.dropped + status_lost,
            "problems": self.check.findings.total,
        }


def _column(batch: pyarrow.RecordBatch, name: str) -> memoryview:
    """The bytes of a column of numbers as they lie in memory."""
    column = batch.column(name)
    return memoryview(column.buffers()[1]).cast("B")[: batch.num_rows * column.type.bit_width // 8]


async def watch(url: str, orders: Orders) -> None:
    """Watch, wait for the first round, check until told the last one, then say what was wrong."""
    async with AsyncExitStack() as stack:
        watchers = []
        for name, every in phasors.SPEEDS.items():
            client = await stack.enter_async_context(
                chappe.connect(url, name=name, heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S)
            )
            watchers.append(await Watcher.open(name, every, client))
        tell(ready=True)
        first = (await orders.get())["first"]
        for watcher in watchers:
            watcher.check = ValueCheck(watcher.check.every, first)
        running = [asyncio.create_task(watcher.run()) for watcher in watchers]
        while orders.empty():
            await asyncio.sleep(REPORT_S)
            tell(subscribers={watcher.name: watcher.report(watcher.recent) for watcher in watchers})
            for watcher in watchers:
                watcher.recent = Latencies()
        last = orders.get_nowait()["last"]
        await until_complete(lambda: sum(watcher.check.missing(last) for watcher in watchers))
        results = {}
        for watcher in watchers:
            watcher.check.finish(last)
            check = watcher.check
            results[watcher.name] = {
                **watcher.report(watcher.whole), "expected": check.expected(last), "counts": check.findings.counts,
                "words": check.findings.words, "reconnections": watcher.client.reconnections,
            }  # fmt: skip
        tell(results=results)
        await orders.get()
        for task in running:
            task.cancel()


if __name__ == "__main__":
    work(watch)
