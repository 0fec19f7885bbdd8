"""What the demo knows: the newest reports of its workers and counters of its nodes, and the rates between them."""

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
    """Filled while the demo runs; `results` at its end."""

    started_s: float = 0.0
    publisher: Row = field(default_factory=dict)
    published: Sample = field(default_factory=Sample)
    subscribers: dict[str, Sample] = field(default_factory=dict)
    results: dict[str, Row] = field(default_factory=dict)
    nodes: dict[str, Sample] = field(default_factory=dict)
    links: dict[str, list[Row]] = field(default_factory=dict)
    clients: dict[str, list[Row]] = field(default_factory=dict)

    def begin(self) -> None:
        self.started_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def heard(self, report: Row) -> None:
        """A report of a worker."""
        if "rounds" in report or "last" in report:
            self.publisher.update(report)
            if "rounds" in report:
                self.published.take(report)
        for name, row in report.get("subscribers", {}).items():
            self.subscribers.setdefault(name, Sample()).take(row)
        self.results.update(report.get("results", {}))

    def sampled(self, node: str, counters: Row, links: list[Row], clients: list[Row]) -> None:
        """The counters of a node."""
        self.nodes.setdefault(node, Sample()).take(counters)
        self.links[node] = links
        self.clients[node] = clients

    def filtered(self, subscriber: str) -> int:
        """How many values the last node kept from a watcher because it did not ask for them."""
        return sum(int(row["filtered"]) for row in self.clients.get("c", []) if row["name"] == subscriber)

    def queued_bytes(self, node: str) -> int:
        """What waits in the queues of a node."""
        return sum(int(row["queued_bytes"]) for row in (*self.links.get(node, []), *self.clients.get(node, [])))


def drops(row: Row) -> dict[str, int]:
    """The drops in a row of counters, by reason."""
    return {key.removeprefix("drop_"): count for key, count in row.items() if key.startswith("drop_") and count}
