"""`chappe up`: a whole deployment on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import DONE, FAILED, exit_code, say, say_error
from chappe.errors import ChappeError, ConfigError

if TYPE_CHECKING:
    from chappe.cli.deployment import Deployment, Member

EXAMPLES = (
    "chappe up mesh.toml",
    "chappe up mesh.toml --keep-going",
    "chappe up mesh.toml --in-process   # all nodes in one process, for tests",
)
MARGIN_S = 5.0  # beyond its own time for draining, until a node is killed
LAST_LINES = 5


def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of the deployment.", show_default=False)],
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Leave the others running if one dies.")] = False,
    in_process: Annotated[bool, typer.Option("--in-process", help="All nodes in this process.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Say what is wrong with the files, and end.")] = False,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Run this node of the file alone.")] = None,
) -> None:
    r"""Run a whole deployment on this machine.

    Each node is a process; Ctrl-C or SIGTERM drains all of them. If one dies the others are stopped and the exit code
    is 1.

    The file has a table \[nodes] with NAME = "FILE" for nodes with a file of their own; \[nodes.NAME] holds the tables
    of a node itself, like listen = [{url = "tcp://127.0.0.1:7401"}]. dev = true is `chappe node --dev` for all.
    """
    import uvloop

    from chappe.cli.deployment import read

    try:
        deployment = read(file)
        if check:
            typer.echo(f"{file}: ok, {len(deployment.members)} nodes")
            return
        if only is not None:
            code = _run_one(deployment, only)
        else:
            job = _together(deployment) if in_process else _apart(file, deployment, keep_going)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                code = runner.run(job)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)


def _run_one(deployment: Deployment, name: str) -> int:
    from chappe.node.process import run_node

    for member in deployment.members:
        if member.name == name:
            return run_node(member.path or member.config, dev=deployment.dev)
    known = ", ".join(member.name for member in deployment.members)
    raise ConfigError(f"--only {name}: there is no such node (nodes: {known})")


def _told() -> asyncio.Event:
    """Set by Ctrl-C or SIGTERM."""
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    return over


async def _together(deployment: Deployment) -> int:
    from chappe.node.node import Node
    from chappe.node.process import open_web, start_log

    start_log(deployment.members[0].config.log)
    over = _told()
    nodes = [Node(member.config, dev=deployment.dev) for member in deployment.members]
    started: list[Node] = []

    async def stop() -> None:  # all at once: each one's last frames need the next one
        await asyncio.gather(*(node.stop() for node in started))

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(stop)
        for node in nodes:
            await node.start()
            started.append(node)
            web = open_web(node, asyncio.get_running_loop())
            if web is not None:
                stack.push_async_callback(asyncio.to_thread, web.close)
            for address in node.addresses:
                typer.echo(f"{node.name} | listening {address}")
        typer.echo(f"{len(nodes)} nodes serve")
        await over.wait()
    return DONE


async def _apart(file: Path, deployment: Deployment, keep_going: bool) -> int:
    over = _told()
    width = max(len(member.name) for member in deployment.members)
    running = [_Running(member, file, width) for member in deployment.members]
    try:
        for each in running:
            await each.start()
        return await _watch(running, over, keep_going)
    finally:
        await asyncio.gather(*(each.stop() for each in running))


async def _watch(running: list[_Running], over: asyncio.Event, keep_going: bool) -> int:
    serving = asyncio.create_task(_all_serve(running))
    told = asyncio.create_task(_wait(over))
    ends = {asyncio.create_task(each.ended()): each for each in running}
    tasks = [serving, told, *ends]
    left, code = set(tasks), DONE
    try:
        while left & ends.keys():
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            if told in done:
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


async def _all_serve(running: list[_Running]) -> None:
    for each in running:
        await each.serves.wait()
    typer.echo(f"{len(running)} nodes serve")


async def _wait(over: asyncio.Event) -> None:
    await over.wait()


class _Running:
    """One node as a process; what it says is passed on with its name in front."""

    def __init__(self, member: Member, file: Path, width: int) -> None:
        self.serves = asyncio.Event()
        self._member = member
        self._file = file
        self._prefix = f"{member.name:<{width}} | "
        self._last: list[str] = []
        self._readers: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chappe.cli", "up", str(self._file), "--only", self._member.name,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which tells the nodes
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

    async def ended(self) -> None:
        assert self._process is not None
        await self._process.wait()
        await asyncio.gather(*self._readers)

    def epitaph(self) -> str:
        """Which node died, and why as far as it said."""
        assert self._process is not None
        code = self._process.returncode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"node {self._member.name} {how}" + (f": {self._last[-1]}" if self._last else "")

    async def stop(self) -> None:
        """Drain it, kill it if that takes too long."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._member.config.node.drain_timeout_s + MARGIN_S):
                    await self._process.wait()
            except TimeoutError:
                say(f"node {self._member.name} did not end in time and is killed")
                self._process.kill()
        await self.ended()
