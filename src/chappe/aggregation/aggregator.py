"""An aggregator without I/O: reports in, records to keep, orders, alerts, announcements and snapshots out (MR-081)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal

import msgspec

from chappe.aggregation.access import Access
from chappe.aggregation.alerts import Alerts
from chappe.machine import NEVER, Address, Append, Appended, Delivered, Effect, Log, Publish
from chappe.measure import messages, record
from chappe.measure.messages import (
    Advice,
    AlertEvent,
    Announce,
    Change,
    ControlReply,
    ControlRequest,
    Metric,
    RealmSnapshot,
    Texts,
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


class ForeignRecords(msgspec.Struct, frozen=True):
    """What another system measured."""

    records: Sequence[Record]


AggregatorInput = Delivered | ForeignRecords | Appended


class StandingOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[order]]` table: what every node gets to hear when it first reports; the keys of ControlRequest."""

    action: Literal["start", "stop", "set_interval", "report_only"]
    nodes: tuple[str, ...] = ("*",)
    links: Texts = ()
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
    """A machine beside a client that subscribes to its `topics`. What is refused changes nothing else.

    It waits by monotonic time, so that a jump of the clock silences nothing; what it says and judges of records is in
    UTC, which `utc_ns` makes of a monotonic time.
    """

    def __init__(self, settings: Settings, access: Access, alerts: Alerts, utc_ns: Callable[[int], int]) -> None:
        self.settings = settings
        self.access = access
        self.alerts = alerts
        self.newest: dict[tuple[str, str], Record] = {}
        self.parties: dict[tuple[str, str, str], Party] = {}
        self.stored = 0
        self.received = 0
        self.refused = 0
        self._utc_ns = utc_ns
        self._orders: dict[str, tuple[ControlRequest, int]] = {}  # with the time until which an answer counts
        self._ordered = 0
        self._announce_ns = 0  # when it is due
        self._announced_ns = NEVER
        self._received_then = 0
        self._load = 0.0
        self._snapshot_ns = 0  # when it is due
        self._snapshots = 0
        self._shared: dict[tuple[str, str], int] = {}  # stamp of each record in the last snapshot

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

    def restore(self, events: Iterable[AlertEvent], records: Iterable[Record]) -> None:
        """Go on from alerts that were raised and from the newest records, before anything is received."""
        self.alerts.restore(events)
        self.newest.update({(each.link, each.node): each for each in records})

    def receive(self, source: Address, message: AggregatorInput, now_ns: int) -> list[Effect]:
        """What follows from an event, from records of another system, or from what the store has committed."""
        match message:
            case Delivered(topic, body):
                return self._delivered(topic, body, now_ns)
            case ForeignRecords(records):
                return self._foreign(records, self._utc_ns(now_ns))
            case Appended(number):
                self.stored += number
        return []

    def _delivered(self, topic: str, body: bytes, now_ns: int) -> list[Effect]:
        utc_ns = self._utc_ns(now_ns)
        match topic.split("/"):
            case ["PBR", "Report", realm, node, *rest] if realm == self.settings.realm and len(rest) <= 1:
                return self._reported(topic, node, body, now_ns)
            case ["PBR", "Control", realm, node, "Reply"] if realm == self.settings.realm:
                return self._guarded(topic, lambda: self._answered(messages.decode(body, ControlReply), node))
            case ["PBR", "Aggregator", "Announce", realm]:
                return self._guarded(topic, lambda: self._heard(messages.decode(body, Announce), realm, utc_ns))
            case ["PBR", "Snapshot", realm, group] if (realm, group) in self.settings.follows:
                return self._guarded(topic, lambda: self._shown(messages.decode(body, RealmSnapshot), realm, utc_ns))
        return self._refuse(topic, "nothing of this topic is read here")

    def _foreign(self, records: Iterable[Record], utc_ns: int) -> list[Effect]:
        """Take what another system measured; links that are configured for it get advice for their cost (MR-079)."""
        good: list[Record] = []
        effects: list[Effect] = []
        for each in records:
            reason = problem(each, utc_ns) or ("" if each.foreign else "origin: is not foreign")
            if reason:
                effects += self._refuse(each.origin, reason)
            else:
                good.append(each)
        effects += self._taken(good)
        for each in good:
            node, weight = self.settings.advises.get(each.link, ("", 0.0))
            if node:
                advice = Advice(
                    link=each.link, source=each.origin, stamp_ns=each.stamp_ns, weight=weight,
                    latency_ms=each.latency_ms, jitter=each.jitter, loss=each.loss, bandwidth=each.bandwidth,
                )  # fmt: skip
                topic = messages.advice_topic(self.settings.realm, node)
                effects.append(Publish(topic, messages.encode(advice)))
        return effects

    def _order(self, node: str, standing: StandingOrder, now_ns: int) -> list[Effect]:
        if len(self._orders) >= ORDERS:
            raise RecordError(f"{ORDERS} orders have no answer yet; wait for some")
        self._ordered += 1
        request = ControlRequest(
            id=f"{self.settings.name}-{self._utc_ns(now_ns)}-{self._ordered}", aggregator=self.settings.name, node=node,
            action=standing.action, links=standing.links, metrics=standing.metrics, interval_ms=standing.interval_ms,
            change=standing.change,
        )  # fmt: skip
        self._orders[request.id] = (request, now_ns + int(REPLY_S * SECOND))
        return [Publish(messages.control_topic(self.settings.realm, node), messages.encode(request))]

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due: an announcement, snapshots, alerts about silence, orders without an answer."""
        effects: list[Effect] = []
        utc_ns = self._utc_ns(now_ns)
        if now_ns >= self._announce_ns:
            effects.append(self._announce(now_ns))
            effects += self._raised(self.alerts.tick(self.newest.values(), utc_ns))
        if now_ns >= self._snapshot_ns:
            self._snapshot_ns = now_ns + int(self.settings.snapshot_s * SECOND)
            effects += self._snapshot(utc_ns)
        while self._orders and self._order_ns() <= now_ns:
            request, _ = self._orders.pop(next(iter(self._orders)))
            fields = {"node": request.node, "action": request.action}
            effects.append(Log("a monitor did not answer", "warning", fields))
        return effects

    def next_tick(self) -> int:
        """When to tick next."""
        return min(self._announce_ns, self._snapshot_ns, self._order_ns())

    def _order_ns(self) -> int:
        """Until when the oldest order without an answer waits for one."""
        return next((until_ns for _, until_ns in self._orders.values()), NEVER)

    def _reported(self, topic: str, node: str, body: bytes, now_ns: int) -> list[Effect]:
        taken, refused = record.decode(body, self._utc_ns(now_ns))
        self.refused += len(refused)
        effects: list[Effect] = [_refused(topic, f"line {line}: {reason}") for line, reason in refused[:3]]
        own = []
        for each in taken:
            # The topic is what access rules let a node use; what the record says of itself must not go beyond.
            if each.node == node and each.realm == self.settings.realm:
                own.append(each)
            else:
                effects += self._refuse(topic, f"a record of {each.node} in {each.realm} came from {node}")
        effects += self._taken(own)
        if own:
            effects += self._met_producer(node, len(own), now_ns)
        return effects

    def _met_producer(self, node: str, records: int, now_ns: int) -> list[Effect]:
        """A node that was not heard of for long may have started anew: it gets the standing orders again."""
        utc_ns = self._utc_ns(now_ns)
        before = self.parties.get(("producer", node, self.settings.realm))
        total = records + (int(str(before.details["records"])) if before else 0)
        self._meet(Party("producer", node, self.settings.realm, utc_ns, {"records": total}))
        effects: list[Effect] = []
        if before is None or utc_ns - before.heard_ns > SILENT_NS:
            for standing in self.settings.orders:
                if any(fnmatchcase(node, pattern) for pattern in standing.nodes):
                    effects += self._guarded(f"order to {node}", partial(self._order, node, standing, now_ns))
        return effects

    def _taken(self, records: Sequence[Record]) -> list[Effect]:
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
        return [Append(records), *self._raised(events)]

    def _raised(self, events: Iterable[AlertEvent]) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            effects += [Append((event,)), Publish(messages.alert_topic(self.settings.realm), messages.encode(event))]
        return effects

    def _answered(self, reply: ControlReply, node: str) -> list[Effect]:
        request, _ = self._orders.get(reply.id, (None, 0))
        if request is None:
            return []  # of another aggregator, or too late
        if reply.node != node or request.node != node:
            raise RecordError(f"{node} answers for {reply.node} an order to {request.node}")
        del self._orders[reply.id]
        fields = {"node": node, "action": request.action}
        if reply.refused:
            return [Log("a monitor refused", "warning", {**fields, "reasons": reply.refused[:3]})]
        return [Log("a monitor has done what it was ordered", "info", {**fields, "links": len(reply.applied)})]

    def _heard(self, announce: Announce, realm: str, utc_ns: int) -> list[Effect]:
        if announce.realm != realm:
            raise RecordError(f"{announce.name} says that it is of {announce.realm}, on the topic of {realm}")
        details = {
            "url": announce.url, "load": announce.load, "nodes": announce.nodes, "wants": announce.wants,
            "every_s": announce.every_s,
        }  # fmt: skip
        self._meet(Party(announce.kind, announce.name, realm, utc_ns, details))
        return []

    def _shown(self, snapshot: RealmSnapshot, realm: str, utc_ns: int) -> list[Effect]:
        if snapshot.realm != realm:
            raise RecordError(f"a snapshot of {snapshot.realm} on the topic of {realm}")
        good: list[Record] = []
        effects: list[Effect] = []
        for each in snapshot.records:
            reason = problem(each, utc_ns)
            if each.realm != realm:
                reason = f"{realm} speaks for a link of {each.realm}"
            if reason:
                effects += self._refuse(realm, reason)
            else:
                good.append(each)
        return [*effects, *self._taken(good)]

    def _announce(self, now_ns: int) -> Publish:
        if self._announced_ns < now_ns:
            took_s = (now_ns - self._announced_ns) / SECOND
            self._load = (self.received - self._received_then) / took_s
        self._announced_ns, self._received_then = now_ns, self.received
        self._announce_ns = now_ns + int(self.settings.announce_s * SECOND)
        announce = Announce(
            name=self.settings.name, realm=self.settings.realm, url=self.settings.url, load=self._load,
            nodes=self.settings.nodes, wants=self.settings.follows, every_s=self.settings.announce_s,
            stored=self.stored,
        )  # fmt: skip
        return Publish(messages.announce_topic(self.settings.realm), messages.encode(announce))

    def _snapshot(self, utc_ns: int) -> list[Effect]:
        """Only records of the own realm: what another one has shown is not passed on."""
        effects = self._forget(utc_ns)
        full = self._snapshots % FULL_EVERY == 0
        self._snapshots += 1
        own = {place: each for place, each in self.newest.items() if each.realm == self.settings.realm}
        before = {} if full else self._shared
        changed = [each for place, each in own.items() if before.get(place) != each.stamp_ns]
        self._shared = {place: each.stamp_ns for place, each in own.items()}
        for view in self.access.exchanged():
            seen = [shown for each in changed if (shown := view.visible_part(each)) is not None]
            parts = [seen[start : start + PART] for start in range(0, len(seen), PART)]
            for number, part in enumerate(parts):
                snapshot = RealmSnapshot(
                    realm=self.settings.realm, aggregator=self.settings.name, group=view.group, generated_ns=utc_ns,
                    access=view.user_groups, part=number, parts=len(parts), records=tuple(part),
                )  # fmt: skip
                topic = messages.snapshot_topic(self.settings.realm, view.group)
                effects.append(Publish(topic, messages.encode(snapshot)))
        return effects

    def _forget(self, utc_ns: int) -> list[Effect]:
        events: list[AlertEvent] = []
        for place, each in list(self.newest.items()):
            if utc_ns - each.stamp_ns > FORGET_NS:
                del self.newest[place]
                events += self.alerts.forget(each, utc_ns)
        return self._raised(events)

    def _meet(self, party: Party) -> None:
        place = (party.kind, party.name, party.realm)
        if place in self.parties or len(self.parties) < PARTIES:
            self.parties[place] = party

    def _guarded(self, topic: str, action: Callable[[], list[Effect]]) -> list[Effect]:
        try:
            return action()
        except RecordError as error:
            return self._refuse(topic, str(error))

    def _refuse(self, topic: str, reason: str) -> list[Effect]:
        self.refused += 1
        return [_refused(topic, reason)]


def _refused(topic: str, reason: str) -> Log:
    return Log("refused", "warning", {"topic": topic, "reason": reason})
