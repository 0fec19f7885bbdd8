"""The log of a broker read again: who was promised what, over which hops, in which mode, and from when to when.

One pass over the actions of one broker in their order (docs/reference/feeds.md). A log that begins late, has gaps or
contains what cannot be read gives what it can: an end without a beginning is ignored, and so is a bad row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from chappe.wire.constants import MODES

ALWAYS_NS = (1 << 63) - 1
UNBOUNDED_NS = 1 << 62


class Action(NamedTuple):
    """One row of the dataset `broker`."""

    action: str
    subject: str
    created_ns: int
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """From when, and to when it was so; the end is not included."""

    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True)
class Term(Span):
    """What one subscription was promised in one mode, while that mode was in force."""

    entity: str
    edge: str
    subject: str
    variable_id: int
    rate_num: int
    rate_den: int
    mode: int
    every: int
    interval_ns: int
    bound_ns: int  # 0: none
    redundancy: int


@dataclass(frozen=True, slots=True)
class Hop(Span):
    """A path of a variable through one router; `source` or `target` are empty at its ends."""

    router: str
    variable_id: int
    path: int
    source: str
    target: str
    intervals_ns: tuple[int, ...]  # one for all modes, or 16
    modes: int


@dataclass(frozen=True, slots=True)
class Published(Span):
    """A variable while it was published."""

    subject: str
    variable_id: int
    edge: str
    rate_num: int
    rate_den: int


@dataclass(frozen=True, slots=True)
class Function(Span):
    """A condensation function while it ran."""

    subject: str
    router: str
    calculator: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flooded(Span):
    """A variable while a router flooded it in some mode."""

    router: str
    subject: str
    levels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mode(Span):
    """A mode while it was in force; `took_ns` is what the change to it took, before `from_ns`."""

    mode: int
    took_ns: int
    by: str
    note: str


@dataclass(slots=True)
class History:
    """All spans of one broker, each kind in the order of their ends."""

    terms: list[Term] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    floods: list[Flooded] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    unreadable: int = 0  # rows that were ignored


class _Grant(NamedTuple):
    """A subscription as it stands, in all modes."""

    since_ns: int
    detail: Mapping[str, Any]
    granted: tuple[Mapping[str, Any] | None, ...]
    modes: int


def actions(rows: Iterable[tuple[str, str, int, str | None]]) -> tuple[list[Action], int]:
    """Rows in the order of time with their details read, each once, and how many could not be read."""
    read: dict[tuple[int, str, str], Action] = {}
    bad = 0
    for action, subject, created_ns, detail in rows:
        try:
            told = msgspec.json.decode(detail) if detail else {}
        except msgspec.DecodeError:
            told = None
        if isinstance(told, dict):
            read[created_ns, action, subject] = Action(action, subject, created_ns, told)
        else:
            bad += 1
    return [read[key] for key in sorted(read)], bad


def history(rows: Iterable[tuple[str, str, int, str | None]], until_ns: int) -> History:
    """What a broker's log says; what has not ended is said to last until `until_ns`."""
    ordered, bad = actions(rows)
    reading = _Reading(History(unreadable=bad), ordered[0].created_ns if ordered else until_ns)
    for action in ordered:
        try:
            reading.take(action)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            reading.found.unreadable += 1
    reading.end(until_ns)
    return reading.found


