"""How many publish calls one Python process makes a second, timed to the end of the final flush.

`python -m bench.clients.calls FORM PORT COUNT`
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from bench.clients.common import SIZE
from bench.worker import say
from chappe.errors import ChappeError

BODY = b"x" * SIZE
TOPIC = "bench/calls"
BATCH = 1000


async def nats_py(port: int, count: int) -> float:
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{port}", pending_size=64 << 20)
    start = time.perf_counter()
    for _ in range(count):
        await connection.publish("bench.calls", BODY)
    await connection.flush(timeout=60)
    spent_s = time.perf_counter() - start
    await connection.close()
    return spent_s


async def events(port: int, count: int) -> float:
    import chappe

    async with chappe.connect(f"tcp://127.0.0.1:{port}") as connection:
        publish = connection.publish
        start = time.perf_counter()
        for _ in range(count):
            while not publish(TOPIC, BODY):
                await connection.drain()
        await connection.flush()
        return time.perf_counter() - start


async def event_batches(port: int, count: int) -> float:
    import chappe

    async with chappe.connect(f"tcp://127.0.0.1:{port}") as connection:
        bodies = [BODY] * BATCH
        start = time.perf_counter()
        for _ in range(count // BATCH):
            done = 0
            while (done := done + connection.publish_many(TOPIC, bodies[done:])) < BATCH:
                await connection.drain()
        await connection.flush()
        return time.perf_counter() - start


async def values(port: int, count: int) -> float:
    import chappe

    async with chappe.connect(f"tcp://127.0.0.1:{port}") as connection:
        variable = await connection.register("calls", f"v{time.monotonic_ns()}", rate=30)
        start = time.perf_counter()
        for _ in range(count):
            while not variable.publish(1.0):
                await connection.flush()
        await connection.flush()
        return time.perf_counter() - start


FORMS = {"nats-py": nats_py, "events": events, "event batches": event_batches, "values": values}


def main(form: str, port: int, count: int) -> int:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            say({"spent_s": runner.run(FORMS[form](port, count)), "count": count})
    except (ChappeError, OSError) as error:
        say({"error": f"{form}: {error}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
