"""Nodes of `chappe bench tables` in a process of their own: `python -m chappe.bench.tables_nodes` reads a JSON object.

`{"files": [text of each node's file], "dev": true, "intervals_ms": {node: interval}, "seconds": {node: time}}`. Says
`serving` once all nodes do; with intervals it measures, and its last line is `{node: {peer: [[latency, cost], …]}}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

import uvloop

from chappe.node.config import parse
from chappe.node.node import Node
from chappe.node.process import start_log
from chappe.node.sections import Log

JOIN_S = 20.0
TRANSPORTS = ("tcp", "tls")


@dataclass(frozen=True)
class Measuring:
    """One node that measures all its links, at one interval for one time."""

    node: Node
    interval_ms: float
    seconds: float

    async def run(self) -> dict[str, list[list[float]]]:
        """What every round said of each link."""
        mesh = self.node.mesh
        assert mesh is not None
        links, initiator = mesh.member.links, mesh.member.measurement.initiator
        async with asyncio.timeout(JOIN_S):
            while len(links) < len(self.node.config.peer):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.02)
        for kind in TRANSPORTS:
            self.node.connections.transports.set_monitoring(kind, True, round(self.interval_ms * 1e6))
        await asyncio.sleep(self.seconds)
        return {
            link.name: [
                [float(each["latency_ms"]), float(each["cost"])] for each in initiator.history(link.port)
            ]
            for link in links
        }  # fmt: skip


async def _run(task: dict[str, Any]) -> None:
    nodes = [Node(parse(text), dev=task["dev"]) for text in task["files"]]
    try:
        for node in nodes:
            await node.start()
        print("serving", flush=True)
        intervals, seconds = task.get("intervals_ms", {}), task.get("seconds", {})
        if not intervals:
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until it is closed
            return
        measuring = [Measuring(node, intervals[node.name], seconds[node.name]) for node in nodes]
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
