"""Alert rules over records: raised when a condition has held long enough, cleared with a margin (MR-099)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from chappe.aggregation import conditions
from chappe.aggregation.conditions import Condition
from chappe.errors import ConfigError
from chappe.measure.messages import AlertEvent
from chappe.measure.record import Record

SECOND = 1_000_000_000
Place = tuple[str, str, str]  # rule, link, node


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[alert]]` table.

    when: the condition. for_s: how long it must hold. margin: once raised, bounds are moved by this share before it is
    over; clear_s: how long it must be over. links: patterns of UUIDs, URIs or peers; none: all.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    when: str
    for_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    margin: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    clear_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    severity: Literal["info", "warning", "critical"] = "warning"
    links: tuple[str, ...] = ()


class Saved(NamedTuple):
    """What is known of one rule at one end of one link, to go on with later."""

    rule: str
    link: str
    node: str
    since_ns: int
    raised: bool
    calm_ns: int | None


@dataclass(slots=True)
class _State:
    """Of one rule at one end of one link; there is none while nothing is wrong."""

    since_ns: int  # the condition holds since
    raised: bool = False
    calm_ns: int | None = None  # raised, but over since


class Alerts:
    """Records in, events out. Time is that of the records; of `tick` that of the caller, both UTC."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        names = [rule.name for rule in rules]
        double = {name for name in names if names.count(name) > 1}
        if double:
            raise ConfigError(f"alert {min(double)!r}: there are two rules of that name")
        self.rules = {rule.name: rule for rule in rules}
        self._conditions = {rule.name: conditions.parse(rule.when) for rule in rules}
        self._aging = [rule for rule in rules if "age_s" in conditions.metrics(self._conditions[rule.name])]
        self._states: dict[Place, _State] = {}

    def restore(self, events: Iterable[AlertEvent]) -> None:
        """Go on after a restart: these were raised and not cleared. Those of rules that are no more are forgotten."""
        for event in events:
            if event.rule in self.rules:
                place = (event.rule, event.link, event.node)
                self._states[place] = _State(event.since_ns, raised=True)

    def saved(self) -> list[Saved]:
        """All that `resume` needs."""
        return [Saved(*place, each.since_ns, each.raised, each.calm_ns) for place, each in self._states.items()]

    def resume(self, saved: Iterable[Saved]) -> None:
        """Go on as if nothing had been between; rules that are no more are forgotten."""
        for each in saved:
            if each.rule in self.rules:
                self._states[each.rule, each.link, each.node] = _State(each.since_ns, each.raised, each.calm_ns)

    @property
    def raised(self) -> list[Place]:
        """What is raised now."""
        return [place for place, state in self._states.items() if state.raised]

    def record(self, record: Record) -> list[AlertEvent]:
        """What a new record raises or clears; records of an end of a link must come in the order of time."""
        values = _values(record, 0.0)
        found = (self._judge(rule, record, values, record.stamp_ns) for rule in self.rules.values())
        return [event for event in found if event is not None]

    def tick(self, newest: Iterable[Record], now_ns: int) -> list[AlertEvent]:
        """What is raised because nothing was heard (`age_s`)."""
        if not self._aging:
            return []
        events = []
        for record in newest:
            values = _values(record, max(0.0, (now_ns - record.stamp_ns) / SECOND))
            events += [event for rule in self._aging if (event := self._judge(rule, record, values, now_ns))]
        return events

    def forget(self, record: Record, now_ns: int) -> list[AlertEvent]:
        """An end of a link is followed no more: what is raised there is over."""
        events = []
        for rule in self.rules.values():
            state = self._states.pop((rule.name, record.link, record.node), None)
            if state is not None and state.raised:
                condition = self._conditions[rule.name]
                events.append(_event(rule, "cleared", record, state.since_ns, now_ns, _values(record, 0.0), condition))
        return events

    def _judge(self, rule: Rule, record: Record, values: Mapping[str, float | None], now_ns: int) -> AlertEvent | None:
        if rule.links and not any(_matches(pattern, record) for pattern in rule.links):
            return None
        place = (rule.name, record.link, record.node)
        state = self._states.get(place)
        condition = self._conditions[rule.name]
        if state is not None and state.raised:
            return self._over(rule, place, state, condition, record, values, now_ns)
        held = conditions.holds(condition, values)
        if held is False:
            self._states.pop(place, None)
        if not held:
            return None
        if state is None:
            state = self._states[place] = _State(now_ns)
        if now_ns - state.since_ns < rule.for_s * SECOND:
            return None
        state.raised = True
        return _event(rule, "raised", record, state.since_ns, now_ns, values, condition)

    def _over(
        self, rule: Rule, place: Place, state: _State, condition: Condition, record: Record,
        values: Mapping[str, float | None], now_ns: int,
    ) -> AlertEvent | None:  # fmt: skip
        """Of what is raised: whether it is over."""
        held = conditions.holds(condition, values, rule.margin)
        if held is not False:
            state.calm_ns = None if held else state.calm_ns
            return None
        if state.calm_ns is None:
            state.calm_ns = now_ns
        if now_ns - state.calm_ns < rule.clear_s * SECOND:
            return None
        del self._states[place]
        return _event(rule, "cleared", record, state.since_ns, now_ns, values, condition)


def _event(
    rule: Rule, state: Literal["raised", "cleared"], record: Record, since_ns: int, now_ns: int,
    values: Mapping[str, float | None], condition: Condition,
) -> AlertEvent:  # fmt: skip
    seen = ", ".join(
        f"{name} = {values[name]:.6g}" for name in sorted(conditions.metrics(condition)) if values[name] is not None
    )
    return AlertEvent(
        rule=rule.name, state=state, link=record.link, node=record.node, stamp_ns=now_ns, since_ns=since_ns,
        severity=rule.severity, realm=record.realm, uri=record.uri, peer=record.peer, text=f"{rule.when}: {seen}",
    )  # fmt: skip


def _values(record: Record, age_s: float) -> dict[str, float | None]:
    values: dict[str, float | None] = {name: getattr(record, name) for name in conditions.KNOWN if name != "age_s"}
    values["age_s"] = age_s
    return values


def _matches(pattern: str, record: Record) -> bool:
    return pattern == record.link or fnmatchcase(record.uri, pattern) or fnmatchcase(record.peer, pattern)
