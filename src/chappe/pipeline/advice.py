"""Advice to those who run a mesh, from what its brokers logged: what to condense, what to flood, which mode to be in.

Every proposal says what it rests on and what it is expected to bring; where the evidence is thin there is none. People
or their policy decide: nothing in here changes anything.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import msgspec

from chappe.pipeline.brokerlog import History, Mode, Span, Term, routes

SECOND_NS = 1_000_000_000
DAY_S = 86_400
PROPOSALS = "pipeline/proposals"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that could be done; `evidence` is what was seen, `effect` what it should bring."""

    kind: str
    subject: str
    value: Mapping[str, Any]
    evidence: Mapping[str, Any]
    effect: Mapping[str, Any]

    @property
    def topic(self) -> str:
        return f"{PROPOSALS}/{self.kind}"

    @property
    def said(self) -> str:
        """What is proposed, as JSON; the same text for the same."""
        return msgspec.json.encode(self.value, order="sorted").decode()

    @property
    def body(self) -> str:
        """All of it as JSON."""
        said = {"subject": self.subject, "value": self.value, "evidence": self.evidence, "effect": self.effect}
        return msgspec.json.encode(said, order="sorted").decode()


@dataclass(frozen=True, slots=True)
class Enough:
    """How much evidence a proposal needs."""

    lasting_s: float = 600.0  # a subscription counts when it is as old as this
    subscribers: int = 3
    inputs: int = 3
    flood_share: float = 0.8
    gain: float = 0.2  # part of the load that a condensation must save
    breaches: int = 20
    days: int = 3
    raw: tuple[str, ...] = ("archive*",)  # subscribers that want every value as it is

    def standing(self, told: History, until_ns: int) -> list[Term]:
        """What is promised now, has been for a while, and might be had in another way."""
        age = round(self.lasting_s * SECOND_NS)
        return [
            term
            for term in told.terms
            if term.to_ns == until_ns
            and term.to_ns - term.from_ns >= age
            and not any(fnmatchcase(term.entity, pattern) for pattern in self.raw)
        ]


def condensation(told: History, until_ns: int, enough: Enough) -> Iterator[Proposal]:
    """Sets of variables that several subscribers take whole at one interval, and functions that compute the same."""
    takers: dict[tuple[str, int], dict[str, Term]] = defaultdict(dict)
    for term in enough.standing(told, until_ns):
        takers[term.subject, term.interval_ns][term.entity] = term
    together: dict[tuple[frozenset[str], int], list[str]] = defaultdict(list)
    for (subject, interval), by_entity in takers.items():
        together[frozenset(by_entity), interval].append(subject)
    for (entities, interval), subjects in sorted(together.items(), key=lambda each: sorted(each[1])):
        if len(entities) >= enough.subscribers and len(subjects) >= enough.inputs and interval > 0:
            terms = [takers[subject, interval][entity] for subject in sorted(subjects) for entity in sorted(entities)]
            yield from _condensed(told, terms, interval, enough)
    yield from _same_functions(told, until_ns)


def _condensed(told: History, terms: Sequence[Term], interval_ns: int, enough: Enough) -> Iterator[Proposal]:
    subjects, entities = sorted({term.subject for term in terms}), sorted({term.entity for term in terms})
    edges = sorted({term.edge for term in terms})
    place = _place(told, terms)
    if place is None or place.after >= place.before * (1 - enough.gain):
        return
    per_s = 1e9 / interval_ns
    yield Proposal(
        "condensation",
        f"{subjects[0]} and {len(subjects) - 1} more",
        {"action": "condense", "inputs": subjects, "interval_ms": interval_ns / 1e6, "router": place.router},
        {"subscribers": entities, "edges": edges, "for_s": min(term.to_ns - term.from_ns for term in terms) / 1e9},
        {
            "values_per_s_to_subscribers": {
                "now": per_s * len(subjects) * len(entities),
                "then": per_s * len(entities),
            },
            "values_per_s_over_channels": {"now": per_s * place.before, "then": per_s * place.after},
            "if": "the subscribers compute the same of these inputs",
        },
    )


class _Place(NamedTuple):
    router: str
    before: int  # channels that the streams cross, each counted once
    after: int


