"""The archive as a process: a client of a node that writes in threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvloop

from chappe.archive.config import Config, load
from chappe.archive.role import Role
from chappe.archive.watching import Quality
from chappe.errors import ChappeError, ConfigError, LinkError

WAIT_S = 30.0  # for the node at the start
BROKERS_S = 5.0  # for brokers at the start
AGAIN_S = 2.0  # until a broker that was not there is tried again
log = structlog.get_logger(__name__)
NICE = 5  # publishers and nodes of the same machine come first
Connect = Callable[..., Any]
"""`chappe.connect`: given from outside, because the client lies above this package."""


def main(arguments: Sequence[str], connect: Connect, quality: Quality) -> int:
    """Run the archive of a file until SIGTERM or SIGINT; the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m chappe.archive FILE.toml", file=sys.stderr)
        return 2
    try:
        return run(arguments[0], connect, quality)
    except ChappeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, LinkError) else 1


def run(path: str | Path, connect: Connect, quality: Quality) -> int:
    """The same, with errors raised: ConfigError and StoreError before anything is connected."""
    config = load(path)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, connect, quality))


async def _serve(config: Config, connect: Connect, quality: Quality) -> int:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    role = Role(config, quality)
    try:
        await role.open()
        serving = asyncio.ensure_future(_connected(config, connect, role, over))
        ending = asyncio.ensure_future(over.wait())
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not role.serving and not serving.done():
            serving.cancel()  # it still looks for its node, and was told to end
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await role.close()
    return 0


async def _connected(config: Config, connect: Connect, role: Role, over: asyncio.Event) -> None:
    of = config.archive
    access = {"token": _token(of.token_file), "tls": _tls(config)}
    async with connect(of.urls, name=of.name, wait_s=WAIT_S, flooded=of.flooded, **access) as client:
        await role.subscribe(client)
        tried = [asyncio.Event() for _ in of.brokers]
        hearing = [
            asyncio.ensure_future(_hear(role, url, partial(connect, url, name=f"{of.name}.{number}", **access), event))
            for number, (url, event) in enumerate(zip(of.brokers, tried, strict=True), 1)
        ]
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BROKERS_S):
                    await asyncio.gather(*(event.wait() for event in tried))
            print("serving", flush=True)
            await role.serve(client, over)
        finally:
            for task in hearing:
                task.cancel()
            await asyncio.gather(*hearing, return_exceptions=True)


async def _hear(role: Role, url: str, connect: Connect, tried: asyncio.Event) -> None:
    """What a broker tells, for as long as this runs; one that is not there is tried again."""
    while True:
        try:
            async with connect() as client:
                await role.hear(client, tried.set)
        except ChappeError as error:
            log.warning("a broker is not heard", url=url, reason=str(error))
        tried.set()
        await asyncio.sleep(AGAIN_S)


def _token(file: str) -> Callable[[], str] | None:
    """Read at each connection, so that a token can be renewed."""
    if not file:
        return None

    def token() -> str:
        try:
            return Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"archive.token_file {file}: cannot be read: {error}") from None

    token()
    return token


def _tls(config: Config) -> Any:
    of = config.archive
    if not of.ca:
        return None
    return (of.ca, of.cert, of.key) if of.cert else Path(of.ca)
