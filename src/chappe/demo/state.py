"""What the demo knows: the newest reports of its workers and counters of its routers, and the rates between them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(slots=True)
class Sample:
    """A row of counters and when it was taken, with the one before it."""

    row: Row = field(default_factory=dict)
    at_s: float = 0.0
    before: Row = field(default_factory=dict)
    before_s: float = 0.0

    def take(self, row: Row) -> None:
        self.before, self.before_s = self.row, self.at_s
        self.row, self.at_s = row, time.monotonic()

    def rate(self, *keys: str) -> float:
        """Counts a second between the last two samples."""
        if not self.before or self.at_s <= self.before_s:
            return 0.0
        counted = sum(int(self.row[key]) - int(self.before[key]) for key in keys)
        return counted / (self.at_s - self.before_s)


@dataclass(slots=True)
class State:
    """Filled while the demo runs; `results` and `heard` at its end."""

    started_s: float = 0.0
    publisher: Row = field(default_factory=dict)
    published: Sample = field(default_factory=Sample)
    subscribers: dict[str, Sample] = field(default_factory=dict)
    results: dict[str, Row] = field(default_factory=dict)
    alerts: Row = field(default_factory=dict)  # received by each listener
    heard: Row = field(default_factory=dict)
    routers: dict[str, Sample] = field(default_factory=dict)
    links: dict[str, list[Row]] = field(default_factory=dict)
    clients: dict[str, list[Row]] = field(default_factory=dict)
    mode: int = 0
    changes: int = 0  # of mode
    floods: int = 0
    condensed: bool = False
    events: list[str] = field(default_factory=list)  # that have happened, in words

    def begin(self) -> None:
        self.started_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def happened(self, what: str) -> None:
        """Something that is shown with its time."""
        self.events.append(f"{self.elapsed_s:5.1f} s  {what}")

    def heard_from(self, report: Row) -> None:
        """A report of a worker."""
        if "rounds" in report or "last" in report:
            self.publisher.update(report)
            if "rounds" in report:
                self.published.take(report)
            return
        for name, row in report.get("subscribers", {}).items():
            self.subscribers.setdefault(name, Sample()).take(row)
        self.results.update(report.get("results", {}))
        self.alerts.update(report.get("alerts", {}))
        self.heard.update(report.get("heard", {}))

    def received(self, subscriber: str) -> int:
        """How many values a watcher has."""
        sample = self.subscribers.get(subscriber)
        return int(sample.row["received"]) if sample else 0

    def sampled(self, router: str, counters: Row, links: list[Row], clients: list[Row]) -> None:
        """The counters of a router."""
        self.routers.setdefault(router, Sample()).take(counters)
        self.links[router] = links
        self.clients[router] = clients

    def filtered(self, subscriber: str) -> int:
        """How many values its edge kept from a watcher because it did not ask for them."""
        return sum(int(row["filtered"]) for rows in self.clients.values() for row in rows if row["name"] == subscriber)

    def queued_bytes(self, router: str) -> int:
        """What waits in the queues of a router."""
        return sum(int(row["queued_bytes"]) for row in (*self.links.get(router, []), *self.clients.get(router, [])))


def drops(row: Row) -> dict[str, int]:
    """The drops in a row of counters, by reason; the second copy of a value that came by two paths is none."""
    dropped = {key.removeprefix("drop_"): count for key, count in row.items() if key.startswith("drop_") and count}
    dropped.pop("duplicate", None)
    return dropped
