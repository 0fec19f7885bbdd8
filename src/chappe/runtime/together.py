"""Several nodes in one process, with real sockets between them: routers that share a process, and tests."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence

import uvloop

from chappe.core.sections import Config
from chappe.runtime.node import Node
from chappe.runtime.process import collect_briefly, open_many_files, open_web, start_log


def run_nodes(configs: Sequence[Config], serving: str, *, dev: bool = False) -> int:
    """Run them until SIGTERM or SIGINT, then drain all at once; 0 after that.

    Each address is printed as a line `NAME | listening URL` once it is served, then `serving`.
    """
    start_log(configs[0].log)
    open_many_files(max(config.limits.connections for config in configs))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(configs, serving, dev))


async def _serve(configs: Sequence[Config], serving: str, dev: bool) -> int:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    nodes = [Node(config, dev=dev) for config in configs]
    started: list[Node] = []

    async def stop() -> None:  # all at once: each one's last frames need the next one
        await asyncio.gather(*(node.stop() for node in started))

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(stop)
        for node in nodes:
            await node.start()
            started.append(node)
            web = open_web(node, loop)
            if web is not None:
                stack.push_async_callback(asyncio.to_thread, web.close)
            for address in node.addresses:
                print(f"{node.name} | listening {address}", flush=True)
        collect_briefly()
        print(serving, flush=True)
        await over.wait()
    return 0