class _Reading:
    """The state of a broker as its log goes on."""

    def __init__(self, found: History, since_ns: int) -> None:
        self.found = found
        self._mode = Mode(since_ns, ALWAYS_NS, 0, 0, "", "")
        self._grants: dict[tuple[str, str], _Grant] = {}
        self._hops: dict[tuple[str, int, int], Hop] = {}
        self._published: dict[str, Published] = {}
        self._owners: dict[str, str] = {}  # who publishes what
        self._functions: dict[tuple[str, int], Function] = {}
        self._floods: dict[tuple[str, int], Flooded] = {}

    def take(self, action: Action) -> None:
        kind, subject, at, detail = action
        match kind:
            case "subscribe" | "regrant":
                self._granted(subject, at, detail)
            case "unsubscribe":
                self._ended(detail["entity"], subject, at)
            case "withdraw":
                for entity in detail["entities"]:
                    self._ended(entity, subject, at)
            case "client_left":
                if detail.get("gone"):  # else it may come back, and everything stays as it is
                    self._left(subject, at)
            case "publish":
                self._unpublished(subject, at)
                self._owners[subject] = str(detail.get("entity", ""))
                self._published[subject] = Published(
                    at, ALWAYS_NS, subject, _whole(detail["variable_id"]), str(detail["edge"]), *_rate(detail)
                )
            case "unpublish":
                self._unpublished(subject, at)
            case "path":
                self._laid(subject, at, detail["paths"])
            case "path_removed":
                for each in detail["paths"]:
                    self._removed((subject, _whole(each["variable_id"]), _whole(each["path"])), at)
            case "place":
                self._displaced(subject, _whole(detail["variable_id"]), at)
                self._functions[subject, _whole(detail["variable_id"])] = Function(
                    at, ALWAYS_NS, detail["name"], subject, detail["calculator"], _names(detail["inputs"])
                )
            case "displace":
                self._displaced(subject, _whole(detail["variable_id"]), at)
            case "flood":
                self._flooded(subject, at, detail)
            case "mode":
                self._changed(at, detail)

    def end(self, until_ns: int) -> None:
        """Everything that is still so lasts until then."""
        for entity, subject in list(self._grants):
            self._ended(entity, subject, until_ns)
        for key in list(self._hops):
            self._removed(key, until_ns)
        for subject in list(self._published):
            self._unpublished(subject, until_ns)
        for router, variable in list(self._functions):
            self._displaced(router, variable, until_ns)
        for router, variable in list(self._floods):
            self._unflooded(router, variable, until_ns)
        _close(self.found.modes, self._mode, until_ns)

    # subscriptions

    def _granted(self, subject: str, at: int, detail: Mapping[str, Any]) -> None:
        granted = tuple(detail["granted"])
        if len(granted) not in (1, MODES) or not all(each is None or isinstance(each, Mapping) for each in granted):
            raise ValueError("granted is one quality or 16")
        entity = str(detail["entity"])
        known = self._grants.get((entity, subject))
        told = {**(known.detail if known else {}), **detail}
        for one in granted:
            if one is not None:
                _whole(one["every"], 1, 1 << 31)
                for name in ("interval_ns", "redundancy"):
                    _whole(one[name])
                _whole(one.get("bound_ns", 0))
        _ = str(told["edge"]), _whole(told["variable_id"]), _rate(told)
        self._ended(entity, subject, at)
        self._grants[entity, subject] = _Grant(at, told, granted, _whole(told.get("modes", 0xFFFF)))

    def _ended(self, entity: str, subject: str, at: int) -> None:
        grant = self._grants.pop((entity, subject), None)
        if grant is not None:
            self._term(entity, subject, grant, at)

    def _left(self, entity: str, at: int) -> None:
        for owner, subject in list(self._grants):
            if owner == entity:
                self._ended(owner, subject, at)
        for subject in [subject for subject in self._published if self._owners.get(subject) == entity]:
            self._unpublished(subject, at)

    def _term(self, entity: str, subject: str, grant: _Grant, to_ns: int) -> None:
        """What was promised in the mode that is in force, from when both were so."""
        mode = self._mode.mode
        one = grant.granted[mode if len(grant.granted) == MODES else 0]
        from_ns = max(grant.since_ns, self._mode.from_ns)
        if one is None or not grant.modes >> mode & 1 or to_ns <= from_ns:
            return
        detail = grant.detail
        bound = one.get("bound_ns", 0)
        self.found.terms.append(
            Term(
                from_ns, to_ns, entity, str(detail["edge"]), subject, detail["variable_id"], *_rate(detail), mode,
                one["every"], one["interval_ns"], 0 if bound >= UNBOUNDED_NS else bound, one["redundancy"],
            )
        )  # fmt: skip

    # the rest

    def _changed(self, at: int, detail: Mapping[str, Any]) -> None:
        mode, took = _whole(detail["mode"], 0, MODES - 1), _whole(detail.get("took_ns") or 0)
        begun = max(at - took, self._mode.from_ns)
        for (entity, subject), grant in self._grants.items():
            self._term(entity, subject, grant, begun)
        self.found.modes.append(replace(self._mode, to_ns=begun))  # the first one, too, however short
        self._mode = Mode(at, ALWAYS_NS, mode, took, str(detail.get("by", "")), str(detail.get("note") or ""))

    def _laid(self, router: str, at: int, paths: Iterable[Mapping[str, Any]]) -> None:
        for each in paths:
            key = router, _whole(each["variable_id"]), _whole(each["path"])
            intervals = tuple(_whole(interval) for interval in each["intervals_ns"])
            if len(intervals) not in (1, MODES):
                raise ValueError("a path has one interval or 16")
            hop = Hop(
                at, ALWAYS_NS, router, key[1], key[2], str(each["source"] or ""), str(each["target"] or ""), intervals,
                _whole(each["modes"]),
            )  # fmt: skip
            known = self._hops.get(key)
            if known is None or replace(known, from_ns=at) != hop:
                self._removed(key, at)
                self._hops[key] = hop

    def _removed(self, key: tuple[str, int, int], at: int) -> None:
        hop = self._hops.pop(key, None)
        if hop is not None:
            _close(self.found.hops, hop, at)

    def _unpublished(self, subject: str, at: int) -> None:
        known = self._published.pop(subject, None)
        if known is not None:
            _close(self.found.published, known, at)

    def _displaced(self, router: str, variable: int, at: int) -> None:
        known = self._functions.pop((router, variable), None)
        if known is not None:
            _close(self.found.functions, known, at)

    def _flooded(self, router: str, at: int, detail: Mapping[str, Any]) -> None:
        variable = _whole(detail["variable_id"])
        self._unflooded(router, variable, at)
        levels = tuple(int(level or 0) for level in detail["levels"])
        if any(levels):
            self._floods[router, variable] = Flooded(at, ALWAYS_NS, router, str(detail["name"]), levels)

    def _unflooded(self, router: str, variable: int, at: int) -> None:
        known = self._floods.pop((router, variable), None)
        if known is not None:
            _close(self.found.floods, known, at)


