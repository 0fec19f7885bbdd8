"""Nodes for tests: in this process or in processes of their own, always with real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from chappe.links.ports import free_ports
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node

_TIMER_S = 0.002  # how exact the timers of a loop are


def free_port() -> int:
    """A port nobody uses now, and that is given to nobody else for long."""
    return free_ports(1)[0]


async def start_node(toml: str, *, dev: bool = True) -> Node:
    """A running node in this loop."""
    node = Node(parse(toml), dev=dev)
    await node.start()
    return node


@contextlib.asynccontextmanager
async def running(*tomls: str, dev: bool = True) -> AsyncIterator[list[Node]]:
    """Nodes in this loop, stopped without drain at the end."""
    nodes: list[Node] = []
    try:
        for toml in tomls:
            node = await start_node(toml, dev=dev)
            nodes.append(node)
        yield nodes
    finally:
        await asyncio.gather(*(node.stop(drain=False) for node in nodes))


async def eventually(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Poll a condition that nothing announces."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  there is nothing to wait for but the condition
            await asyncio.sleep(0.005)


class Pace:
    """Pauses between the steps of a test. What they took too long is what the machine had no time for.

    A bar that is a time is a promise about Chappe and not about a busy machine: it may be missed by `late_s`, which is
    next to nothing where the machine has time.
    """

    def __init__(self) -> None:
        self.late_s = 0.0
        self.longest_s = 0.0

    async def pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.sleep(seconds)
        late_s = max(0.0, loop.time() - begun - seconds - _TIMER_S)
        self.late_s += late_s
        self.longest_s = max(self.longest_s, late_s)


class NodeProcess:
    """`python -m chappe.node FILE` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.urls: list[str] = []
        self.metrics = ""
        self.log: list[str] = []
        self._reader = asyncio.get_running_loop().create_task(self._read_log())

    @classmethod
    async def start(cls, *arguments: str | Path, module: str = "chappe.node") -> NodeProcess:
        """Start it and wait until it listens."""
        root = Path(__file__).parents[2]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *map(str, arguments),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))},
        )  # fmt: skip
        node = cls(process)
        await node._until_listening()
        return node

    async def _until_listening(self) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(40):
            while True:
                line = (await self.process.stdout.readline()).decode().strip()
                if line.startswith("listening "):
                    self.urls.append(line.removeprefix("listening "))
                elif line.startswith("metrics "):
                    self.metrics = line.removeprefix("metrics ")
                elif line == "serving":
                    return
                elif not line:
                    await self.process.wait()
                    await self._reader
                    raise RuntimeError("the node did not start:\n" + "\n".join(self.log))

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.log.append(line.decode().rstrip())

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def tell_if_running(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal if it still runs, and wait for its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(30):
            code = await self.process.wait()
            await self._reader
        return code


async def fetch(url: str, authorization: str = "") -> tuple[int, str]:
    """Status and text of a page."""
    request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)
