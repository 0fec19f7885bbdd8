"""One process of a Python client bench: `python -m bench.clients.worker CLIENT ROLE PORT COUNT`."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from typing import Any

import uvloop

from bench.clients import client
from chappe.errors import ChappeError

LIMIT_S = 90.0


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main(name: str, role: str, port: int, count: int) -> int:
    speaks = client(name)

    def ready() -> None:
        say({"ready": True})

    async def work() -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            if role == "publish":
                return {"began_ns": await speaks.publish(port, count)}
            if role == "subscribe":
                return {"ended_ns": await speaks.subscribe(port, count, ready)}
            if role == "ping":
                return {"times_ns": await speaks.ping(port, count)}
            await speaks.pong(port, count, ready)
            return {}

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            done = runner.run(work())
    except (ChappeError, OSError, TimeoutError) as error:
        say({"error": f"{name} {role}: {error or type(error).__name__}"})
        return 1
    usage = resource.getrusage(resource.RUSAGE_SELF)
    say({"cpu_s": usage.ru_utime + usage.ru_stime, **done})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
