"""The demo: three nodes in a chain, a publisher at one end, subscribers at the other, every message checked."""

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
from chappe.demo.mesh import CHAIN, free_ports, write_files
from chappe.demo.phasors import round_of
from chappe.demo.processes import Child
from chappe.demo.show import Screen
from chappe.demo.state import State
from chappe.demo.verdict import problems
from chappe.demo.worker import HEARTBEAT_S, TIMEOUT_S

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


class Demo:
    """Its processes and what is known of them."""

    def __init__(self, folder: Path, stack: AsyncExitStack, console: Console) -> None:
        self.screen = Screen(console)
        self.state = State()
        self._folder = folder
        self._stack = stack
        self._nodes: list[Child] = []
        self._clients: list[Client] = []
        self._first = 0

    async def _child(self, name: str, *arguments: str) -> Child:
        child = await Child.start(name, self._folder, *arguments)
        self._stack.push_async_callback(child.stop)
        return child

    async def start(self) -> None:
        """Nodes serve, variables are registered, subscribers wait."""
        self.screen.say("starting three nodes: a - b - c")
        ports = free_ports(len(CHAIN))
        urls = [f"tcp://127.0.0.1:{port}" for port in ports]
        for path in write_files(self._folder, ports):
            self._nodes.append(await self._child(f"node {path.stem}", "chappe.node", str(path), "--dev"))
        for node in self._nodes:
            await node.until(lambda line: line == "serving")
        self.screen.say("starting publisher and subscribers: 1,000 variables, 30 a second each")
        self._publisher = await self._child("publisher", "chappe.demo.publisher", urls[0])
        self._watchers = await self._child("watchers", "chappe.demo.watchers", urls[-1])
        self._listeners = await self._child("listeners", "chappe.demo.listeners", urls[-1])
        for url in urls:
            client = chappe.connect(url, name="demo", heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S)
            self._clients.append(await self._stack.enter_async_context(client))
        for worker in (self._publisher, self._watchers, self._listeners):
            await worker.until(lambda line: '"ready"' in line)
        self._first = round_of(time.time_ns() + round(LEAD_S * 1e9))
        for worker in (self._watchers, self._listeners, self._publisher):
            worker.order(first=self._first)

    async def run(self, over: asyncio.Event, seconds: float | None) -> None:
        """Show how it goes until the time or the user's patience is over; DemoError if a process ends."""
        self.state.begin()
        jobs: list[Coroutine[Any, Any, Any]] = [
            self._listen(self._publisher), self._listen(self._watchers), self._listen(self._listeners),
            self._sample(), *(self._guard(node) for node in self._nodes),
        ]  # fmt: skip
        tasks = [asyncio.ensure_future(job) for job in jobs]
        waiting = asyncio.ensure_future(over.wait())
        try:
            with self.screen.live(self.state, seconds):
                await asyncio.wait([*tasks, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, waiting):
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)

    async def _listen(self, worker: Child) -> None:
        while True:
            self.state.heard(await worker.report())

    async def _guard(self, node: Child) -> None:
        raise await node.died()

    async def _sample(self) -> None:
        while True:
            await self._take_counters()
            self.screen.show(self.state)
            await asyncio.sleep(SAMPLE_S)

    async def _take_counters(self) -> None:
        for name, client in zip(CHAIN, self._clients, strict=True):
            counters = (await client.list("counters"))[0]
            links, clients = await client.list("links"), await client.list("clients")
            self.state.sampled(name, counters, links, clients)

    async def finish(self) -> list[str]:
        """Stop publishing, wait until all has come, and give what is wrong, in words."""
        self._publisher.order(stop=True)
        await self._reported(self._publisher, "last")
        last = {"last": self.state.publisher["last"], "events": self.state.publisher["events"]}
        for worker in (self._watchers, self._listeners):
            worker.order(**last)
        for worker in (self._watchers, self._listeners):
            await self._reported(worker, "results")
        await self._take_counters()
        found = problems(self.state)
        for worker in (self._watchers, self._listeners, self._publisher):
            worker.order(leave=True)
        for worker in (self._watchers, self._listeners, self._publisher):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await worker.process.wait()
            if await worker.stop() != 0:
                found.append(str(await worker.failure()))
        for client in self._clients:
            await client.close()
        for node, code in zip(self._nodes, await asyncio.gather(*(node.stop() for node in self._nodes)), strict=True):
            if code != 0:
                found.append(str(await node.failure()))
        return found

    async def _reported(self, worker: Child, key: str) -> None:
        while True:
            report = await worker.report()
            self.state.heard(report)
            if key in report:
                return
