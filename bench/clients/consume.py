"""A Python process that consumes what the load generator publishes: by message, by batch or as Arrow.

Reads its job like the workers of the load generator; `role` is `client:form`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import structlog
import uvloop

from bench.protocols.common import name
from bench.shared import END, SLOTS, Shared
from bench.worker import Job, cpu_s, say
from chappe.errors import ChappeError

STEP = 256  # messages between two reports of progress


class Progress:
    """Counts into the shared block, where the publisher sees how far this process is; a gap is an error."""

    __slots__ = ("broken", "received", "shared")

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.received = 0
        self.broken = 0

    def to(self, count: int, newest: int) -> None:
        """`count` messages have arrived, the last of which carries sequence `newest`."""
        self.received = count
        self.broken += newest != count - 1
        self.post()

    def post(self) -> None:
        self.shared.words[SLOTS] = self.received


async def consume_nats(job: Job, form: str, progress: Progress) -> None:
    """`async for`, or the callback that nats-py serves faster."""
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{job.port}")
    if form == "callback":
        await _serve_callback(connection, progress)
        return
    stream = await connection.subscribe(name(0, "."), pending_msgs_limit=1 << 30, pending_bytes_limit=1 << 40)
    await connection.flush()
    say({"ready": True})
    count = 0
    try:
        async for message in stream.messages:
            body = message.data
            count += 1
            progress.received = count
            if count % STEP == 0:
                progress.to(count, int.from_bytes(body[8:16], "big"))
    finally:
        await connection.close()


async def _serve_callback(connection: Any, progress: Progress) -> None:
    count = 0

    async def received(message: Any) -> None:
        nonlocal count
        body = message.data
        count += 1
        progress.received = count
        if count % STEP == 0:
            progress.to(count, int.from_bytes(body[8:16], "big"))

    await connection.subscribe(name(0, "."), cb=received, pending_msgs_limit=1 << 30, pending_bytes_limit=1 << 40)
    await connection.flush()
    say({"ready": True})
    try:
        await asyncio.Event().wait()
    finally:
        await connection.close()


async def consume_events(job: Job, form: str, progress: Progress) -> None:
    import chappe

    async with chappe.connect(f"tcp://127.0.0.1:{job.port}") as connection:
        stream: Any = await connection.subscribe(name(0), on_full="block")
        say({"ready": True})
        count = 0
        if form == "message":
            async for message in stream:
                body = message.body
                count += 1
                progress.received = count
                if count % STEP == 0:
                    progress.to(count, int.from_bytes(body[8:16], "big"))
        elif form == "batch":
            async for batch in stream.batches():
                count += len(batch)
                progress.to(count, int.from_bytes(batch[-1].body[8:16], "big"))
        else:
            async for rows in stream.arrow():
                count += rows.num_rows
                progress.to(count, int.from_bytes(rows.column("body")[-1].as_py()[8:16], "big"))


async def consume_status(job: Job, form: str, progress: Progress) -> None:
    import chappe

    async with chappe.connect(f"tcp://127.0.0.1:{job.port}") as connection:
        wanted = [(job.label, f"v{i:06d}") for i in range(job.topics)]
        stream: Any = await connection.watch_many(wanted, on_full="block")
        say({"ready": True})
        count = 0
        if form == "message":
            async for event in stream:
                value = event.value
                count += 1
                progress.received = count
                if count % STEP == 0:
                    progress.to(count, value)
        elif form == "batch":
            async for batch in stream.batches():
                count += len(batch)
                progress.to(count, batch[-1].value)
        else:
            async for rows in stream.arrow():
                count += rows.num_rows
                progress.to(count, rows.column("value")[-1].as_py())


async def run(job: Job, shared: Shared) -> None:
    client, _, form = job.role.partition(":")
    progress = Progress(shared)
    if client == "nats-py":
        work = consume_nats(job, form, progress)
    else:
        work = (consume_events if client == "events" else consume_status)(job, form, progress)
    consumer = asyncio.ensure_future(work)
    before = cpu_s()
    async for _ in ticks(0.01):
        progress.post()  # the rest of a step at the end of a run
        if consumer.done() or shared.phase == END:
            break
    if not consumer.done():
        consumer.cancel()
    outcome = (await asyncio.gather(consumer, return_exceptions=True))[0]
    if isinstance(outcome, Exception):
        raise ChappeError(f"{job.role}: {outcome!r}")
    counts = {"received": progress.received, "reordered": progress.broken, "gaps": 0, "wrong": 0, "dropped": 0}
    say({"cpu_s": cpu_s() - before, "connections": [counts], "histogram": [0] * 2048})


async def ticks(every_s: float) -> AsyncIterator[None]:
    while True:
        await asyncio.sleep(every_s)
        yield


def main() -> int:
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    shared = Shared(fd=job.shared)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # standard output carries results
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(job, shared))
    except (ChappeError, OSError) as error:
        say({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
