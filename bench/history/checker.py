"""Histories against what is promised: a pure function over what clients recorded and what was done to the processes.

The rules, which [benchmark](../../../docs/how-to/benchmark.md) states for users:

* **durable**: an event whose publisher was told `stored` is in the archive, once. Nothing is in the archive twice, and
  nothing that nobody published.
* **flush**: an event that a flush confirmed reaches every subscriber that it is due to. It is not due
  to a subscriber that was not connected and subscribed from SPREAD_NS before it was published until HELD_NS after;
  nor while no route of live nodes joined the two nodes, from SETTLE_NS before to HELD_NS after (a fault lasts
  SETTLE_NS longer than it was inflicted: links are made again, maps have to agree);
  nor if a node was killed that may have held it: any node, within HELD_NS after it was published.
* **twice**: no subscriber gets an event twice.
* **order**: events of one publisher and class reach a subscriber in their order, except that one which was sent by
  another route because a link was lost may come after younger ones: between its publication and its receipt a
  fault must have been under way, which counts as excused and is reported.
* **modes**: a mode change that was answered holds until another one is asked for; once quiet, every node is in the mode
  that its broker says.
* **granted**: once quiet, a subscription that its subscriber holds granted gets values at the granted interval, and
  the tables of routers are what the broker says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.history.records import (
    FAILED,
    OK,
    UNKNOWN,
    Connected,
    Durable,
    Event,
    ModeChange,
    ModeRead,
    Published,
    Received,
    Watched,
)

SECOND = 1_000_000_000
SPREAD_NS = 3 * SECOND  # from a confirmed subscription until every node knows of it
SETTLE_NS = 8 * SECOND  # from the end of a fault until links and maps are as before
HELD_NS = 5 * SECOND  # a connected mesh delivers within that; what a killed node held is younger
UNDECIDED_NS = 30 * SECOND  # a mode change without an answer takes effect within that, or not at all
SHARE = 0.5  # of the values that a granted interval allows, on a machine that is busy with other things
EXAMPLES = 5

Pair = tuple[str, str]


class Fault(NamedTuple):
    """Something that was done: `kind` is cut, pause, kill, clock or disk; `subjects` are the nodes or the link."""

    kind: str
    subjects: tuple[str, ...]
    from_ns: int
    until_ns: int

    def __str__(self) -> str:
        return f"{self.kind} {'-'.join(self.subjects)}"


class Violation(NamedTuple):
    """A promise that was not kept, with the shortest account of it."""

    rule: str
    text: str
    at_ns: int


@dataclass
class Publisher:
    """What one publisher did."""

    connected: list[Connected]
    published: list[Published] = field(default_factory=list)
    durable: list[Durable] = field(default_factory=list)


@dataclass
class Subscriber:
    """What one subscriber got; it wants all events."""

    connected: list[Connected]
    received: list[Received] = field(default_factory=list)


@dataclass
class History:
    """One run, complete."""

    began_ns: int
    ended_ns: int
    links: Sequence[Pair]  # of the mesh
    faults: Sequence[Fault] = ()
    publishers: Mapping[str, Publisher] = field(default_factory=dict)
    subscribers: Mapping[str, Subscriber] = field(default_factory=dict)
    archived: Sequence[Event] = ()
    mode_changes: Sequence[ModeChange] = ()
    mode_reads: Sequence[ModeRead] = ()
    modes: Mapping[str, int] = field(default_factory=dict)  # once quiet: of each node, and of "broker"
    watched: Sequence[Watched] = ()
    tables: Sequence[str] = ()  # differences between what the broker says and routers have, once quiet


@dataclass
class Verdict:
    """What the checker found."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def of(self, *rules: str) -> list[Violation]:
        return [each for each in self.violations if each.rule in rules]


def check(history: History) -> Verdict:
    """Every promise against one run."""
    verdict = Verdict()
    _durable(history, verdict)
    _flushed(history, verdict)
    _twice(history, verdict)
    _order(history, verdict)
    _modes(history, verdict)
    _granted(history, verdict)
    return verdict


# durable events


def _durable(history: History, verdict: Verdict) -> None:
    copies = Counter(history.archived)
    known = {each.event for who in history.publishers.values() for each in who.published}
    for who in history.publishers.values():
        for each in who.durable:
            known.add(each.event)
            verdict.counts["durable events published"] += 1
            if each.outcome != OK:
                verdict.counts["durable events without a confirmation"] += 1
                continue
            verdict.counts["durable events confirmed"] += 1
            if not copies[each.event]:
                text = f"{each.event}: published {_s(history, each.at_ns)}, confirmed {_s(history, each.answered_ns)}"
                verdict.violations.append(Violation("durable lost", f"{text}, not in the archive", each.answered_ns))
    for event, count in copies.items():
        if count > 1:
            verdict.violations.append(Violation("archived twice", f"{event} is in the archive {count} times", 0))
        if event not in known:
            verdict.violations.append(Violation("stranger", f"{event} is in the archive and nobody published it", 0))


