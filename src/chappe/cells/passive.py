"""The bandwidth of links that are saturated: trains need links that are not (BF-11)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from chappe.engine._engine import Engine
from chappe.machine import NEVER

SECOND = 1_000_000_000
LOOK_NS = SECOND // 2
KEPT_NS = 10 * SECOND  # what a busy link carried counts for so long
OLD = 0.7  # weight of what was known


@dataclass(slots=True)
class _Watch:
    bytes_out: int
    waiting: bool  # at the last look
    looked_ns: int
    estimate: float = math.nan
    busy_ns: int = -NEVER  # when that was measured


class PassiveBandwidth:
    """What a link carries while something always waits for it is what it can carry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watched: dict[int, _Watch] = {}

    def add(self, port: int, now_ns: int) -> None:
        """A link is up."""
        self._watched[port] = _Watch(self._bytes_out(port), False, now_ns)

    def remove(self, port: int) -> None:
        self._watched.pop(port, None)

    def look(self, now_ns: int) -> None:
        """Compare with the last look, if that is long enough ago."""
        for port, watch in self._watched.items():
            took_ns = now_ns - watch.looked_ns
            if took_ns < LOOK_NS:
                continue
            waiting, total = self._engine.pending(port) > 0, self._bytes_out(port)
            if waiting and watch.waiting and total > watch.bytes_out:
                rate = (total - watch.bytes_out) * SECOND / took_ns
                fresh = math.isnan(watch.estimate) or now_ns - watch.busy_ns > KEPT_NS
                watch.estimate = rate if fresh else OLD * watch.estimate + (1 - OLD) * rate
                watch.busy_ns = now_ns
            watch.bytes_out, watch.waiting, watch.looked_ns = total, waiting, now_ns

    def bandwidth(self, port: int, trained: float, now_ns: int) -> float:
        """What the link carries towards its other end: what it carried while it was busy, else what trains say."""
        watch = self._watched.get(port)
        if watch is None or math.isnan(watch.estimate):
            return trained
        return watch.estimate if math.isnan(trained) or now_ns - watch.busy_ns <= KEPT_NS else trained

    def _bytes_out(self, port: int) -> int:
        return self._engine.port_counters(port)["bytes_out"]
