"""Counters of an archive in the form Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(slots=True)
class Snapshot:
    """Everything an archive shows, taken at one time."""

    archive: str
    rows: Mapping[str, int] = field(default_factory=dict)  # stored, by dataset
    bytes: Mapping[str, int] = field(default_factory=dict)  # of those rows, as the log has them
    offsets: Mapping[str, int] = field(default_factory=dict)  # behind the last row on disk, by dataset
    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by dataset and reason
    queued: Mapping[str, int] = field(default_factory=dict)  # received and not read yet, by dataset
    waiting_bytes: int = 0
    lag_s: float = 0.0  # since the oldest row came that is not on disk
    synced_s: float = 0.0  # when rows were put on disk last, seconds since 1970
    connected: bool = False
    confirming: bool = True  # the disk takes the log
    sync_failures: int = 0
    damaged: int = 0  # files that are kept because something in them cannot be read


def render(snapshot: Snapshot) -> bytes:
    """The text that /metrics serves."""
    registry = CollectorRegistry()
    registry.register(_Families(snapshot))
    return generate_latest(registry)


class _Families(Collector):
    """Feeds prometheus-client from a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        of = self._snapshot
        for name, text, by_dataset in (("rows", "Rows stored", of.rows), ("bytes", "Bytes of stored rows", of.bytes)):
            counter = CounterMetricFamily(f"chappe_archive_{name}", text, labels=["archive", "dataset"])
            for dataset, count in by_dataset.items():
                counter.add_metric([of.archive, dataset], count)
            yield counter
        drops = CounterMetricFamily(
            "chappe_archive_drops", "Rows that were not stored", labels=["archive", "dataset", "reason"]
        )
        for (dataset, reason), count in of.dropped.items():
            drops.add_metric([of.archive, dataset, reason], count)
        yield drops
        failures = CounterMetricFamily("chappe_archive_sync_failures", "Syncs that failed", labels=["archive"])
        failures.add_metric([of.archive], of.sync_failures)
        yield failures
        offsets = GaugeMetricFamily("chappe_archive_offset", "Behind the last row", labels=["archive", "dataset"])
        for dataset, offset in of.offsets.items():
            offsets.add_metric([of.archive, dataset], offset)
        yield offsets
        queued = GaugeMetricFamily("chappe_archive_queued", "Received and not read yet", labels=["archive", "dataset"])
        for dataset, depth in of.queued.items():
            queued.add_metric([of.archive, dataset], depth)
        yield queued
        for name, text, value in (
            ("waiting_bytes", "Of rows in memory that wait for the disk", of.waiting_bytes),
            ("lag_seconds", "Since the oldest row came that is not on disk", of.lag_s),
            ("synced_timestamp_seconds", "When rows were put on disk last", of.synced_s),
            ("connected", "Whether its node is reached", of.connected),
            ("confirming", "Whether the disk takes the log", of.confirming),
            ("damaged_files", "Kept because something in them cannot be read", of.damaged),
        ):
            gauge = GaugeMetricFamily(f"chappe_archive_{name}", text, labels=["archive"])
            gauge.add_metric([of.archive], value)
            yield gauge
