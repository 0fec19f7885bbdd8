"""Metrics in the text form of Prometheus as records, by a table of names and labels; and records as such metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from chappe.aggregation.foreign.mapping import ForeignLink, ForeignMetric
from chappe.measure.record import FOREIGN, METRICS, Record, Refused

ORIGIN = FOREIGN + "prometheus"
MAX_BYTES = 16 << 20
UNITS = {
    "latency_ms": ("latency_seconds", 1e-3, "Mean one-way latency."),
    "deviation_ms": ("latency_deviation_seconds", 1e-3, "Deviation of the latency."),
    "jitter_ms": ("jitter_seconds", 1e-3, "Smoothed jitter."),
    "jitter": ("relative_jitter", 1.0, "Jitter relative to the latency."),
    "loss": ("loss_ratio", 1.0, "Share of lost probes."),
    "bandwidth": ("bandwidth_bytes", 1.0, "Available bandwidth, bytes a second."),
    "cost": ("cost", 1.0, "Cost of the link in its profile."),
}


def read(
    text: str, links: Sequence[ForeignLink], metrics: Sequence[ForeignMetric], now_ns: int
) -> tuple[list[Record], list[Refused]]:
    """One record for each link of which something is known; samples that no table names are passed over.

    A sample belongs to a link if it has all labels of its table. Its own time counts, else `now_ns`.
    """
    if len(text) > MAX_BYTES:
        return [], [Refused(1, f"has {len(text)} characters, at most {MAX_BYTES} are read")]
    wanted = {metric.name: metric for metric in metrics}
    values: dict[int, dict[str, Any]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                metric = wanted.get(sample.name)
                place = _place(links, sample.labels) if metric is not None else None
                if metric is None or place is None:
                    continue
                found = values.setdefault(place, {"stamp_ns": 0})
                found[metric.field] = float(sample.value) * metric.factor
                stamp = getattr(sample.timestamp, "sec", sample.timestamp)
                found["stamp_ns"] = max(found["stamp_ns"], now_ns if stamp is None else int(float(stamp) * 1e9))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return [], [Refused(1, f"is not the text form of Prometheus: {str(error)[:200] or type(error).__name__}")]
    records = []
    for place, found in sorted(values.items()):
        link = links[place]
        records.append(
            Record(
                link=link.uuid(), uri=link.uri, node=link.node, peer=link.peer, transport=link.transport,
                user_group=link.user_group, origin=ORIGIN, **found,
            )
        )  # fmt: skip
    return records, []


def write(records: Iterable[Record]) -> bytes:
    """The newest values of links as gauges `chappe_link_…`, for Prometheus and what reads its form (MR-080)."""
    registry = CollectorRegistry()
    labels = ("node", "peer", "link", "uri", "transport", "realm")
    gauges = {
        field: Gauge(f"chappe_link_{name}", text, labels, registry=registry) for field, (name, _, text) in UNITS.items()
    }
    for record in records:
        of = [getattr(record, label) for label in labels]
        for field in METRICS:
            value = getattr(record, field)
            if value is not None:
                gauges[field].labels(*of).set(value * UNITS[field][1])
    return generate_latest(registry)


def _place(links: Sequence[ForeignLink], labels: dict[str, str]) -> int | None:
    for place, link in enumerate(links):
        if link.labels and all(labels.get(name) == value for name, value in link.labels.items()):
            return place
    return None
