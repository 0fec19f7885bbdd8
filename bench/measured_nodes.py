"""Nodes that measure their links, in a process of their own: `python -m bench.measured_nodes`.

It is told by a line of JSON: `{"files": [text of each node's file], "dev": true, "seconds": {node: time},
"intervals_ms": {node: interval}}`. It says `serving` once all nodes do. Nodes with a time measure so long, and then its
last line is `{node: {peer: rows}}`: with an interval a row is a round (latency, cost), without one it is what was known
of the bandwidth at some time (s, bytes/s, bytes of trains). Without times it serves until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import uvloop

from chappe.core.sections import Log
from chappe.events.member_links import Links
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.runtime.process import start_log

JOIN_S = 30.0
LOOK_S = 0.1
TRANSPORTS = ("tcp", "tls")
Rows = dict[str, list[list[float]]]


@dataclass(frozen=True)
class Measuring:
    """One node that measures all its links for some time."""

    node: Node
    seconds: float
    interval_ms: float | None = None

    async def run(self) -> Rows:
        """What it found out about each link."""
        mesh = self.node.mesh
        assert mesh is not None
        links = mesh.member.links
        async with asyncio.timeout(JOIN_S):
            while len(links) < len(self.node.config.peer):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.02)
        if self.interval_ms is None:
            return await self._bandwidth(links)
        for kind in TRANSPORTS:
            self.node.connections.transports.set_monitoring(kind, True, round(self.interval_ms * 1e6))
        await asyncio.sleep(self.seconds)
        history = mesh.member.measurement.initiator.history
        return {
            link.name: [[float(each["latency_ms"]), float(each["cost"])] for each in history(link.port)]
            for link in links
        }

    async def _bandwidth(self, links: Links) -> Rows:
        found: Rows = {link.name: [] for link in links}
        began = time.monotonic()
        while (now := time.monotonic()) < began + self.seconds:
            for link in links:
                if link.trains is not None:
                    found[link.name].append([now - began, link.trains.estimate, link.trains.spent_bytes])
            await asyncio.sleep(LOOK_S)
        return found


async def _run(task: dict[str, Any]) -> None:
    nodes = [Node(parse(text), dev=task["dev"]) for text in task["files"]]
    try:
        for node in nodes:
            await node.start()
        print("serving", flush=True)
        seconds, intervals_ms = task.get("seconds", {}), task.get("intervals_ms", {})
        if not seconds:
            await asyncio.Event().wait()
        measuring = [Measuring(node, seconds[node.name], intervals_ms.get(node.name)) for node in nodes]
        found = await asyncio.gather(*(each.run() for each in measuring))
        print(json.dumps({each.node.name: rows for each, rows in zip(measuring, found, strict=True)}), flush=True)
    finally:
        await asyncio.gather(*(node.stop(drain=False) for node in nodes))


def main() -> None:
    """Run what the first line of the standard input says."""
    start_log(Log(level="error"))
    task = json.loads(sys.stdin.readline())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(task))


if __name__ == "__main__":
    main()
