"""The archive as a process: a client of a node that writes in threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from chappe import attached
from chappe.archive.config import Config, load
from chappe.archive.role import Role
from chappe.archive.watching import Quality
from chappe.attached import WAIT_S, Connect
from chappe.errors import ChappeError

BROKERS_S = 5.0  # for brokers at the start
AGAIN_S = 2.0  # until a broker that was not there is tried again
NICE = 5  # publishers and nodes of the same machine come first
log = structlog.get_logger(__name__)


def main(arguments: Sequence[str], connect: Connect, quality: Quality) -> int:
    """Run the archive of a file until SIGTERM or SIGINT; the exit code."""
    return attached.exit_code("chappe.archive", arguments, lambda path: run(path, connect, quality))


def run(path: str | Path, connect: Connect, quality: Quality) -> int:
    """The same, with errors raised: ConfigError and StoreError before anything is connected."""
    config = load(path)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    return attached.run(lambda: Role(config, quality), partial(_connected, config, connect))


async def _connected(config: Config, connect: Connect, role: Role, over: asyncio.Event) -> None:
    of = config.archive
    access = of.access("archive")
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
