"""What a node tells of itself as events: its own port for them, and its counters at an interval."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from typing import TYPE_CHECKING

import msgspec
import structlog

from chappe.links.tick import FlushTick
from chappe.runtime.mesh.port import OwnPort
from chappe.runtime.metrics import Snapshot, samples
from chappe.wire import told

if TYPE_CHECKING:
    from chappe.runtime.node import Node

log = structlog.get_logger(__name__)

PART = 2_000  # counters an event


class Telling:
    """The node's own port, for whatever of it has something to tell, and the task that tells the counters."""

    def __init__(self, node: Node) -> None:
        self.own: OwnPort | None = None
        self._node = node
        self._task: asyncio.Task[None] | None = None

    def start(self, tick: FlushTick) -> None:
        """The node listens."""
        node, counters = self._node, self._node.config.counters
        if node.mesh is not None or node.role is not None or counters is not None:
            self.own = OwnPort(node.engine, tick.flusher)
        if node.mesh is not None and self.own is not None:
            node.mesh.start(tick, self.own)
        if counters is not None:
            self._task = tick.loop.create_task(self._tell_counters(counters.every_s), name=f"counters of {node.name}")

    def stop(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
        if self._node.mesh is not None:
            self._node.mesh.stop()
        if self.own is not None:
            self.own.close()

    def is_own(self, port: int) -> bool:
        """Whether it is the node itself that publishes."""
        return self.own is not None and port == self.own.port

    def publish(self, topic: str, body: bytes) -> None:
        """An event of a feed, behind everything that somebody waits for."""
        if self.own is not None:
            self.own.publish(topic, body, told.CONTENT_TYPE, told.PRIORITY)

    async def _tell_counters(self, every_s: float) -> None:
        topic = told.counters_topic(self._node.name)
        while True:
            try:
                snapshot = await self._node.snapshot()
                # made elsewhere: thousands of labels take longer than forwarding should wait
                for body in await asyncio.to_thread(counters, snapshot, time.time_ns()):
                    self.publish(topic, body)
            except Exception:  # the next interval has another chance
                log.exception("counters not told", node=self._node.name)
            await asyncio.sleep(every_s)


def counters(snapshot: Snapshot, now_ns: int) -> list[bytes]:
    """The bodies of the events that tell these counters."""
    numbers = (sample for sample in samples(snapshot) if math.isfinite(sample.value))
    bodies = []
    while part := list(itertools.islice(numbers, PART)):
        named: dict[str, dict[str, float]] = {}
        for name, labels, value in part:
            named.setdefault(name, {})[labels] = value
        bodies.append(msgspec.json.encode(told.Counters(created_ns=now_ns, counters=named)))
    return bodies
