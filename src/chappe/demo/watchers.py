"""The watchers of the demo: all variables with different quality, each value checked; and the condensed one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from fractions import Fraction
from operator import sub
from typing import Any

import numpy  # noqa: F401  as pyarrow: loaded before the first value comes, not by it
import pyarrow

import chappe
from chappe.client._status import StatusStream
from chappe.client.client import Client
from chappe.demo import phasors
from chappe.demo.checks import ValueCheck
from chappe.demo.latencies import Latencies
from chappe.demo.schedule import Schedule
from chappe.demo.worker import HEARTBEAT_S, TIMEOUT_S, Orders, report_until, send_report, until_complete, work

CONDENSED = "condensed"


class Watcher:
    """One client that watches variables; its check knows what must come."""

    def __init__(self, name: str, client: Client, stream: StatusStream, check: ValueCheck) -> None:
        self.name = name
        self.client = client
        self.stream = stream
        self.check = check
        self.whole = Latencies()
        self.recent = Latencies()
        self._places = {watch.variable_id: place for place, watch in enumerate(stream.watches)}

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

    def result(self, last: int) -> dict[str, Any]:
        """How it went up to that round."""
        self.check.finish(last)
        found = self.check.findings
        return {
            **self.report(self.whole), "expected": self.check.expected(last), "extra": self.check.extra,
            "counts": found.counts, "words": found.words, "reconnections": self.client.reconnections,
        }  # fmt: skip


def _column(batch: pyarrow.RecordBatch, name: str) -> memoryview:
    """The bytes of a column of numbers as they lie in memory."""
    column = batch.column(name)
    return memoryview(column.buffers()[1]).cast("B")[: batch.num_rows * column.type.bit_width // 8]


def quality(speed: phasors.Speed) -> dict[int, chappe.Qos]:
    """What a watcher asks for, by mode."""
    found = {}
    for mode in (phasors.NORMAL, phasors.EMERGENCY):
        every = speed.every(mode)
        if every:
            interval = None if every == 1 else Fraction(every) / phasors.RATE
            found[mode] = chappe.Qos(interval=interval, redundancy=speed.redundancy)
    return found


async def _open(stack: AsyncExitStack, url: str, name: str) -> Client:
    client = chappe.connect(url, name=name, heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S)
    return await stack.enter_async_context(client)


async def _speedy(stack: AsyncExitStack, url: str, name: str, speed: phasors.Speed) -> Watcher:
    client = await _open(stack, url, name)
    variables = [(phasors.PUBLISHER, variable) for variable in phasors.NAMES]
    stream = await client.watch_many(variables, qos=quality(speed), max_queue=1 << 22, wait_s=TIMEOUT_S)
    for watch in stream.watches:
        granted = {mode: (grant.every, grant.redundancy) for mode, grant in watch.granted.items()}
        asked = {mode: (speed.every(mode), speed.redundancy) for mode in quality(speed)}
        if granted != asked:
            raise RuntimeError(f"{name}: asked for {asked} (one of, paths), got {granted} for {watch.variable}")
    return Watcher(name, client, stream, ValueCheck(Schedule(0, 0), phasors.VARIABLES, phasors.value))


async def watch(urls: dict[str, str], orders: Orders) -> None:
    """Watch, wait for the first round, check until the last one is known, then say what was wrong."""
    (url,) = urls.values()
    async with AsyncExitStack() as stack:
        watchers = {name: await _speedy(stack, url, name, speed) for name, speed in phasors.SPEEDS.items()}
        send_report(ready=True)
        first = (await orders.get())["first"]
        for name, speed in phasors.SPEEDS.items():
            schedule = Schedule(first, speed.normal)
            watchers[name].check = ValueCheck(schedule, phasors.VARIABLES, phasors.value)
        running = [asyncio.create_task(watcher.run()) for watcher in watchers.values()]

        async def condensed(first: int) -> None:
            client = await _open(stack, url, CONDENSED)
            stream = await client.watch_many([phasors.TOTAL], wait_s=TIMEOUT_S)
            check = ValueCheck(Schedule(first, 0), 1, phasors.total)
            check.change(first + 1, 0, 1)
            watchers[CONDENSED] = Watcher(CONDENSED, client, stream, check)
            await watchers[CONDENSED].run()

        async def obey(order: dict[str, Any]) -> None:
            if "condensed" in order:  # other orders do not wait for it
                running.append(asyncio.create_task(condensed(order["condensed"])))
            elif "runs" in order:
                watchers[CONDENSED].check.settle(order["runs"], 1)
            for name, speed in phasors.SPEEDS.items():
                if "change" in order:
                    watchers[name].check.change(order["change"], *map(speed.every, order["modes"]))
                elif "settle" in order:
                    watchers[name].check.settle(order["settle"], speed.every(order["mode"]))

        def report() -> None:
            send_report(subscribers={watcher.name: watcher.report(watcher.recent) for watcher in watchers.values()})
            for watcher in watchers.values():
                watcher.recent = Latencies()

        last = (await report_until("last", orders, obey, report))["last"]
        await until_complete(lambda: sum(watcher.check.missing(last) for watcher in watchers.values()))
        send_report(results={watcher.name: watcher.result(last) for watcher in watchers.values()})
        await orders.get()
        for task in running:
            task.cancel()


if __name__ == "__main__":
    work(watch)