def _close(spans: list[Any], span: Span, at: int) -> None:
    if at > span.from_ns:
        spans.append(replace(span, to_ns=at))


def _whole(value: Any, least: int = 0, most: int = ALWAYS_NS) -> int:
    """The value if it is a whole number in range; ValueError otherwise."""
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value


def _rate(detail: Mapping[str, Any]) -> tuple[int, int]:
    """A publishing rate that a grid can count; 0 of an alert."""
    num, den = _whole(detail["rate_num"]), _whole(detail["rate_den"], 1)
    if num and den * (num + 1) > ALWAYS_NS:
        raise ValueError(f"rate {num}/{den} is too fine")
    return num, den


def _names(inputs: Iterable[Any]) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else f"{each['publisher']}/{each['variable']}" for each in inputs)


def routes(hops: Iterable[Hop], edges: Mapping[int, Iterable[str]]) -> Iterator[tuple[int, str, int, tuple[str, ...]]]:
    """(variable, edge, path, routers in the order of events) of the paths that end at each edge, as they were last."""
    known: dict[tuple[int, int], dict[str, Hop]] = defaultdict(dict)
    for hop in sorted(hops, key=lambda hop: hop.to_ns):
        known[hop.variable_id, hop.path][hop.router] = hop
    for (variable, path), routers in known.items():
        for edge in edges.get(variable, ()):
            last = routers.get(edge)
            if last is None or last.target:
                continue
            way, before = [edge], last.source
            while before and before not in way:
                way.append(before)
                before = routers[before].source if before in routers else ""
            yield variable, edge, path, tuple(reversed(way))