# events that a flush confirmed


class Reachability:
    """Between which nodes there was a route of live nodes, at any time: faults last longer than they were inflicted."""

    def __init__(self, links: Sequence[Pair], faults: Iterable[Fault]) -> None:
        self._links = links
        self._faults = [
            fault._replace(until_ns=fault.until_ns + SETTLE_NS) for fault in faults if fault.kind in _SEPARATES
        ]
        self._edges = sorted({at for fault in self._faults for at in (fault.from_ns, fault.until_ns)})
        self._groups: dict[int, dict[str, int]] = {}  # number of a span between edges -> group of each live node

    def joined(self, one: str, other: str, from_ns: int, until_ns: int) -> bool:
        """At every moment of that time."""
        first, last = bisect_right(self._edges, from_ns), bisect_left(self._edges, until_ns)
        for span in range(first, max(first, last) + 1):
            groups = self._group(span)
            if one not in groups or groups.get(other) != groups[one]:
                return False
        return True

    def _group(self, span: int) -> dict[str, int]:
        if span not in self._groups:
            at_ns = self._edges[span - 1] if span else -1
            under_way = [fault for fault in self._faults if fault.from_ns <= at_ns < fault.until_ns]
            away = {name for fault in under_way if fault.kind != "cut" for name in fault.subjects}
            cut = {frozenset(fault.subjects) for fault in under_way if fault.kind == "cut"}
            self._groups[span] = _components(
                {name for link in self._links for name in link} - away,
                [link for link in self._links if frozenset(link) not in cut and not away & set(link)],
            )
        return self._groups[span]


_SEPARATES = ("cut", "pause", "kill")


def _components(names: Iterable[str], links: Sequence[Pair]) -> dict[str, int]:
    groups = {name: number for number, name in enumerate(sorted(names))}
    changed = True
    while changed:
        changed = False
        for one, other in links:
            if groups[one] != groups[other]:
                groups[one] = groups[other] = min(groups[one], groups[other])
                changed = True
    return groups


def _flushed(history: History, verdict: Verdict) -> None:
    reachability = Reachability(history.links, history.faults)
    kills = sorted((fault.from_ns, fault) for fault in history.faults if fault.kind == "kill")
    for name, who in history.subscribers.items():
        got = {each.event for each in who.received}
        for publisher in history.publishers.values():
            for each in publisher.published:
                if not each.confirmed_ns:
                    continue
                if each.event in got:
                    verdict.counts["confirmed by flush, delivered"] += 1
                    continue
                excuse = _excuse(each, publisher, who, reachability, kills, history.ended_ns)
                verdict.counts[excuse or "confirmed by flush, lost"] += 1
                if not excuse:
                    text = f"{each.event}: published {_s(history, each.at_ns)}, flush {_s(history, each.confirmed_ns)}"
                    verdict.violations.append(Violation("flush lost", f"{text}, never reached {name}", each.at_ns))


def _excuse(
    each: Published, publisher: Publisher, subscriber: Subscriber, reachability: Reachability,
    kills: Sequence[tuple[int, Fault]], ended_ns: int,
) -> str:  # fmt: skip
    """Why the subscriber need not have got it; empty if it had to."""
    source = _home(publisher.connected, each.at_ns, each.confirmed_ns)
    target = _home(subscriber.connected, each.at_ns - SPREAD_NS, each.confirmed_ns + HELD_NS)
    if not target or each.confirmed_ns + HELD_NS > ended_ns:
        return "confirmed by flush, not due: the subscriber was not subscribed all the time"
    if not source:
        return "confirmed by flush, not due: the publisher changed its node before it was confirmed"
    for at_ns, _ in kills[bisect_left(kills, each.at_ns, key=lambda kill: kill[0]) :]:
        if at_ns <= each.confirmed_ns + HELD_NS:
            return "confirmed by flush, not due: a node that may have held it was killed"
        break
    if not reachability.joined(source, target, each.at_ns, each.confirmed_ns + HELD_NS):
        return "confirmed by flush, not due: no route between the two nodes"
    return ""


def _home(connected: Sequence[Connected], from_ns: int, until_ns: int) -> str:
    """The node at which the client was all that time; empty if there is none."""
    for each in connected:
        if each.from_ns <= from_ns and until_ns <= each.until_ns:
            return each.node
    return ""


# repeats and order