def _place(told: History, terms: Sequence[Term]) -> _Place | None:
    """The router at which a function would cost least: inputs to it, one output from it to every edge."""
    wanted: dict[int, set[str]] = defaultdict(set)
    for term in terms:
        wanted[term.variable_id].add(term.edge)
    crossed: set[tuple[int, str, str]] = set()
    sources: dict[int, str] = {}
    near: dict[str, set[str]] = defaultdict(set)
    for variable, _, _, way in routes(told.hops, wanted):
        sources[variable] = way[0]
        for one, other in pairwise(way):
            crossed.add((variable, one, other))
            near[one].add(other)
            near[other].add(one)
    if set(sources) != set(wanted):
        return None  # not all paths are in the log
    edges = set().union(*wanted.values())
    best: _Place | None = None
    for router in sorted(near):
        away = _distances(near, router)
        ends = [*sources.values(), *edges]
        if all(end in away for end in ends):
            cost = sum(away[end] for end in ends)
            if best is None or cost < best.after:
                best = _Place(router, len(crossed), cost)
    return best


def _distances(near: Mapping[str, Iterable[str]], start: str) -> dict[str, int]:
    found = {start: 0}
    queue = deque([start])
    while queue:
        router = queue.popleft()
        for other in sorted(near[router]):
            if other not in found:
                found[other] = found[router] + 1
                queue.append(other)
    return found


def _same_functions(told: History, until_ns: int) -> Iterator[Proposal]:
    same: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    for function in told.functions:
        if function.to_ns == until_ns:
            same[function.calculator, frozenset(function.inputs)].append(function.subject)
    for (calculator, inputs), outputs in sorted(same.items(), key=lambda each: sorted(each[1])):
        if len(set(outputs)) > 1:
            first, *others = sorted(set(outputs))
            yield Proposal(
                "condensation",
                first,
                {"action": "share", "keep": first, "remove": others},
                {"calculator": calculator, "inputs": sorted(inputs)},
                {"functions": {"now": len(others) + 1, "then": 1}},
            )


def flooding(told: History, until_ns: int, enough: Enough) -> Iterator[Proposal]:
    """Variables that nearly all subscribers take whole, and those that are flooded though few do."""
    standing = enough.standing(told, until_ns)
    everybody = {term.entity for term in standing}
    if len(everybody) < enough.subscribers:
        return
    whole: dict[str, set[str]] = defaultdict(set)
    for term in standing:
        if term.every == 1:
            whole[term.subject].add(term.entity)
    flooded = {flood.subject for flood in told.floods if flood.to_ns == until_ns}
    paths: dict[int, set[int]] = defaultdict(set)
    for hop in told.hops:
        if hop.to_ns == until_ns:
            paths[hop.variable_id].add(hop.path)
    number = {term.subject: term.variable_id for term in standing}
    for subject in sorted(whole.keys() | flooded):
        share = len(whole[subject]) / len(everybody)
        evidence = {"takes_all": len(whole[subject]), "subscribers": len(everybody), "share": round(share, 3)}
        if share >= enough.flood_share and subject not in flooded:
            effect = {"paths": {"now": len(paths[number[subject]]), "then": 0}}
            yield Proposal("flooding", subject, {"action": "flood", "level": 1}, evidence, effect)
        elif subject in flooded and share < 1 - enough.flood_share:
            effect = {"subscribers_that_get_it_unasked": {"now": len(everybody) - len(whole[subject]), "then": 0}}
            yield Proposal("flooding", subject, {"action": "clear"}, evidence, effect)


class Breaches(NamedTuple):
    """Promises that were not kept, as clients reported them: when, and how many."""

    at_ns: Sequence[int]
    counts: Sequence[int]

    def within(self, from_ns: int, to_ns: int) -> int:
        return sum(count for at, count in zip(self.at_ns, self.counts, strict=True) if from_ns <= at < to_ns)


class Change(NamedTuple):
    """One change of mode, and what it cost."""

    at_ns: int
    before: int
    mode: int
    took_ns: int
    by: str
    note: str
    breaches: int  # while it went on and shortly after
    usual: float  # breaches in as long a time before


SETTLED_NS = 5 * SECOND_NS


