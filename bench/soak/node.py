"""A node that writes down how large its tables are: `python -m bench.soak.node FILE SIZES`.

One line of JSON a second: `[monotonic ns, {table: entries}]`. It says `serving` once it does.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from bench.soak.tables import sizes_of
from chappe.core import accounts, build
from chappe.core.sections import Log
from chappe.events.previous_routes import PreviousRoutes
from chappe.linkstate import interests
from chappe.runtime.config.reader import load
from chappe.runtime.node import Node
from chappe.runtime.process import start_log

EVERY_S = 1.0
TOPICS = {"a": 4096, "b": 16_384, "c": 4096}  # b holds what its neighbours hold, too
ISSUERS = 256
REMEMBERED = 512


def _shortened(file: Path) -> Node:
    """A node whose bounded tables are full within minutes: what grows after that has no bound."""
    interests.EMPTY = 256
    accounts.PRUNE_AT = 64
    config, limits_of = load(file, True), build.engine_limits
    topics = TOPICS.get(config.node.name, max(TOPICS.values()))
    build.engine_limits = lambda limits: {**limits_of(limits), "max_topics": topics, "max_issuers": ISSUERS}
    node = Node(config, dev=True)
    assert node.mesh is not None
    node.mesh.member.forwarding._last = PreviousRoutes(REMEMBERED, 4 * REMEMBERED)
    return node


async def _run(file: Path, sizes: Path) -> None:
    node = _shortened(file)
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    try:
        await node.start()
        print("serving", flush=True)
        with sizes.open("wb", buffering=0) as out:
            while not ending.is_set():
                gc.collect()  # what is only waiting to be collected is no growth
                out.write(msgspec.json.encode((time.monotonic_ns(), sizes_of(node))) + b"\n")
                try:
                    async with asyncio.timeout(EVERY_S):
                        await ending.wait()
                except TimeoutError:
                    continue
    finally:
        await node.stop(drain=False)


def main() -> None:
    """Run the node of the file named by the first argument."""
    start_log(Log(level="error"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(Path(sys.argv[1]), Path(sys.argv[2])))


if __name__ == "__main__":
    main()
