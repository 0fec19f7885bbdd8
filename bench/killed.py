"""Processes that are killed and started again while others rely on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.common import environment
from chappe.errors import ChappeError

START_S = 180.0  # a JVM on a busy machine
KEPT = 40


class Killed:
    """`python -m …` with all its children, which says by a line on its standard output that it is there."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        ready: str,
        folder: Path,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`before`: what stands before the command, such as `ip netns exec NAME`."""
        self.name = name
        self.kills = 0
        self.log: Path | None = None  # a file that gets every line it says
        self.ends: list[str] = []  # what it said last, of each time that it ended by itself
        self._arguments = list(arguments)
        self._ready = ready
        self._folder = folder
        self._before = list(before)
        self._environment = dict(environment or {})
        self._process: asyncio.subprocess.Process | None = None
        self._ended = False  # on purpose
        self._reading: list[asyncio.Task[None]] = []
        self._said: list[str] = []
        self._is_ready = asyncio.Event()
        self._changing = asyncio.Lock()  # whoever starts or ends it

    async def start(self) -> None:
        """Start it and wait until it is there; ChappeError with its last words if it ends instead.

        One that `look` has started again meanwhile is there already.
        """
        async with self._changing:
            if not self.running:
                await self._start()

    async def look(self) -> None:
        """As whoever looks after a process in real life: start it again if it has ended by itself."""
        async with self._changing:
            if self._process is not None and self._process.returncode is not None and not self._ended:
                self.ends.append(self.last_words)
                await self._start()

    async def _start(self) -> None:
        self._ended = False
        self._said = []
        self._is_ready.clear()
        process = self._process = await asyncio.create_subprocess_exec(
            *self._before, sys.executable, "-m", *self._arguments, cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**environment(), "PYTHONUNBUFFERED": "1", **self._environment},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = [asyncio.ensure_future(self._read(pipe)) for pipe in (process.stdout, process.stderr)]
        ready, ended = asyncio.ensure_future(self._is_ready.wait()), asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait([ready, ended], timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            ended.cancel()
        if not self._is_ready.is_set():
            await self._signal(signal.SIGKILL)  # all it has said is read then
            raise ChappeError(f"{self.name} did not start:\n{self.last_words}")

    @property
    def last_words(self) -> str:
        return "\n".join(self._said[-KEPT:])

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        """`kill -9` of it and all its children, wherever they are."""
        async with self._changing:
            if not self.running:
                raise ChappeError(f"{self.name} has ended by itself:\n{self.last_words}")
            self.kills += 1
            self._ended = True
            await self._signal(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """A signal to it and all its children: SIGSTOP makes it stand still, SIGCONT lets it go on."""
        if self.running:
            assert self._process is not None
            os.killpg(self._process.pid, number)

    async def said(self, line: str) -> None:
        """Wait until it has printed that line since it was started; ChappeError if it ends before."""
        while line not in self._said:
            if not self.running and all(reading.done() for reading in self._reading):
                raise ChappeError(f"{self.name} ended before it said {line!r}:\n{self.last_words}")
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Let it end in order, and make it end if it does not."""
        async with self._changing:
            self._ended = True
            if self.running:
                assert self._process is not None
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
                    os.killpg(self._process.pid, signal.SIGCONT)  # one that stands still would not end
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(30):
                        await self._process.wait()
            await self._signal(signal.SIGKILL)

    async def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        await self._process.wait()
        await asyncio.gather(*self._reading)

    async def _read(self, pipe: asyncio.StreamReader) -> None:
        while raw := await pipe.readline():
            line = raw.decode(errors="replace").rstrip()
            self._said.append(line)
            del self._said[: -2 * KEPT]
            if self.log is not None:
                with self.log.open("a") as file:
                    file.write(f"{line}\n")
            if line.startswith(self._ready):
                self._is_ready.set()
