"""An aggregator without I/O: reports in, records to keep, orders, alerts, announcements and snapshots out (MR-081)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from chappe.aggregation.access import Access
from chappe.aggregation.alerts import Alerts
from chappe.measure import messages, record
from chappe.measure.messages import (
    Advice,
    AlertEvent,
    Announce,
    Change,
    ControlReply,
    ControlRequest,
    Metric,
    Publish,
    RealmSnapshot,
)
from chappe.measure.record import Record, RecordError, problem

SECOND = 1_000_000_000
PART = 1000  # records in one part of a snapshot
FULL_EVERY = 10  # snapshots, of which one tells everything and the others what has changed
REPLY_S = 30.0
ORDERS = 100_000  # without an answer yet
PARTIES = 100_000
SILENT_NS = 300 * SECOND
LINKS = 500_000  # ends of links that are followed at the same time
FORGET_NS = 86_400 * SECOND  # a link that was not heard of for so long is followed no more


class Keep(NamedTuple):
    """Records to be stored."""

    records: Sequence[Record]


class KeepEvent(NamedTuple):
    """An alert that was raised or cleared, to be stored."""

    event: AlertEvent


class Answered(NamedTuple):
    """A monitor has answered an order, or did not in time (`reply` is None)."""

    request: ControlRequest
    reply: ControlReply | None


class Notice(NamedTuple):
    """Something that was refused, for the log: where it came from and why."""

    topic: str
    reason: str


Output = Keep | KeepEvent | Publish | Answered | Notice


class StandingOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[order]]` table: what every node gets to hear when it first reports; the keys of ControlRequest."""

    action: Literal["start", "stop", "set_interval", "report_only"]
    nodes: tuple[str, ...] = ("*",)
    links: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    interval_ms: float | None = None
    change: Change | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an aggregator is told.

    nodes: patterns of the nodes that it is for. follows: (realm, group) whose snapshots it reads. advises: for links
    that others measure: the node at its end and the weight of their measurement.
    """

    name: str
    realm: str
    url: str = ""
    nodes: tuple[str, ...] = ("*",)
    announce_s: float = 5.0
    snapshot_s: float = 60.0
    follows: tuple[tuple[str, str], ...] = ()
    advises: Mapping[str, tuple[str, float]] = {}
    orders: tuple[StandingOrder, ...] = ()


@dataclass(slots=True)
class Party:
    """Somebody who produces or consumes records (MR-130)."""

    kind: str  # producer, aggregator, consumer
    name: str
    realm: str
    heard_ns: int
    details: dict[str, object]


class Aggregator:
    """Times are UTC nanoseconds. Nothing here blocks; what is refused changes nothing else."""

    def __init__(self, settings: Settings, access: Access, alerts: Alerts) -> None:
        self.settings = settings
        self.access = access
        self.alerts = alerts
        self.newest: dict[tuple[str, str], Record] = {}
        self.parties: dict[tuple[str, str, str], Party] = {}
        self.stored = 0
        self.received = 0
        self.refused = 0
        self._orders: dict[str, tuple[ControlRequest, int]] = {}
        self._ordered = 0
        self._announced_ns = 0
        self._received_then = 0
        self._load = 0.0
        self._snapshot_ns = 0
        self._snapshots = 0
        self._told: dict[tuple[str, str], int] = {}  # stamp of each record in the last snapshot

    @property
    def topics(self) -> tuple[str, ...]:
        """What it subscribes to: reports to it and to nobody named, answers, announcements, snapshots it follows."""
        realm, name = self.settings.realm, self.settings.name
        return (
            messages.report_topic(realm, "+", name),
            messages.report_topic(realm, "+"),
            messages.reply_topic(realm, "+"),
            messages.announce_topic("+"),
            *(messages.snapshot_topic(*followed) for followed in self.settings.follows),
        )

    def receive(self, topic: str, body: bytes, now_ns: int) -> list[Output]:
        """What follows from an event of one of `topics`."""
        match topic.split("/"):
            case ["PBR", "Report", realm, node, *rest] if realm == self.settings.realm and len(rest) <= 1:
                return self._reported(topic, node, body, now_ns)
            case ["PBR", "Control", realm, node, "Reply"] if realm == self.settings.realm:
                return self._guarded(topic, lambda: self._answered(messages.decode(body, ControlReply), node))
            case ["PBR", "Aggregator", "Announce", realm]:
                return self._guarded(topic, lambda: self._heard(messages.decode(body, Announce), realm, now_ns))
            case ["PBR", "Snapshot", realm, group] if (realm, group) in self.settings.follows:
                return self._guarded(topic, lambda: self._shown(messages.decode(body, RealmSnapshot), realm, now_ns))
        return self._refuse(topic, "nothing of this topic is read here")

    def foreign(self, records: Iterable[Record], now_ns: int) -> list[Output]:
        """Take what another system measured; links that are configured for it get advice for their cost (MR-079)."""
        good, outputs = [], []
        for each in records:
            reason = problem(each, now_ns) or ("" if each.foreign else "origin: is not foreign")
            if reason:
                outputs += self._refuse(each.origin, reason)
            else:
                good.append(each)
        outputs += self._taken(good)
        for each in good:
            node, weight = self.settings.advises.get(each.link, ("", 0.0))
            if node:
                advice = Advice(
                    link=each.link, source=each.origin, stamp_ns=each.stamp_ns, weight=weight,
                    latency_ms=each.latency_ms, jitter=each.jitter, loss=each.loss, bandwidth=each.bandwidth,
                )  # fmt: skip
                topic = messages.advice_topic(self.settings.realm, node)
                outputs.append(Publish(topic, messages.encode(advice)))
        return outputs

    def order(
        self,
        node: str,
        action: str,
        now_ns: int,
        *,
        links: Sequence[str] = (),
        metrics: Sequence[Metric] = (),
        interval_ms: float | None = None,
        change: Change | None = None,
    ) -> tuple[str, list[Output]]:
        """Order the monitor of a node; the id of the order, whose answer comes as `Answered`."""
        if len(self._orders) >= ORDERS:
            raise RecordError(f"{ORDERS} orders have no answer yet; wait for some")
        self._ordered += 1
        wish = {
            "id": f"{self.settings.name}-{now_ns}-{self._ordered}", "aggregator": self.settings.name, "node": node,
            "action": action, "links": tuple(links), "metrics": tuple(metrics), "interval_ms": interval_ms,
            "change": change,
        }  # fmt: skip
        try:
            request = msgspec.convert(wish, ControlRequest)
        except msgspec.ValidationError as error:
            raise RecordError(f"no order: {error}") from None
        self._orders[request.id] = (request, now_ns)
        return request.id, [Publish(messages.control_topic(self.settings.realm, node), messages.encode(request))]

    def committed(self, number: int) -> None:
        """So many records are on disk now."""
        self.stored += number

    def tick(self, now_ns: int) -> list[Output]:
        """What is due: an announcement, snapshots, alerts about silence, orders without an answer."""
        outputs: list[Output] = []
        if now_ns - self._announced_ns >= self.settings.announce_s * SECOND:
            outputs.append(self._announce(now_ns))
            outputs += self._raised(self.alerts.tick(self.newest.values(), now_ns))
        if now_ns - self._snapshot_ns >= self.settings.snapshot_s * SECOND:
            outputs += self._snapshot(now_ns)
        late = [id for id, (_, then) in self._orders.items() if now_ns - then >= REPLY_S * SECOND]
        outputs += [Answered(self._orders.pop(id)[0], None) for id in late]
        return outputs

    def next_ns(self) -> int:
        """When to tick next."""
        announce = self._announced_ns + int(self.settings.announce_s * SECOND)
        return min(announce, self._snapshot_ns + int(self.settings.snapshot_s * SECOND))

    def _reported(self, topic: str, node: str, body: bytes, now_ns: int) -> list[Output]:
        taken, refused = record.decode(body, now_ns)
        self.refused += len(refused)
        outputs: list[Output] = [Notice(topic, f"line {line}: {reason}") for line, reason in refused[:3]]
        own = []
        for each in taken:
            # The topic is what access rules let a node use; what the record says of itself must not go beyond.
            if each.node == node and each.realm == self.settings.realm:
                own.append(each)
            else:
                outputs += self._refuse(topic, f"a record of {each.node} in {each.realm} came from {node}")
        outputs += self._taken(own)
        if own:
            outputs += self._met_producer(node, len(own), now_ns)
        return outputs

    def _met_producer(self, node: str, records: int, now_ns: int) -> list[Output]:
        """A node that was not heard of for long may have started anew: it is told the standing orders again."""
        before = self.parties.get(("producer", node, self.settings.realm))
        total = records + (int(str(before.details["records"])) if before else 0)
        self._meet(Party("producer", node, self.settings.realm, now_ns, {"records": total}))
        outputs: list[Output] = []
        if before is None or now_ns - before.heard_ns > SILENT_NS:
            for standing in self.settings.orders:
                if any(fnmatchcase(node, pattern) for pattern in standing.nodes):
                    outputs += self._guarded(f"order to {node}", partial(self._stand, node, standing, now_ns))
        return outputs

    def _stand(self, node: str, standing: StandingOrder, now_ns: int) -> list[Output]:
        return self.order(
            node, standing.action, now_ns, links=standing.links, metrics=standing.metrics,
            interval_ms=standing.interval_ms, change=standing.change,
        )[1]  # fmt: skip

    def _taken(self, records: Sequence[Record]) -> list[Output]:
        if not records:
            return []
        self.received += len(records)
        events: list[AlertEvent] = []
        for each in sorted(records, key=lambda each: each.stamp_ns):
            place = (each.link, each.node)
            before = self.newest.get(place)
            if before is None and len(self.newest) >= LINKS:
                self.refused += 1
            elif before is None or each.stamp_ns > before.stamp_ns:
                self.newest[place] = each
                events += self.alerts.record(each)
        return [Keep(records), *self._raised(events)]

    def _raised(self, events: Iterable[AlertEvent]) -> list[Output]:
        outputs: list[Output] = []
        for event in events:
            outputs += [KeepEvent(event), Publish(messages.alert_topic(self.settings.realm), messages.encode(event))]
        return outputs

    def _answered(self, reply: ControlReply, node: str) -> list[Output]:
        request, _ = self._orders.get(reply.id, (None, 0))
        if request is None:
            return []  # of another aggregator, or too late
        if reply.node != node or request.node != node:
            raise RecordError(f"{node} answers for {reply.node} an order to {request.node}")
        del self._orders[reply.id]
        return [Answered(request, reply)]

    def _heard(self, announce: Announce, realm: str, now_ns: int) -> list[Output]:
        if announce.realm != realm:
            raise RecordError(f"{announce.name} says that it is of {announce.realm}, on the topic of {realm}")
        details = {
            "url": announce.url, "load": announce.load, "nodes": announce.nodes, "wants": announce.wants,
            "every_s": announce.every_s,
        }  # fmt: skip
        self._meet(Party(announce.kind, announce.name, realm, now_ns, details))
        return []

    def _shown(self, snapshot: RealmSnapshot, realm: str, now_ns: int) -> list[Output]:
        if snapshot.realm != realm:
            raise RecordError(f"a snapshot of {snapshot.realm} on the topic of {realm}")
        good, outputs = [], []
        for each in snapshot.records:
            reason = problem(each, now_ns)
            if each.realm != realm:
                reason = f"{realm} speaks for a link of {each.realm}"
            if reason:
                outputs += self._refuse(realm, reason)
            else:
                good.append(each)
        return [*outputs, *self._taken(good)]

    def _announce(self, now_ns: int) -> Publish:
        if self._announced_ns:
            took_s = (now_ns - self._announced_ns) / SECOND
            self._load = (self.received - self._received_then) / took_s
        self._announced_ns, self._received_then = now_ns, self.received
        announce = Announce(
            name=self.settings.name, realm=self.settings.realm, url=self.settings.url, load=self._load,
            nodes=self.settings.nodes, wants=self.settings.follows, every_s=self.settings.announce_s,
            stored=self.stored,
        )  # fmt: skip
        return Publish(messages.announce_topic(self.settings.realm), messages.encode(announce))

    def _snapshot(self, now_ns: int) -> list[Output]:
        """Only records of the own realm: what another one has shown is not passed on."""
        self._snapshot_ns = now_ns
        outputs = self._forget(now_ns)
        full = self._snapshots % FULL_EVERY == 0
        self._snapshots += 1
        own = {place: each for place, each in self.newest.items() if each.realm == self.settings.realm}
        told = {} if full else self._told
        changed = [each for place, each in own.items() if told.get(place) != each.stamp_ns]
        self._told = {place: each.stamp_ns for place, each in own.items()}
        for view in self.access.exchanged():
            seen = [shown for each in changed if (shown := view.visible_part(each)) is not None]
            parts = [seen[start : start + PART] for start in range(0, len(seen), PART)]
            for number, part in enumerate(parts):
                snapshot = RealmSnapshot(
                    realm=self.settings.realm, aggregator=self.settings.name, group=view.group, generated_ns=now_ns,
                    access=view.user_groups, part=number, parts=len(parts), records=tuple(part),
                )  # fmt: skip
                topic = messages.snapshot_topic(self.settings.realm, view.group)
                outputs.append(Publish(topic, messages.encode(snapshot)))
        return outputs

    def _forget(self, now_ns: int) -> list[Output]:
        events: list[AlertEvent] = []
        for place, each in list(self.newest.items()):
            if now_ns - each.stamp_ns > FORGET_NS:
                del self.newest[place]
                events += self.alerts.forget(each, now_ns)
        return self._raised(events)

    def _meet(self, party: Party) -> None:
        place = (party.kind, party.name, party.realm)
        if place in self.parties or len(self.parties) < PARTIES:
            self.parties[place] = party

    def _guarded(self, topic: str, action: Callable[[], list[Output]]) -> list[Output]:
        try:
            return action()
        except RecordError as error:
            return self._refuse(topic, str(error))

    def _refuse(self, topic: str, reason: str) -> list[Output]:
        self.refused += 1
        return [Notice(topic, reason)]
