"""Broken guarantees that a client noticed, published as one event a second (docs/reference/feeds.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from chappe.client._status import Watch
from chappe.client.owner import Owner
from chappe.client.violations import Violation
from chappe.wire import feeds

EVERY_S = 1.0
SUBJECTS = 4_096  # different subjects and kinds a second
OTHERS = "(others)"


@dataclass(slots=True)
class _Sum:
    created_ns: int = 0
    count: int = 0
    latency_ns: int | None = None
    detail: dict[str, Any] | None = None


class Breaches:
    """Counts by subject and kind; thousands of one kind make a report as short as one."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sum] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def add(
        self, subject: str, kind: str, now_ns: int, count: int = 1, latency_ns: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """So many more of that kind."""
        total = self._sums.get((subject, kind))
        if total is None:
            key = (subject, kind) if len(self._sums) < SUBJECTS else (OTHERS, kind)
            total = self._sums.setdefault(key, _Sum())
        total.created_ns = now_ns
        total.count += count
        total.detail = detail
        if latency_ns is not None:
            total.latency_ns = max(latency_ns, total.latency_ns or latency_ns)

    def body(self) -> bytes:
        """The event that reports all of them."""
        breaches = [
            feeds.Breach(subject, kind, each.created_ns, each.count, each.latency_ns,
                        msgspec.Raw(msgspec.json.encode(each.detail)))
            for (subject, kind), each in self._sums.items()
        ]  # fmt: skip
        return msgspec.json.encode(feeds.Quality(breaches=tuple(breaches)))

    def clear(self) -> None:
        self._sums.clear()


class QualityReporter:
    """Publishes what was noticed, a second after the first. `publish(topic, body, priority)` is False when full."""

    def __init__(self, owner: Owner, publish: Callable[[str, bytes, int], bool]) -> None:
        self._owner = owner
        self._publish = publish
        self._breaches = Breaches()
        self._timer: asyncio.TimerHandle | None = None

    def violated(self, watch: Watch, kind: str, violation: Violation[Watch]) -> None:
        """A value was late or missing, or an estimate took its place."""
        mode, quality = self._owner.mode, watch.quality
        assert quality is not None
        asked, granted = quality.request.in_mode(mode), quality.granted.get(mode)
        interval_ns = round(granted.interval * 1e9) if granted is not None else asked.interval_ns if asked else 0
        detail = {"mode": mode, "interval_ns": interval_ns, "bound_ns": quality.bound_ns(mode)}
        subject = f"{watch.publisher}/{watch.variable}"
        self._breaches.add(subject, kind, violation.at_ns, violation.count, violation.latency_ns, detail)
        self._arm()

    def incomplete(self, group: str, count: int) -> None:
        """Sets of a group were given up."""
        self._breaches.add(f"group/{group}", "incomplete", time.time_ns(), count, None, {"mode": self._owner.mode})
        self._arm()

    def close(self) -> None:
        """Publish what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._publish_report()

    def end(self) -> None:
        """The connection is gone: report nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._publish_report)

    def _publish_report(self) -> None:
        self._timer = None
        if self._publish(feeds.quality_topic(self._owner.name), self._breaches.body(), feeds.PRIORITY):
            self._breaches.clear()
        else:  # the queue is full: it is published with what comes until then
            self._arm()
