"""When a node looks at what is due: seldom while nothing waits, so that an idle node costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

TICK_S = 0.05  # between two ticks while something waits that only a tick takes further
REST_S = 0.25  # otherwise; time-outs are late by no more
SIGNS = 4  # ticks within one heartbeat, so that a dead link is found by a quarter of it later at most


def rest_s(heartbeat_ns: int) -> float:
    """How long a node may rest whose shortest interval of heartbeats is that."""
    return max(TICK_S, min(REST_S, heartbeat_ns / SIGNS / 1e9))


class Ticker:
    """Calls `tick` again and again; it returns the seconds until the next one."""

    def __init__(self, node: str, tick: Callable[[], float]) -> None:
        self._node = node
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        self._in(TICK_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hurry(self) -> None:
        """Something has begun to wait: rest no longer than usual."""
        if self._timer is not None and self._due_s - asyncio.get_running_loop().time() > TICK_S:
            self._timer.cancel()
            self._in(TICK_S)

    def _in(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + delay_s
        self._timer = loop.call_later(delay_s, self._run)

    def _run(self) -> None:
        delay_s = TICK_S
        try:
            delay_s = self._tick()
        except Exception:
            log.exception("ticker", node=self._node)
        if self._timer is not None:
            self._in(delay_s)
