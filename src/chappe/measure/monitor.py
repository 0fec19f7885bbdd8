"""The monitor's side of aggregation in each node: what is reported to whom, and what an aggregator may order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from chappe.machine import Publish
from chappe.measure import messages, record
from chappe.measure.messages import Advice, Announce, Change, ControlReply, ControlRequest
from chappe.measure.record import METRICS, Record, RecordError

BATCH = 500  # records a report
MISSED = 3  # announcements until an aggregator counts as gone
SLACK = 0.25  # of the least load: aggregators that are about as loaded are spread over the nodes
SLACK_PER_S = 10.0
KEPT_NS = 3_600_000_000_000  # of a link that was lost: so long its orders wait for it to come back
INTERVALS_MS = (1.0, 86_400_000.0)


class Switch(NamedTuple):
    """Measure a link, or one metric of it, or do not."""

    link: str
    metric: str  # empty: all
    on: bool


class Interval(NamedTuple):
    """Measure a link at this interval."""

    link: str
    interval_ns: int


class Now(NamedTuple):
    """Measure a link at once."""

    link: str


class Advised(NamedTuple):
    """Somebody else's measurement of an own link; `advice.weight` says how much it counts in the cost (MR-079)."""

    advice: Advice


Output = Publish | Switch | Interval | Now | Advised


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a node reports (MR-083: each node may or may not).

    aggregator: the one to use while none is announced. silence_s: a link without change is reported that often anyway.
    advice: largest weight in a cost of what others measured; 0: it is not taken, whoever sends it.
    """

    enabled: bool = True
    realm: str = "default"
    user_group: str = ""
    aggregator: str = ""
    silence_s: float = 60.0
    advice: float = 0.0


@dataclass(slots=True)
class _Link:
    record: Record
    metrics: frozenset[str] = frozenset(METRICS)
    change: Change | None = None
    reported: Record | None = None
    reported_ns: int = 0
    lost_ns: int | None = None  # since when it is lost


@dataclass(slots=True)
class _Known:
    announce: Announce
    heard_ns: int
    expires_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.expires_ns = self.heard_ns + int(MISSED * self.announce.every_s * 1e9)


class Monitor:
    """Gets what was measured and what was received; says what to publish and how to measure. Times are monotonic ns.

    The node subscribes to `topics`, gives every event of them to `received` and every reading to `reading`.
    """

    def __init__(self, node: str, settings: Settings) -> None:
        self.node = node
        self.settings = settings
        self._links: dict[str, _Link] = {}
        self._aggregators: dict[str, _Known] = {}
        self._chosen = ""
        self.refused = 0  # orders and messages that were not taken

    @property
    def topics(self) -> tuple[str, ...]:
        """What the node subscribes to for it; nothing if this node does not report."""
        if not self.settings.enabled:
            return ()
        realm = self.settings.realm
        advice = (messages.advice_topic(realm, self.node),) if self.settings.advice else ()
        return (messages.announce_topic(realm), messages.control_topic(realm, self.node), *advice)

    def reading(self, reading: Record, now_ns: int) -> list[Publish]:
        """What to publish after one link was measured."""
        return self.readings((reading,), now_ns)

    def readings(self, readings: Iterable[Record], now_ns: int) -> list[Publish]:
        """What to publish after links were measured: one report, several if it would be too large."""
        if not self.settings.enabled:
            return []
        due = [changed for each in readings if (changed := self._due(each, now_ns)) is not None]
        if not due:
            return []
        topic = messages.report_topic(self.settings.realm, self.node, self.aggregator(now_ns))
        batches = (due[start : start + BATCH] for start in range(0, len(due), BATCH))
        return [Publish(topic, record.encode(batch), messages.JSON_LINES) for batch in batches]

    def link_lost(self, link: str, now_ns: int) -> None:
        """A link is lost: orders about it are forgotten if it does not come back within an hour."""
        if link in self._links:
            self._links[link].lost_ns = now_ns
        lost = [name for name, each in self._links.items() if each.lost_ns is not None]
        for name in lost:
            if now_ns - (self._links[name].lost_ns or 0) > KEPT_NS:
                del self._links[name]

    def received(self, topic: str, body: bytes, now_ns: int) -> list[Output]:
        """What follows from an event of one of `topics`; what is malformed or not for this node changes nothing."""
        realm = self.settings.realm
        try:
            if topic == messages.announce_topic(realm):
                self._announced(messages.decode(body, Announce), now_ns)
            elif topic == messages.control_topic(realm, self.node):
                return self._ordered(messages.decode(body, ControlRequest))
            elif topic == messages.advice_topic(realm, self.node):
                return self._advised(messages.decode(body, Advice))
        except RecordError:
            self.refused += 1
        return []

    def aggregator(self, now_ns: int) -> str:
        """To whom this node reports now: it stays with one as long as that one is heard."""
        alive = [known.announce for known in self._aggregators.values() if known.expires_ns > now_ns]
        if any(each.name == self._chosen for each in alive):
            return self._chosen
        self._chosen = _least_loaded(self.node, alive)
        return self._chosen or self.settings.aggregator

    def _due(self, reading: Record, now_ns: int) -> Record | None:
        """The record to report, with the metrics that are wanted; None if it does not differ enough."""
        own = msgspec.structs.replace(
            reading,
            node=self.node,
            realm=self.settings.realm,
            user_group=reading.user_group or self.settings.user_group,
        )
        link = self._links.setdefault(reading.link, _Link(own))
        link.record, link.lost_ns = own, None
        if not link.metrics:
            return None
        silent = now_ns - link.reported_ns >= self.settings.silence_s * 1e9
        if link.reported is not None and not silent and not _differs(link, own):
            return None
        link.reported, link.reported_ns = own, now_ns
        hidden = {name: None for name in METRICS if name not in link.metrics}
        return msgspec.structs.replace(own, **hidden) if hidden else own

    def _announced(self, announce: Announce, now_ns: int) -> None:
        if announce.realm != self.settings.realm or announce.kind != "aggregator":
            raise RecordError(f"{announce.name} is no aggregator of {self.settings.realm}")
        if len(self._aggregators) >= 1000 and announce.name not in self._aggregators:
            self._aggregators = {name: known for name, known in self._aggregators.items() if known.expires_ns > now_ns}
            if len(self._aggregators) >= 1000:
                raise RecordError("too many aggregators are announced")
        if any(fnmatchcase(self.node, pattern) for pattern in announce.nodes):
            self._aggregators[announce.name] = _Known(announce, now_ns)

    def _ordered(self, request: ControlRequest) -> list[Output]:
        if request.node != self.node:
            raise RecordError(f"an order for {request.node} came to {self.node}")
        links, refused = self._selected(request.links)
        outputs: list[Output] = []
        wrong = _wrong(request)
        if wrong:
            links, refused = [], [wrong]
        for link in links:
            outputs += self._applied(request, link)
        reply = ControlReply(
            id=request.id, node=self.node, applied=tuple(link.record.link for link in links), refused=tuple(refused)
        )
        self.refused += bool(refused)
        topic = messages.reply_topic(self.settings.realm, self.node)
        return [*outputs, Publish(topic, messages.encode(reply))]

    def _selected(self, patterns: Sequence[str]) -> tuple[list[_Link], list[str]]:
        if not patterns:
            return list(self._links.values()), []
        chosen: dict[str, _Link] = {}
        refused = []
        for pattern in patterns:
            found = [link for link in self._links.values() if _matches(pattern, link.record)]
            if not found:
                refused.append(f"{pattern}: no link of {self.node} is measured under that name")
            chosen.update((link.record.link, link) for link in found)
        return list(chosen.values()), refused

    def _applied(self, request: ControlRequest, link: _Link) -> list[Output]:
        name = link.record.link
        match request.action:
            case "report_only":
                link.metrics = frozenset(request.metrics or METRICS)
                link.change = request.change
                return []
            case "set_interval":
                assert request.interval_ms is not None
                return [Interval(name, int(request.interval_ms * 1e6))]
            case "measure":
                link.reported = None  # whoever asks wants to hear of it, changed or not
                return [Now(name)]
        return [Switch(name, metric, request.action == "start") for metric in request.metrics or ("",)]

    def _advised(self, advice: Advice) -> list[Output]:
        if advice.link not in self._links or not self.settings.advice:
            raise RecordError(f"advice about {advice.link}, which {self.node} does not take")
        return [Advised(msgspec.structs.replace(advice, weight=min(advice.weight, self.settings.advice)))]


def _wrong(request: ControlRequest) -> str:
    low, high = INTERVALS_MS
    if request.action == "set_interval" and not (request.interval_ms and low <= request.interval_ms <= high):
        return f"interval_ms: {request.interval_ms} is not between {low:g} and {high:g}"
    if request.action in ("start", "stop") and "cost" in request.metrics:
        return "metrics: cost is computed from the others; use report_only to leave it out of reports"
    if request.action == "measure" and request.metrics:
        return "metrics: a probe measures all that are on; use start and stop to choose them"
    if request.action != "report_only" and request.change is not None:
        return f"change: belongs to report_only, not to {request.action}"
    return ""


def _differs(link: _Link, new: Record) -> bool:
    change, old = link.change, link.reported
    assert old is not None
    if change is None:
        return True
    for name in link.metrics:
        before, now = getattr(old, name), getattr(new, name)
        if (before is None) is not (now is None):
            return True
        if now is None:
            continue
        bound = change.value if change.kind == "absolute" else abs(before) * change.value / 100
        if abs(now - before) > bound:
            return True
    return False


def _matches(pattern: str, of: Record) -> bool:
    return pattern == of.link or fnmatchcase(of.uri, pattern) or (bool(of.peer) and fnmatchcase(of.peer, pattern))


def _least_loaded(node: str, alive: Sequence[Announce]) -> str:
    if not alive:
        return ""
    bound = min(each.load for each in alive) * (1 + SLACK) + SLACK_PER_S
    # Every node sees the same loads: without a spread all of them would move to the same one.
    near = [each.name for each in alive if each.load <= bound]
    return min(near, key=lambda name: hashlib.sha256(f"{node}\0{name}".encode()).digest())
