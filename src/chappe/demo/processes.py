"""The processes of the demo: nodes and workers, ended with it whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chappe.errors import ChappeError

START_S = 60.0
STOP_S = 20.0


class DemoError(ChappeError):
    """A process of the demo failed: names it, with the end of its log."""


class Child:
    """A process whose lines on stdout are read; its stderr goes into a file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, folder: Path, *arguments: str, heard: bool = True) -> Child:
        """Start it; one that is not heard, and whose own children may outlive it, has no stdout to keep open."""
        log = folder / f"{name}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *arguments, stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if heard else asyncio.subprocess.DEVNULL, stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which ends them in order
            )  # fmt: skip
        return cls(name, process, log)

    async def line(self) -> str:
        """The next line; DemoError if the process has ended."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise await self.failure()
        return line.decode().rstrip()

    async def report(self) -> dict[str, Any]:
        """The next line of a worker."""
        report: dict[str, Any] = json.loads(await self.line())
        return report

    async def until(self, wanted: Callable[[str], bool]) -> None:
        """Skip lines until the wanted one."""
        async with asyncio.timeout(START_S):
            while not wanted(await self.line()):
                pass

    async def wait_for_line(self, text: str, within_s: float) -> None:
        """Wait until it has written a line to its log; DemoError if it ends before."""
        async with asyncio.timeout(within_s):
            while text not in self._log.read_text(errors="replace").splitlines():
                if self.process.returncode is not None:
                    raise await self.failure()
                await asyncio.sleep(0.1)

    def order(self, **order: Any) -> None:
        """One line to a worker."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    async def failure(self) -> DemoError:
        """Why it ended when it should not have."""
        code = await self.process.wait()
        written = self._log.read_text(errors="replace").strip().splitlines()
        words = [line for line in written if line.startswith("error: ")][-5:] or written[-5:]
        return DemoError(f"{self.name} ended with code {code}: {' | '.join(words) or 'it said nothing'}")

    async def drained(self) -> None:
        """Read and forget what it says from now on, so that it never waits for a reader."""
        assert self.process.stdout is not None
        while await self.process.stdout.readline():
            pass

    async def died(self) -> DemoError:
        """Returns when the process ends before it was asked to."""
        await self.process.wait()
        return await self.failure()

    async def stop(self) -> int:
        """SIGTERM, then SIGKILL if that takes too long; its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await self.process.wait()
            except TimeoutError:
                os.killpg(self.process.pid, signal.SIGKILL)  # with its children, Spark among them
        return await self.process.wait()