def _twice(history: History, verdict: Verdict) -> None:
    for name, who in history.subscribers.items():
        first: dict[Event, int] = {}
        for each in who.received:
            if each.event in first:
                text = f"{name} got {each.event} {_s(history, first[each.event])} and {_s(history, each.at_ns)}"
                verdict.violations.append(Violation("twice", text, each.at_ns))
            else:
                first[each.event] = each.at_ns
        verdict.counts["events received"] += len(who.received)


def _order(history: History, verdict: Verdict) -> None:
    published: dict[Event, int] = {}
    for publisher in history.publishers.values():
        published.update({each.event: each.at_ns for each in publisher.published})
        published.update({each.event: each.at_ns for each in publisher.durable})
    faults = [(fault.from_ns, fault.until_ns + SETTLE_NS) for fault in history.faults if fault.kind in _SEPARATES]
    for name, who in history.subscribers.items():
        latest: dict[tuple[str, int], Received] = {}
        for each in who.received:
            stream = (each.event.publisher, each.event.priority)
            before = latest.get(stream)
            if before is None or each.event.number > before.event.number:
                latest[stream] = each
                continue
            if each.event.number == before.event.number:
                continue  # a repeat, see above
            at_ns = published.get(each.event, history.began_ns)
            if any(from_ns <= each.at_ns and at_ns <= until_ns for from_ns, until_ns in faults):
                verdict.counts["out of order, sent by another route after a link was lost"] += 1
            else:
                text = f"{name} got {each.event} {_s(history, each.at_ns)} after {before.event}"
                verdict.violations.append(Violation("order", f"{text}, and no link was lost", each.at_ns))


# modes and granted subscriptions


def _modes(history: History, verdict: Verdict) -> None:
    verdict.counts["mode changes answered"] = sum(each.outcome == OK for each in history.mode_changes)
    verdict.counts["mode changes refused"] = sum(each.outcome == FAILED for each in history.mode_changes)
    verdict.counts["mode changes without an answer"] = sum(each.outcome == UNKNOWN for each in history.mode_changes)
    for read in history.mode_reads:
        possible = possible_modes(history.mode_changes, read.began_ns, read.ended_ns)
        if read.mode not in possible:
            text = f"mode {read.mode} was read {_s(history, read.began_ns)}; it can only be {sorted(possible)}"
            verdict.violations.append(Violation("mode", text, read.began_ns))
    leader = history.modes.get("broker")
    for name, mode in history.modes.items():
        if mode != leader:
            text = f"{name} is in mode {mode}, its broker in {leader}"
            verdict.violations.append(Violation("mode", text, history.ended_ns))
    if leader is not None:
        possible = possible_modes(history.mode_changes, history.ended_ns, history.ended_ns)
        if leader not in possible:
            text = f"the mode is {leader} once quiet; it can only be {sorted(possible)}"
            verdict.violations.append(Violation("mode", text, history.ended_ns))


def possible_modes(changes: Sequence[ModeChange], from_ns: int, until_ns: int, initial: int = 0) -> set[int]:
    """What somebody may see who looks in that time, after changes by one operator one after the other."""
    possible = {initial}
    for change in changes:
        if change.began_ns >= until_ns:
            break
        if change.outcome == OK and change.ended_ns <= from_ns:
            open_still = {
                each.mode for each in changes
                if each.outcome != OK and each.began_ns < change.began_ns
                and change.began_ns < each.ended_ns + UNDECIDED_NS
            }  # fmt: skip
            possible = {change.mode} | open_still
        else:
            possible.add(change.mode)
    return possible


def _granted(history: History, verdict: Verdict) -> None:
    for each in history.watched:
        verdict.counts["granted subscriptions, once quiet"] += 1
        due = each.span_ns / each.interval_ns
        if each.received < SHARE * due:
            text = f"{each.watcher} holds {each.variable} granted every {each.interval_ns / 1e6:g} ms"
            text += f" and got {each.received} of {due:.0f} values once quiet"
            verdict.violations.append(Violation("granted", text, history.ended_ns))
    for text in history.tables:
        verdict.violations.append(Violation("granted", text, history.ended_ns))


def differences(broker: Iterable[Mapping[str, Any]], routers: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[str]:
    """Rows of paths: what the broker says that each router has, against what it has."""
    said = list(broker)
    found = []
    for name, rows in routers.items():
        should = Counter((row["publisher"], row["variable"]) for row in said if name in row["routers"])
        has = Counter((row["publisher"], row["variable"]) for row in rows)
        found += [f"{name} lacks a path of {'/'.join(key)}" for key in (should - has).elements()]
        found += [
            f"{name} has a path of {'/'.join(key)} that its broker does not know" for key in (has - should).elements()
        ]
    return found


def _s(history: History, at_ns: int) -> str:
    return f"at {(at_ns - history.began_ns) / 1e9:.3f} s"
