"""Counters of a node in the form Prometheus scrapes (GS-170)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from chappe.core.accounts import Holder
from chappe.links._turns import BOUNDS_S

CLIENTS_BY_NAME = 1_000  # clients beyond are summed under OTHERS: one series a client must not drown the scraper
OTHERS = "(others)"

_COUNTED = {
    "bytes": "Bytes through ports",
    "status": "Status records through ports",
    "events": "Events through ports",
    "control": "Control messages through ports",
}
_FORMER = {"rerouted": "rescued", "route_errors": "way_errors"}
"""Former names of counters of the engine: for one release they are shown beside the present ones.

Not of drops: those are added up over their reasons, and none may count twice.
"""


@dataclass(slots=True)
class PortSample:
    """The counters of all ports of one client name or link."""

    role: str
    name: str
    connected: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    queued_bytes: int = 0
    unacknowledged_bytes: int = 0
    kernel_drops: int = 0
    silent_s: float = 0.0  # since the last sign of life

    def add(self, counters: dict[str, int]) -> None:
        for name, value in counters.items():
            self.counters[name] = self.counters.get(name, 0) + value


@dataclass(slots=True)
class Snapshot:
    """Everything a node shows, taken at one time."""

    node: str
    ports: list[PortSample] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    listeners: dict[str, dict[str, int]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # by code
    shares: dict[Holder, tuple[float, int]] = field(default_factory=dict)  # of the loop: seconds, times exceeded
    neighbours: dict[tuple[str, str], int] = field(default_factory=dict)  # refused by rules: (name, action)
    stale: dict[str, int] = field(
        default_factory=dict
    )  # statements that were replayed or of another time, by originator
    links: list[LinkSample] = field(default_factory=list)  # what was measured
    turns: TurnSample | None = None
    paused: int = 0  # times that too many requests of a connection waited


@dataclass(frozen=True, slots=True)
class TurnSample:
    """How long the turns of the loop took, the time that it waited left out."""

    counts: list[int]  # by BOUNDS_S, the last one for what is longer
    sum_s: float
    longest_s: float
    recent_s: float  # the longest since the last scrape


@dataclass(frozen=True, slots=True)
class LinkSample:
    """What was measured of one link; NaN where nothing was."""

    role: str
    name: str
    figures: dict[str, float]


class Sample(NamedTuple):
    """One number as /metrics shows it: `name{labels} value`."""

    name: str
    labels: str
    value: float


def samples(snapshot: Snapshot) -> Iterator[Sample]:
    """Everything that `render` shows, in the same order and words."""
    for family in _Families(snapshot).collect():
        for sample in family.samples:
            labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in sorted(sample.labels.items()))
            yield Sample(sample.name, labels, float(sample.value))


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
        yield from _ports(self._snapshot)
        yield from _totals(self._snapshot)
        yield from _turns(self._snapshot)
        yield from _links(self._snapshot)


def with_former_names(counters: dict[str, int]) -> dict[str, int]:
    """Counters of the engine by their names, and by the former ones of those that have one."""
    return {shown: value for name, value in counters.items() for shown in _names(name)}


def _names(counter: str) -> tuple[str, ...]:
    return (counter, _FORMER[counter]) if counter in _FORMER else (counter,)


def _ports(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ["node", "role", "link"]
    directed = {
        name: CounterMetricFamily(f"chappe_port_{name}", text, labels=[*labels, "direction"])
        for name, text in _COUNTED.items()
    }
    drops = CounterMetricFamily(
        "chappe_port_drops", "What was dropped for or from a port", labels=[*labels, "reason"],
    )  # fmt: skip
    other = CounterMetricFamily(
        "chappe_port_actions",
        "Filtered, conflated, resent … (deprecated: rescued, now rerouted; way_errors, now route_errors)",
        labels=[*labels, "action"],
    )
    gauges = {
        "queued_bytes": GaugeMetricFamily("chappe_port_queued_bytes", "Bytes not yet written", labels=labels),
        "unacknowledged_bytes": GaugeMetricFamily(
            "chappe_port_unacknowledged_bytes", "Bytes the other node has not confirmed", labels=labels
        ),
        "connected": GaugeMetricFamily("chappe_port_connected", "Connections of this name", labels=labels),
        "silent_s": GaugeMetricFamily("chappe_port_silent_seconds", "Since the last sign of life", labels=labels),
    }
    kernel = CounterMetricFamily("chappe_port_kernel_drops", "Datagrams the kernel dropped", labels=labels)
    for port in snapshot.ports:
        where = [snapshot.node, port.role, port.name]
        for name, value in port.counters.items():
            kind, _, direction = name.rpartition("_")
            if kind in directed and direction in ("in", "out"):
                directed[kind].add_metric([*where, direction], value)
            elif name.startswith("drop_"):
                drops.add_metric([*where, name.removeprefix("drop_")], value)
            else:
                for action in _names(name):
                    other.add_metric([*where, action], value)
        for name, gauge in gauges.items():
            gauge.add_metric(where, getattr(port, name))
        kernel.add_metric(where, port.kernel_drops)
    yield from directed.values()
    yield from (drops, other, kernel, *gauges.values())


def _totals(snapshot: Snapshot) -> Iterator[Metric]:
    deprecated = ", ".join(f"{old}, now {new}" for new, old in _FORMER.items())
    totals = CounterMetricFamily(
        "chappe_engine", f"Sums over all ports, ever (deprecated: {deprecated})", labels=["node", "counter"]
    )
    for name, value in snapshot.totals.items():
        for counter in _names(name):
            totals.add_metric([snapshot.node, counter], value)
    yield totals
    for name, gauge in snapshot.gauges.items():
        yield _gauge(snapshot.node, name, gauge)
    listeners = CounterMetricFamily("chappe_listener", "Connections by listener", labels=["node", "address", "counter"])
    for address, counters in snapshot.listeners.items():
        for name, value in counters.items():
            listeners.add_metric([snapshot.node, address, name], value)
    yield listeners
    refused = CounterMetricFamily("chappe_refused", "Connections refused", labels=["node", "code"])
    for code, value in snapshot.refused.items():
        refused.add_metric([snapshot.node, code], value)
    yield refused
    yield from _shares(snapshot)
    paused = CounterMetricFamily(
        "chappe_requests_paused", "Times that a connection was not read, because its requests waited", labels=["node"]
    )
    paused.add_metric([snapshot.node], snapshot.paused)
    yield paused
    denied = CounterMetricFamily(
        "chappe_neighbour_refused", "Definitions and announcements of nodes that a rule or a limit refused",
        labels=["node", "neighbour", "action"],
    )  # fmt: skip
    for (name, action), value in snapshot.neighbours.items():
        denied.add_metric([snapshot.node, name, action], value)
    yield denied
    stale = CounterMetricFamily(
        "chappe_mesh_stale",
        "Statements refused for their time: replayed, or a wrong clock (deprecated: label speaker, now originator)",
        labels=["node", "speaker", "originator"],
    )
    for name, value in snapshot.stale.items():
        stale.add_metric([snapshot.node, name, name], value)
    yield stale


def _shares(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ["node", "kind", "who"]
    used = CounterMetricFamily(
        "chappe_loop_share_seconds", "Time of the loop that requests and handshakes took, by who made them",
        labels=labels,
    )  # fmt: skip
    exceeded = CounterMetricFamily(
        "chappe_loop_share_exceeded", "Times that somebody used more than its share of the loop", labels=labels
    )
    for (kind, who), (seconds, times) in snapshot.shares.items():
        used.add_metric([snapshot.node, kind, who], seconds)
        exceeded.add_metric([snapshot.node, kind, who], times)
    yield used
    yield exceeded


def _turns(snapshot: Snapshot) -> Iterator[Metric]:
    turns = snapshot.turns
    if turns is None:
        return
    total, buckets = 0, []
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], turns.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family = HistogramMetricFamily(
        "chappe_loop_turn_seconds", "Turns of the loop that forwards, waiting left out", labels=["node"]
    )
    family.add_metric([snapshot.node], buckets, turns.sum_s)
    yield family
    longest = GaugeMetricFamily(
        "chappe_loop_turn_seconds_max", "The longest turn of the loop", labels=["node", "since"]
    )
    longest.add_metric([snapshot.node, "start"], turns.longest_s)
    longest.add_metric([snapshot.node, "scrape"], turns.recent_s)
    yield longest


_FIGURES = {
    "latency_seconds": "Mean one-way time of a link",
    "deviation_seconds": "Standard deviation of the one-way time",
    "jitter_seconds": "Jitter as RTP has it",
    "loss_ratio": "Share of probes without an answer",
    "bandwidth_bytes": "Available bandwidth, bytes a second",
    "cost": "Cost of the link by the profile of the node",
}


def _links(snapshot: Snapshot) -> Iterator[Metric]:
    if not snapshot.links:
        return
    for figure, text in _FIGURES.items():
        family = GaugeMetricFamily(f"chappe_link_{figure}", text, labels=["node", "role", "link"])
        for link in snapshot.links:
            value = link.figures.get(figure, math.nan)
            if not math.isnan(value):
                family.add_metric([snapshot.node, link.role, link.name], value)
        yield family


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _gauge(node: str, name: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"chappe_{name}", name.replace("_", " "), labels=["node"])
    family.add_metric([node], value)
    return family
