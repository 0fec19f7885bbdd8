"""What measuring adds to the CPU of a message: the same load through a mesh that measures and one that does not."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from contextlib import AsyncExitStack

import chappe
from chappe.bench.adaptation_mesh import MeasuringMesh, Pair
from chappe.client.client import Client

LINKS: dict[Pair, float] = {("n1", "n2"): 0.0, ("n2", "n3"): 0.0}  # no delay: what is counted is CPU
FROM, TO = "n1", "n3"
TOPIC = "load"
BODY = bytes(64)
BURST, PAUSE_S = 50, 0.01
ROUND_S = 2.0
ROUNDS = 8  # of each start: processes that are started anew differ by more than what is looked for
STARTS = 4
CONNECTED_S = 30.0


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


async def per_message(quick: bool) -> tuple[float, float, float]:
    """Medians over all rounds: µs of CPU of the nodes a message with measuring, without, and what it adds in percent.

    Both meshes run at the same time, so that a busy machine is as busy for one as for the other.
    """
    pairs: list[tuple[float, float]] = []
    for start in range(1 if quick else STARTS):
        pairs += await _rounds(order=(True, False) if start % 2 else (False, True))
    added = statistics.median(100 * (on / off - 1) for on, off in pairs)
    with_, without = (statistics.median(values) * 1e6 for values in zip(*pairs, strict=True))
    return with_, without, added


async def _rounds(order: tuple[bool, bool]) -> list[tuple[float, float]]:
    """CPU seconds a message of (the mesh that measures, the one that does not), round by round."""
    async with AsyncExitStack() as stack:
        loads = {on: await _loaded(stack, on) for on in order}
        found = []
        for number in range(ROUNDS + 1):
            before = {on: (load.cpu_s, load.delivered) for on, load in loads.items()}
            await asyncio.sleep(ROUND_S)
            each = {}
            for on, load in loads.items():
                cpu_s, delivered = before[on]
                each[on] = (load.cpu_s - cpu_s) / max(load.delivered - delivered, 1)
            if number:  # the first is to warm up
                found.append((each[True], each[False]))
        return found


async def _loaded(stack: AsyncExitStack, on: bool) -> _Loaded:
    sections = f"[mesh]\n[measure]\non = {str(on).lower()}\ninterval_s = 1.0\nadapt = false\n"
    mesh = await stack.enter_async_context(MeasuringMesh(LINKS, sections))
    publisher = await stack.enter_async_context(chappe.connect(mesh.url(FROM)))
    subscriber = await stack.enter_async_context(chappe.connect(mesh.url(TO)))
    subscription = await subscriber.subscribe(TOPIC)
    await _until_connected(publisher, subscription)
    load = _Loaded(mesh, publisher, subscription)
    stack.push_async_callback(load.stop)
    return load


async def _until_connected(publisher: Client, subscription: chappe.Subscription) -> None:
    """One message has come through: both ends know the way."""
    async with asyncio.timeout(CONNECTED_S):
        while True:
            publisher.publish(TOPIC, BODY)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await anext(aiter(subscription))
                    return
