"""What a node reports to the aggregator of its realm, and what that one may order (MR-083 to MR-086)."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Sequence

from chappe.events.member import Member
from chappe.events.member_links import Link
from chappe.events.reporting import Measured
from chappe.machine import Effect, Publish
from chappe.measure import cost
from chappe.measure.advice import mix_advice
from chappe.measure.messages import Advice
from chappe.measure.monitor import Advised, Interval, Monitor, Now, Settings, Switch
from chappe.measure.record import Record, link_of

METRIC_FACTORS = {
    "latency_ms": "latency", "deviation_ms": "deviation", "jitter_ms": "jitter", "jitter": "jitter", "loss": "loss",
    "bandwidth": "bandwidth",
}  # fmt: skip


class Reports:
    """The monitor of a node: readings become records, orders become switches."""

    def __init__(self, node: str, settings: Settings, profile: str) -> None:
        """`profile`: by which the cost of a link is reported."""
        self._node = node
        self._profile = profile
        self._advice: dict[str, Advice] = {}  # by link
        self._monitor = Monitor(node, settings)

    @property
    def topics(self) -> tuple[str, ...]:
        """What the node subscribes to for it."""
        return self._monitor.topics

    def report(self, readings: Sequence[Measured], now_ns: int, wall_ns: int) -> list[Effect]:
        """What to publish after links were measured."""
        records = list(self._records(readings, wall_ns))
        return [*self._monitor.readings(records, now_ns)]

    def receive(self, topic: str, body: bytes, member: Member, now_ns: int) -> list[Effect]:
        """An event of one of `topics`: orders about the links of the member are carried out."""
        effects: list[Effect] = []
        initiator = member.measurement.initiator
        for output in self._monitor.received(topic, body, now_ns):
            match output:
                case Publish():
                    effects.append(output)
                case Switch(name, metric, on):
                    for link in self._links(member, name):
                        if not metric:
                            initiator.switch(link.port, on)
                        elif metric in METRIC_FACTORS:
                            initiator.switch_factor(link.port, METRIC_FACTORS[metric], on)
                case Interval(name, interval_ns):
                    for link in self._links(member, name):
                        initiator.interval(interval_ns, link.port)
                case Now(name):
                    for link in self._links(member, name):
                        initiator.now(link.port, now_ns)
                case Advised(advice):
                    for link in self._links(member, advice.link):
                        self._advice[advice.link] = advice
                        effects += member.reweigh(link.port, now_ns)
        return effects

    def weigh(self, link: Link, own: cost.Metrics | None) -> cost.Metrics | None:
        """What was measured here, with what others have measured of the same link (MR-079)."""
        advice = self._advice.get(name_of(self._node, link))
        return own if advice is None else mix_advice(own, advice, time.time_ns())

    def lost(self, link: Link, now_ns: int) -> None:
        """A link is down: what others advised of it is of no use any more."""
        name = name_of(self._node, link)
        self._advice.pop(name, None)
        self._monitor.link_lost(name, now_ns)

    def _links(self, member: Member, name: str) -> list[Link]:
        """The link of that name, if the member has it."""
        return [link for link in member.links if name_of(self._node, link) == name][:1]

    def _records(self, readings: Sequence[Measured], wall_ns: int) -> Iterator[Record]:
        for link, reading, advertised in readings:
            metrics = reading.metrics
            yield Record(
                link=name_of(self._node, link), node=self._node, stamp_ns=wall_ns, peer=link.name,
                uri=f"{link.kind}://{link.name}", transport=link.kind, interval_ms=reading.interval_ns / 1e6,
                window=reading.window, outliers=reading.outliers, latency_ms=_known(metrics.latency_ms),
                deviation_ms=_known(metrics.deviation_ms), jitter_ms=_known(metrics.jitter_ms),
                jitter=_known(metrics.jitter), loss=_known(metrics.loss), bandwidth=_known(metrics.bandwidth),
                cost=_known(cost.of(metrics, self._profile)), profile=self._profile, published=advertised,
            )  # fmt: skip


def name_of(node: str, link: Link) -> str:
    """The UUID under which a link is reported: the mesh's, or of a link that is in none one made of its ends."""
    return str(uuid.UUID(bytes=link.id)) if link.id else link_of(f"{link.kind}://{node}/{link.role}/{link.name}")


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
