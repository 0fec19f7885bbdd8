"""What a node reports to the aggregator of its realm, and what that one may order (MR-083 to MR-086)."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Iterator

from chappe.aggregation.foreign.advice import mixed
from chappe.aggregation.messages import Advice
from chappe.aggregation.messages import Publish as Told
from chappe.aggregation.monitor import Advised, Interval, Monitor, Now, Settings, Switch
from chappe.core.sections import Report
from chappe.events.member import Measured, Member
from chappe.events.member_links import Link
from chappe.measure import cost
from chappe.measure.record import Record, link_of

METRIC_FACTORS = {
    "latency_ms": "latency", "deviation_ms": "deviation", "jitter_ms": "jitter", "jitter": "jitter", "loss": "loss",
    "bandwidth": "bandwidth",
}  # fmt: skip
Event = tuple[str, bytes, str]  # topic, body, content type


class Reports:
    """The monitor of a node: readings become records, orders become switches."""

    def __init__(self, node: str, section: Report | None, member: Member) -> None:
        self._node = node
        self._member = member
        self._monitor: Monitor | None = None
        self._advice: dict[str, Advice] = {}  # by link
        self.advised: list[int] = []  # ports of links whose cost is to be computed anew
        if section is not None:
            settings = Settings(
                realm=section.realm, user_group=section.user_group, aggregator=section.aggregator,
                silence_s=section.silence_s, advice=section.advice,
            )  # fmt: skip
            self._monitor = Monitor(node, settings)
            if section.advice:
                member.weigh = self._weighed

    @property
    def topics(self) -> tuple[str, ...]:
        """What the node subscribes to for it."""
        return self._monitor.topics if self._monitor is not None else ()

    def measured(self, readings: Iterable[Measured], now_ns: int, wall_ns: int) -> list[Event]:
        """What to publish after links were measured."""
        if self._monitor is None:
            return []
        records = list(self._records(readings, wall_ns))
        return [(each.topic, each.body, each.content_type) for each in self._monitor.readings(records, now_ns)]

    def received(self, topic: str, body: bytes, now_ns: int) -> list[Event]:
        """What to publish after an event of one of `topics`; orders are carried out."""
        if self._monitor is None:
            return []
        answers: list[Event] = []
        for output in self._monitor.received(topic, body, now_ns):
            match output:
                case Told(answer, text, content_type):
                    answers.append((answer, text, content_type))
                case Switch(link, metric, on):
                    self._switch(link, metric, on)
                case Interval(link, interval_ns):
                    found = self._link(link)
                    if found is not None:
                        self._member.measurement.initiator.interval(interval_ns, found.port)
                case Now(link):
                    found = self._link(link)
                    if found is not None:
                        self._member.measurement.initiator.now(found.port, now_ns)
                case Advised(advice):
                    found = self._link(advice.link)
                    if found is not None:
                        self._advice[advice.link] = advice
                        self.advised.append(found.port)
        return answers

    def gone(self, link: Link) -> None:
        """Orders about a link that is no more are forgotten."""
        if self._monitor is not None:
            self._monitor.gone(name_of(self._node, link))
            self._advice.pop(name_of(self._node, link), None)

    def _switch(self, link: str, metric: str, on: bool) -> None:
        found = self._link(link)
        if found is None:
            return
        initiator = self._member.measurement.initiator
        if not metric:
            initiator.switch(found.port, on)
        elif metric in METRIC_FACTORS:
            initiator.switch_factor(found.port, METRIC_FACTORS[metric], on)

    def _weighed(self, link: Link, own: cost.Metrics | None) -> cost.Metrics | None:
        """What was measured here, with what others have measured of the same link (MR-079)."""
        advice = self._advice.get(name_of(self._node, link))
        return own if advice is None else mixed(own, advice, time.time_ns())

    def _link(self, name: str) -> Link | None:
        return next((link for link in self._member.links if name_of(self._node, link) == name), None)

    def _records(self, readings: Iterable[Measured], wall_ns: int) -> Iterator[Record]:
        for measured in readings:
            link = self._member.links.by_port.get(measured.port)
            if link is None:
                continue
            reading = measured.reading
            metrics = reading.metrics
            profile = self._member.settings.profile
            yield Record(
                link=name_of(self._node, link), node=self._node, stamp_ns=wall_ns, peer=link.name,
                uri=f"{link.kind}://{link.name}", transport=link.kind, interval_ms=reading.interval_ns / 1e6,
                window=reading.window, outliers=reading.outliers, latency_ms=_known(metrics.latency_ms),
                deviation_ms=_known(metrics.deviation_ms), jitter_ms=_known(metrics.jitter_ms),
                jitter=_known(metrics.jitter), loss=_known(metrics.loss), bandwidth=_known(metrics.bandwidth),
                cost=_known(cost.of(metrics, profile)), profile=profile, published=measured.told,
            )  # fmt: skip


def name_of(node: str, link: Link) -> str:
    """The UUID under which a link is reported: the mesh's, or of a link that is in none one made of its ends."""
    return str(uuid.UUID(bytes=link.id)) if link.id else link_of(f"{link.kind}://{node}/{link.role}/{link.name}")


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
