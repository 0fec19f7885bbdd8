"""The life of a process that is a client of a node (an archive, an aggregator): its log, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import structlog
import uvloop

from chappe.errors import ChappeError, ConfigError, LinkError

WAIT_S = 30.0  # for the node at the start
AnyRole = TypeVar("AnyRole", bound="Role")


class Role(Protocol):
    """What lives as long as its process."""

    serving: bool  # it is connected, and ends by itself when it is asked to

    async def open(self) -> None:
        """Ready what it writes to, before anything is connected."""

    async def close(self) -> None:
        """Write what is left."""


def exit_code(package: str, arguments: Sequence[str], run: Callable[[str], int]) -> int:
    """The code with which `python -m PACKAGE FILE.toml` ends."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(f"usage: python -m {package} FILE.toml", file=sys.stderr)
        return 2
    try:
        return run(arguments[0])
    except ChappeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, LinkError) else 1


def run_role(make: Callable[[], AnyRole], connected: Callable[[AnyRole, asyncio.Event], Awaitable[None]]) -> int:
    """Log to standard error and let a role serve until SIGTERM or SIGINT."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(make, connected))
    return 0


async def _serve(make: Callable[[], AnyRole], connected: Callable[[AnyRole, asyncio.Event], Awaitable[None]]) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    role = make()
    try:
        await role.open()
        serving = asyncio.ensure_future(connected(role, over))
        ending = asyncio.ensure_future(over.wait())
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not role.serving and not serving.done():
            serving.cancel()  # it still looks for its node
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await role.close()


async def run_jobs(over: asyncio.Event, jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All jobs of a role side by side until it is over; the error of one of them ends all."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    ending = asyncio.ensure_future(over.wait())
    try:
        done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {ending}:
            task.result()  # none of them ends by itself
    finally:
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)
