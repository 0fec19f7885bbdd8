"""The archive as a process: a client of a node that writes in threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from chappe.archive.config import Config, load
from chappe.archive.metrics import Snapshot, render
from chappe.archive.role import Role
from chappe.client.connecting import Connecting
from chappe.client.process import WAIT_S, exit_code, run_role
from chappe.errors import ChappeError
from chappe.runtime.web import Web
from chappe.security.pages import PageAccess

BROKERS_S = 5.0  # for brokers at the start
AGAIN_S = 2.0  # until a broker that was not there is tried again
NICE = 5  # publishers and nodes of the same machine come first
ANSWER_S = 2.0  # a loop that does not answer for so long is not healthy

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run the archive of a file until SIGTERM or SIGINT; the exit code."""
    return exit_code("chappe.archive", arguments, lambda path: run(load(path)))


def run(config: Config) -> int:
    """The same of a configuration, with errors raised: StoreError before anything is connected."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    return run_role(lambda: Role(config), partial(_served, config))


async def _served(config: Config, role: Role, over: asyncio.Event) -> None:
    """With its page, if it has one; that is there before the node is."""
    access = config.metrics
    page = _page(access, role, asyncio.get_running_loop()) if access.address else None
    try:
        if page is not None:
            print(f"metrics {page.url}", flush=True)
        await _connected(config, role, over)
    finally:
        if page is not None:
            await asyncio.to_thread(page.close)


def _page(access: PageAccess, role: Role, loop: asyncio.AbstractEventLoop) -> Web:
    """The page of an archive that runs in this loop."""

    async def take_snapshot() -> Snapshot:
        return role.snapshot()

    def snapshot() -> Snapshot:
        return asyncio.run_coroutine_threadsafe(take_snapshot(), loop).result(ANSWER_S)

    def health() -> tuple[int, str]:
        snapshot()
        return 200, "alive"

    def ready() -> tuple[int, str]:
        now = snapshot()
        if not now.confirming:
            return 503, "its disk does not take the log"
        return (200, "ready") if role.serving and now.connected else (503, "its node is not reached")

    return Web(access, lambda: render(snapshot()), health, ready)


async def _connected(config: Config, role: Role, over: asyncio.Event) -> None:
    of = config.archive
    async with of.connect("archive", of.name, wait_s=WAIT_S, flooded=of.flooded) as client:
        await role.subscribe(client)
        tried = [asyncio.Event() for _ in of.brokers]
        hearing = [
            asyncio.ensure_future(
                _hear(role, url, partial(of.connect, "archive", f"{of.name}.{number}", url=url), event)
            )
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


async def _hear(role: Role, url: str, connect: Callable[[], Connecting], tried: asyncio.Event) -> None:
    """What a broker publishes of itself, for as long as this runs; one that is not there is tried again."""
    while True:
        try:
            async with connect() as client:
                await role.hear(client, tried.set)
        except ChappeError as error:
            log.warning("a broker is not heard", url=url, reason=str(error))
        tried.set()
        await asyncio.sleep(AGAIN_S)
