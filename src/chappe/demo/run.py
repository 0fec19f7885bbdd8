"""The demo: two clouds below a root, a publisher in one, subscribers in the other, every value checked."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

import chappe
from chappe.client.client import Client
from chappe.demo import grid
from chappe.demo.loop import Loop, how, wanted
from chappe.demo.phasors import VARIABLES, round_of
from chappe.demo.processes import STOP_S, Child
from chappe.demo.show import Screen
from chappe.demo.state import State
from chappe.demo.story import Story
from chappe.demo.verdict import problems
from chappe.demo.worker import HEARTBEAT_S, TIMEOUT_S
from chappe.errors import LinkError, TimeoutExpired
from chappe.links.ports import free_ports

LEAD_S = 0.5  # from the order to begin to the first round
SAMPLE_S = 1.0


async def run_demo(seconds: float | None, console: Console) -> int:
    """Run for so long, or until Ctrl-C; 0 if everything arrived that was due, and nothing else."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    with tempfile.TemporaryDirectory(prefix="chappe-demo-") as folder:
        async with AsyncExitStack() as stack:
            demo = Demo(Path(folder), stack, console)
            demo.loop = Loop(Path(folder), demo.state) if wanted(seconds) else None
            if demo.loop is None:
                demo.screen.say(how(seconds))
            if not await _unless(over, demo.start()):
                return 0
            await demo.run(over, seconds)
            found = await demo.finish()
    demo.screen.summary(demo.state, found)
    return 1 if found else 0


async def _unless(over: asyncio.Event, job: Coroutine[Any, Any, None]) -> bool:
    """Do the job; False if the user wanted to end before it was done."""
    working, waiting = asyncio.ensure_future(job), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return True
        return False
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def _is_cut_off(task: asyncio.Future[Any]) -> bool:
    """It failed because somebody was not there."""
    error = task.exception() if task.done() else None
    return isinstance(error, LinkError | TimeoutExpired) or getattr(error, "code", "") == "unavailable"


class Demo:
    """Its processes and what is known of them."""

    def __init__(self, folder: Path, stack: AsyncExitStack, console: Console) -> None:
        self.screen = Screen(console)
        self.state = State()
        self.loop: Loop | None = None  # where there is Spark, and time
        self._folder = folder
        self._stack = stack
        self._clients: dict[str, Client] = {}
        self._first = 0

    async def _child(self, name: str, *arguments: str) -> Child:
        child = await Child.start(name, self._folder, *arguments)
        self._stack.push_async_callback(child.stop)
        return child

    async def _client(self, name: str, url: str) -> Client:
        client = chappe.connect(url, name=name, heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S)
        return await self._stack.enter_async_context(client)

    async def start(self) -> None:
        """Brokers and routers serve, variables are registered, subscriptions are granted."""
        self.screen.say("starting two clouds of three routers, each with its leaf broker, and a root broker")
        ports = free_ports(grid.NEEDED)
        urls, file = grid.urls(ports), grid.write(self._folder, ports)
        self._deployment = await self._child("deployment", "chappe.cli", "up", str(file))
        await self._deployment.until(lambda line: line.endswith(" serve"))
        self.screen.say(
            f"starting a publisher at {grid.PUBLISHING} of {VARIABLES} variables, 30 a second each, watchers at "
            f"{grid.WATCHING} and a listener at every router"
        )
        at = {name: f"{name}={url}" for name, url in urls.items()}
        self._publisher = await self._child("publisher", "chappe.demo.publisher", at[grid.PUBLISHING])
        self._watchers = await self._child("watchers", "chappe.demo.watchers", at[grid.WATCHING])
        self._listeners = await self._child(
            "listeners", "chappe.demo.listeners", *(at[router] for router in grid.ROUTERS)
        )
        for router in grid.ROUTERS:
            self._clients[router] = await self._client(f"demo-{router}", urls[router])
        self._root = await self._client("demo", urls["root"])
        self._creator = await self._client("creator", urls[grid.PUBLISHING])
        for worker in self._workers:
            await worker.until(lambda line: '"ready"' in line)
        self._story = Story(self._root, self._creator, self._watchers, self._listeners, self.state)
        self._first = round_of(time.time_ns() + round(LEAD_S * 1e9))
        for worker in self._workers:
            worker.order(first=self._first)

    @property
    def _workers(self) -> tuple[Child, ...]:
        return self._watchers, self._listeners, self._publisher

    async def run(self, over: asyncio.Event, seconds: float | None) -> None:
        """Show how it goes until the time or the user's patience is over; DemoError if a process ends."""
        self.state.begin()
        jobs: list[Coroutine[Any, Any, Any]] = [
            *(self._listen(worker) for worker in self._workers), self._sample(), self._story.run(),
            *([self.loop.run()] if self.loop is not None else []), self._guard(self._deployment),
        ]  # fmt: skip
        tasks = [asyncio.ensure_future(job) for job in jobs]
        waiting = asyncio.ensure_future(over.wait())
        try:
            with self.screen.live(seconds):
                await asyncio.wait([*tasks, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            guard = tasks[-1]
            if any(_is_cut_off(task) for task in tasks):  # most likely because a process has died: that is the reason
                await asyncio.wait([guard], timeout=STOP_S)
            for task in (guard, *tasks):
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, waiting):
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)

    async def _listen(self, worker: Child) -> None:
        while True:
            self.state.heard_from(await worker.report())

    async def _guard(self, child: Child) -> None:
        await child.drained()
        raise await child.died()

    async def _sample(self) -> None:
        while True:
            await self._take_counters()
            self.screen.show(self.state)
            await asyncio.sleep(SAMPLE_S)

    async def _take_counters(self) -> None:
        for name, client in self._clients.items():
            counters = (await client.list("counters"))[0]
            links, clients = await client.list("links"), await client.list("clients")
            self.state.sampled(name, counters, links, clients)

    async def finish(self) -> list[str]:
        """Stop publishing, wait until all has come, and give what is wrong, in words."""
        self._publisher.order(stop=True)
        await self._reported(self._publisher, "last")
        for worker in (self._watchers, self._listeners):
            worker.order(last=self.state.publisher["last"])
        await self._reported(self._watchers, "results")
        await self._reported(self._listeners, "heard")
        await self._take_counters()
        found = problems(self.state) + (self.loop.verdict() if self.loop is not None else [])
        for worker in self._workers:
            worker.order(leave=True)
        for worker in self._workers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await worker.process.wait()
            if await worker.stop() != 0:
                found.append(str(await worker.failure()))
        for client in (*self._clients.values(), self._root, self._creator):
            await client.close()
        if await self._deployment.stop() != 0:
            found.append(str(await self._deployment.failure()))
        return found

    async def _reported(self, worker: Child, key: str) -> None:
        while True:
            report = await worker.report()
            self.state.heard_from(report)
            if key in report:
                return