def changes(modes: Sequence[Mode], breaches: Breaches) -> Iterator[Change]:
    """Past changes of mode: how long each took, and what was not kept meanwhile."""
    for before, mode in pairwise(modes):
        begun = mode.from_ns - mode.took_ns
        end = mode.from_ns + SETTLED_NS
        usual = breaches.within(begun - 10 * (end - begun), begun) / 10
        yield Change(
            mode.from_ns, before.mode, mode.mode, mode.took_ns, mode.by, mode.note, breaches.within(begun, end), usual
        )  # fmt: skip


def modes(told: History, until_ns: int, breaches: Breaches, enough: Enough) -> Iterator[Proposal]:
    """A mode that is entered at the same time of day again and again, and one in which less is broken than now."""
    yield from _seasons(told.modes, enough)
    yield from _contingency(told.modes, until_ns, breaches, enough)


def _seasons(past: Sequence[Mode], enough: Enough) -> Iterator[Proposal]:
    """Times of day at which people change to a mode, on most days of those that were seen."""
    entered: dict[int, list[int]] = defaultdict(list)
    for each in past[1:]:
        entered[each.mode].append(each.from_ns // SECOND_NS)
    if len(past) < 2:
        return
    days = (past[-1].to_ns - past[1].from_ns) / SECOND_NS / DAY_S
    for mode, times in sorted(entered.items()):
        middle = _middle_of_day([time % DAY_S for time in times])
        near = [time for time in times if _apart(time % DAY_S, middle) <= 1800]
        on = {(time - round(middle) + DAY_S // 2) // DAY_S for time in near}
        if len(on) >= enough.days and len(on) >= 0.8 * max(days, 1):
            at = (
                round(median((time % DAY_S - middle + DAY_S / 2) % DAY_S for time in near) + middle - DAY_S / 2) % DAY_S
            )
            yield Proposal(
                "mode",
                f"mode {mode}",
                {"action": "schedule", "mode": mode, "at_utc": f"{at // 3600:02d}:{at % 3600 // 60:02d}"},
                {"days": len(on), "of": math.ceil(days), "changes": len(times)},
                {"changes_by_hand": {"now": len(on), "then": 0}},
            )


def _middle_of_day(seconds: Sequence[float]) -> float:
    """The mean of times of day, for which midnight is no border."""
    turns = [second / DAY_S * 2 * math.pi for second in seconds]
    return math.atan2(sum(map(math.sin, turns)), sum(map(math.cos, turns))) / (2 * math.pi) * DAY_S % DAY_S


def _apart(one: float, other: float) -> float:
    away = abs(one - other) % DAY_S
    return min(away, DAY_S - away)


def _contingency(past: Sequence[Mode], until_ns: int, breaches: Breaches, enough: Enough) -> Iterator[Proposal]:
    """Far more is broken now than this mode is used to, and another mode is known to do better."""
    if not past or past[-1].to_ns != until_ns:
        return
    now = past[-1]
    recent_ns = round(enough.lasting_s * SECOND_NS)
    since = max(now.from_ns, until_ns - recent_ns)
    broken = breaches.within(since, until_ns)
    usual = _rate(breaches, [Span(each.from_ns, min(each.to_ns, since)) for each in past if each.mode == now.mode])
    present = broken / max((until_ns - since) / SECOND_NS, 1.0)
    if broken < enough.breaches or usual is None or present < 5 * usual:
        return
    others = {}
    for mode in {each.mode for each in past} - {now.mode}:
        stays = [each for each in past if each.mode == mode]
        rate = _rate(breaches, stays)
        if rate is not None and sum(each.to_ns - each.from_ns for each in stays) >= recent_ns:
            others[mode] = rate
    if others:
        best = min(others, key=lambda mode: (others[mode], mode))
        if others[best] < present / 2:
            yield Proposal(
                "mode",
                f"mode {best}",
                {"action": "change", "mode": best},
                {"mode": now.mode, "breaches": broken, "per_s": present, "usual_per_s": usual},
                {"breaches_per_s": {"now": present, "then": others[best]}},
            )


def _rate(breaches: Breaches, spans: Sequence[Span]) -> float | None:
    seconds = sum(max(span.to_ns - span.from_ns, 0) for span in spans) / SECOND_NS
    if seconds < 1:
        return None
    return sum(breaches.within(span.from_ns, span.to_ns) for span in spans) / seconds
