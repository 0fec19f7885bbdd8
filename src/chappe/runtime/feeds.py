"""What a node publishes of itself as events: its own port for them, and its counters at an interval."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from chappe.core.node import NodeCore
from chappe.links.tick import FlushTick
from chappe.runtime.mesh.port import OwnPort
from chappe.runtime.metrics import Snapshot, samples
from chappe.wire import feeds

log = structlog.get_logger(__name__)

PART = 2_000  # counters an event


class Feeds:
    """The node's own port, for events that the node itself publishes, and the task that publishes its counters."""

    def __init__(self, core: NodeCore, every_s: float | None, needed: bool) -> None:
        """`every_s`: between two events with counters, None: there are none. `needed`: others publish, too."""
        self.own: OwnPort | None = None
        self._core = core
        self._every_s = every_s
        self._needed = needed or every_s is not None
        self._task: asyncio.Task[None] | None = None

    def start(self, tick: FlushTick, snapshot: Callable[[], Awaitable[Snapshot]]) -> None:
        """The node listens."""
        if self._needed:
            self.own = OwnPort(self._core.engine, tick.flusher)
            self._core.access.trust(self.own.port)
        if self._every_s is not None:
            name = f"counters of {self._core.name}"
            self._task = tick.loop.create_task(self._publish_counters(self._every_s, snapshot), name=name)

    def stop(self) -> None:
        """Publish nothing more."""
        if self._task is not None:
            self._task.cancel()
        if self.own is not None:
            self.own.close()

    def publish(self, topic: str, body: bytes, content_type: str = feeds.CONTENT_TYPE) -> None:
        """An event of a feed, behind everything that somebody waits for."""
        if self.own is not None:
            self.own.publish(topic, body, content_type, feeds.PRIORITY)

    def publish_event(self, topic: str, body: bytes, content_type: str) -> None:
        """An event of the node, such as a change of members."""
        if self.own is not None:
            self.own.publish(topic, body, content_type)

    async def _publish_counters(self, every_s: float, snapshot: Callable[[], Awaitable[Snapshot]]) -> None:
        topic = feeds.counters_topic(self._core.name)
        while True:
            try:
                taken = await snapshot()
                # made elsewhere: thousands of labels take longer than forwarding should wait
                for body in await asyncio.to_thread(counters, taken, time.time_ns()):
                    self.publish(topic, body)
            except Exception:  # the next interval has another chance
                log.exception("counters not published", node=self._core.name)
            await asyncio.sleep(every_s)


def counters(snapshot: Snapshot, now_ns: int) -> list[bytes]:
    """The bodies of the events that tell these counters."""
    numbers = (sample for sample in samples(snapshot) if math.isfinite(sample.value))
    bodies = []
    while part := list(itertools.islice(numbers, PART)):
        named: dict[str, dict[str, float]] = {}
        for name, labels, value in part:
            named.setdefault(name, {})[labels] = value
        bodies.append(msgspec.json.encode(feeds.Counters(created_ns=now_ns, counters=named)))
    return bodies
