"""What measuring adds to the CPU of a message: one load through one mesh while it measures and while it does not.

On a machine that is shared the CPU of one and the same load varies by ten percent from one round to the next, and what
is looked for is below one. So links are measured ten times as often as is asked for, which costs ten times as much, and
a tenth of that is the figure. It errs upwards in that probes of several links do not leave together at such intervals,
and downwards in that what measuring needs is in the caches of the processor more often.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import chappe
from bench.measuring_mesh import MeasuringMesh, Pair, window
from chappe.client.client import Client

LINKS: dict[Pair, float] = {("n1", "n2"): 0.0, ("n2", "n3"): 0.0}  # no delay: what is counted is CPU
FROM, TO = "n1", "n3"
TOPIC = "load"
BODY = bytes(64)
BURST, PAUSE_S = 50, 0.01
INTERVAL_S = 1.0
TIMES = 10  # as often, in the rounds with measuring
ROUND_S, SETTLED_S = 3.0, 0.3  # what was switched has had time to take effect
PAIRS = 12  # of rounds with and without, in each start
STARTS = 2  # processes that are started anew differ by more than what is looked for: both sides of a pair share them
CONNECTED_S = 30.0
WINDOW = 16  # round trips that are known of every link before it counts: as many as are ever kept
WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Added:
    """What measuring each second adds to the CPU of a message: the median of pairs, and where it lies by 95 %."""

    percent: float
    least: float
    most: float
    often_us: float  # with measuring so many times as often
    without_us: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Added:
        """From CPU seconds a message of each pair, with measuring so many times as often and without."""
        added = sorted(100 * (often / off - 1) / TIMES for often, off in pairs)
        often_us, without_us = (statistics.median(values) * 1e6 for values in zip(*pairs, strict=True))
        # The median of n values lies between their k-th from below and from above by 95 %: a binomial distribution.
        k = max(0, int((len(added) - 1.96 * math.sqrt(len(added))) / 2))
        return cls(statistics.median(added), added[k], added[-1 - k], often_us, without_us)


class _Loaded:
    """One mesh with a publisher at one end and a subscriber at the other."""

    def __init__(self, mesh: MeasuringMesh, publisher: Client, subscription: chappe.Subscription) -> None:
        self.mesh = mesh
        self.delivered = 0
        self._publisher = publisher
        self._subscription = subscription
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._send())]

    @property
    def cpu_s(self) -> float:
        return sum(self.mesh.cpu_s().values())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self) -> None:
        async for _ in self._subscription:
            self.delivered += 1

    async def _send(self) -> None:
        while True:
            for _ in range(BURST):
                self._publisher.publish(TOPIC, BODY)
            await asyncio.sleep(PAUSE_S)


async def per_message(quick: bool) -> Added:
    """One mesh under one load, of which every second round is with measuring and the others without.

    Nothing but measuring differs between the rounds of a pair: processes, their memory and their load are the same.
    """
    pairs: list[tuple[float, float]] = []
    for _ in range(1 if quick else STARTS):
        pairs += await _rounds(2 if quick else PAIRS)
    return Added.of(pairs)


async def _rounds(count: int) -> list[tuple[float, float]]:
    """CPU seconds a message of (rounds with measuring, rounds without), pair by pair."""
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(
            MeasuringMesh(LINKS, f"[mesh]\n[measure]\ninterval_s = {INTERVAL_S}\nadapt = false\n")
        )
        clients = [await stack.enter_async_context(chappe.connect(mesh.url(name))) for name in mesh.names]
        ends = dict(zip(mesh.names, clients, strict=True))
        subscription = await ends[TO].subscribe(TOPIC)
        await _until_connected(ends[FROM], subscription)
        load = _Loaded(mesh, ends[FROM], subscription)
        stack.push_async_callback(load.stop)
        await _until_known(clients)
        found = []
        for number in range(count):
            each = {}
            for on in (True, False) if number % 2 else (False, True):
                every = INTERVAL_S / TIMES if on else 0.0
                await asyncio.gather(*(client.measure(every=every) for client in clients))
                await asyncio.sleep(SETTLED_S)
                cpu_s, delivered = load.cpu_s, load.delivered
                await asyncio.sleep(ROUND_S)
                each[on] = (load.cpu_s - cpu_s) / max(load.delivered - delivered, 1)
            found.append((each[True], each[False]))
        return found


async def _until_known(clients: Sequence[Client]) -> None:
    """Every link was measured for a whole window: what is told at the start is no price of measuring."""
    async with asyncio.timeout(WINDOW_S):
        for client in clients:
            while await window(client) < WINDOW:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.5)


async def _until_connected(publisher: Client, subscription: chappe.Subscription) -> None:
    """One message has come through: both ends know the way."""
    async with asyncio.timeout(CONNECTED_S):
        while True:
            publisher.publish(TOPIC, BODY)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await anext(aiter(subscription))
                    return
