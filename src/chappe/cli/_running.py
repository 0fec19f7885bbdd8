"""The processes of `chappe up`: started, watched, and ended together."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from chappe.cli._deployment import Process
from chappe.cli._failures import DONE, FAILED, say, say_error

if TYPE_CHECKING:
    from chappe.cli._deployment import ArchiveProcess, Deployment

MARGIN_S = 5.0  # beyond its own time for draining, until a process is killed
LAST_LINES = 5


async def run_apart(file: Path, deployment: Deployment, keep_going: bool, serve: str) -> int:
    """Every process of a deployment until Ctrl-C or SIGTERM; `serve` is said when all of them serve."""
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    width = max(len(process.name) for process in deployment.everything)
    running = [_Running(process, file, width) for process in deployment.everything]
    try:
        for kind in ("broker", "node", "archive"):  # routers look for their brokers at once
            await _start([each for each in running if each.kind == kind], over)
        return await _watch(running, over, keep_going, serve)
    finally:
        for archives in (True, False):  # archives store what their nodes still send
            await asyncio.gather(*(each.stop() for each in running if (each.kind == "archive") is archives))


async def _start(running: list[_Running], over: asyncio.Event) -> None:
    """Start processes; of brokers return when they serve, one has ended or the user has."""
    for each in running:
        await each.start()
    if not running or running[0].kind != "broker":
        return
    serve = asyncio.create_task(_all_serve(running))
    tasks = [serve, asyncio.create_task(_wait(over)), *(asyncio.create_task(each.ended()) for each in running)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(running: list[_Running], over: asyncio.Event, keep_going: bool, serve: str) -> int:
    serving = asyncio.create_task(_say_all_serve(running, serve))
    ending = asyncio.create_task(_wait(over))
    ends = {asyncio.create_task(each.ended()): each for each in running}
    tasks = [serving, ending, *ends]
    left, code = set(tasks), DONE
    try:
        while left & ends.keys():
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            if ending in done:
                return code
            for end in done & ends.keys():
                code = FAILED
                say_error(ends[end].epitaph())
                if not keep_going:
                    say("stopping the others")
                    return code
        return code
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _say_all_serve(running: list[_Running], serve: str) -> None:
    await _all_serve(running)
    typer.echo(serve)


async def _all_serve(running: list[_Running]) -> None:
    for each in running:
        await each.serves.wait()


async def _wait(over: asyncio.Event) -> None:
    await over.wait()


class _Running:
    """One process; what it says is passed on with its name in front."""

    def __init__(self, process: Process | ArchiveProcess, file: Path, width: int) -> None:
        self.serves = asyncio.Event()
        self._of = process
        self._file = file
        self._prefix = f"{process.name:<{width}} | "
        self._last: list[str] = []
        self._readers: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chappe.cli", "up", str(self._file), "--only", self._of.name,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends the others
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for stream, error in ((self._process.stdout, False), (self._process.stderr, True)):
            self._readers.append(asyncio.ensure_future(self._pass_on(stream, error)))

    async def _pass_on(self, stream: asyncio.StreamReader, error: bool) -> None:
        while line := await stream.readline():
            text = line.decode(errors="replace").rstrip()
            typer.echo(self._prefix + text, err=error)
            if error:
                self._last = [*self._last[1 - LAST_LINES :], text]
            elif text == "serving":
                self.serves.set()

    @property
    def kind(self) -> Literal["broker", "node", "archive"]:
        """What is started together."""
        if not isinstance(self._of, Process):
            return "archive"
        return "node" if self._of.members[0].manages is None else "broker"

    async def ended(self) -> None:
        assert self._process is not None
        await self._process.wait()
        await asyncio.gather(*(asyncio.shield(reader) for reader in self._readers))

    def epitaph(self) -> str:
        """Which process died, and why as far as it said."""
        assert self._process is not None
        code = self._process.returncode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self._called()} {self._of.name} {how}" + (f": {self._last[-1]}" if self._last else "")

    def _called(self) -> str:
        several = isinstance(self._of, Process) and len(self._of.members) > 1
        return "process" if several else self.kind

    def _drain_s(self) -> float:
        if isinstance(self._of, Process):
            return max(member.node.drain_timeout_s for member in self._of.members)
        return 2 * self._of.config.archive.drain_timeout_s  # until its node has answered, then for what has come

    async def stop(self) -> None:
        """Drain it, kill it if that takes too long."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._drain_s() + MARGIN_S):
                    await self._process.wait()
            except TimeoutError:
                say(f"{self._called()} {self._of.name} did not end in time and is killed")
                self._process.kill()
        await self.ended()
