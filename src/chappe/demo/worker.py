"""A process of the demo: commands come as JSON lines on stdin, reports go as JSON lines to stdout."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import uvloop

# A loaded machine may leave a process without a core for seconds; that is late, not lost.
HEARTBEAT_S = 10.0
TIMEOUT_S = 30.0
REPORT_S = 0.5
QUIET_S = 15.0  # what has not come after so long without any progress is lost

Orders = asyncio.Queue[dict[str, Any]]
Job = Callable[[dict[str, str], Orders], Awaitable[None]]


def send_report(**fields: Any) -> None:
    """One line to the process that started this one."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def work(job: Job) -> None:
    """Run the job with the addresses in argv, NAME=URL, until it ends, or until whoever started it is gone."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(job, dict(word.split("=", 1) for word in sys.argv[1:])))


async def _work(job: Job, urls: dict[str, str]) -> None:
    orders: Orders = asyncio.Queue()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def listen() -> None:
        while line := await reader.readline():
            orders.put_nowait(json.loads(line))

    listening = loop.create_task(listen())
    working = loop.create_task(_awaited(job(urls, orders)))
    await asyncio.wait([listening, working], return_when=asyncio.FIRST_COMPLETED)
    for task in (listening, working):
        if not task.done():
            task.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    if not working.cancelled():
        await asyncio.gather(working)


async def _awaited(job: Awaitable[None]) -> None:
    await job


async def until_complete(missing: Callable[[], int]) -> None:
    """Wait until nothing is missing, or nothing more has come for QUIET_S."""
    loop = asyncio.get_running_loop()
    left, since = missing(), loop.time()
    while left and loop.time() - since < QUIET_S:
        await asyncio.sleep(0.05)
        now = missing()
        if now != left:
            left, since = now, loop.time()


async def report_until(
    key: str, orders: Orders, obey: Callable[[dict[str, Any]], Awaitable[None]], report: Callable[[], None]
) -> dict[str, Any]:
    """Obey orders and report now and then, until the order with that key."""
    loop = asyncio.get_running_loop()
    following = loop.time() + REPORT_S
    while True:
        try:
            async with asyncio.timeout_at(following):
                order = await orders.get()
        except TimeoutError:
            following = loop.time() + REPORT_S
            report()
            continue
        if key in order:
            return order
        await obey(order)
