"""Alert rules over the history of one end of a link: the aggregator's rules, judged by the time of the measurements.

An aggregator looks at its clock to see that nothing was heard of a link (`age_s`). Here the moments at which such a
rule can come true or be over are computed from the measurement before, so that a history gives the same alerts whenever
and in whatever pieces it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from chappe.aggregation import conditions
from chappe.aggregation.alerts import SECOND, Alerts, Rule, Saved
from chappe.aggregation.conditions import Comparison, Condition
from chappe.errors import ConfigError
from chappe.measure.messages import AlertEvent
from chappe.measure.record import METRICS, Record

TOPIC = "pipeline/alerts"
TABLES = ("aggregates", "alert", "view", "foreign", "order")  # of an aggregator's file, which can be given as it is
_LEVEL = re.compile(r"[/+#\x00-\x20]+")


class End(NamedTuple):
    """Of one end of a link: the newest measurement, the moment up to which silence was judged, and open states."""

    newest: Record | None = None
    judged_ns: int = 0
    states: tuple[Saved, ...] = ()


def rules(given: str) -> tuple[Rule, ...]:
    """The `[[alert]]` tables of a TOML text, or of the file with that name; ConfigError says where it is wrong."""
    source = "rules"
    if given.endswith(".toml") and "\n" not in given:
        source = given
        try:
            given = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"{source}: cannot be read: {reason}") from None
    try:
        found = msgspec.toml.decode(given)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}; write [[alert]] tables or the name of a .toml file") from None
    unknown = sorted(set(found) - set(TABLES))
    if unknown:
        raise ConfigError(f"{source}: {unknown[0]}: is not known; rules are [[alert]] tables")
    try:
        tables = msgspec.convert(found.get("alert", []), tuple[Rule, ...])
        Alerts(tables)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{source}: {error}") from None
    if not tables:
        raise ConfigError(f"{source}: there is no [[alert]] table in it")
    return tables


def records(columns: Mapping[str, Sequence[Any]]) -> list[Record]:
    """Measurements in the order of time, each time once; what is no number was not measured."""
    names = [name for name in _COLUMNS if name in columns]
    found: dict[int, Record] = {}
    for row in zip(*(columns[name] for name in names), strict=True):
        fields = {_FIELDS.get(name, name): value for name, value in zip(names, map(_value, row), strict=True)}
        record = Record(**{name: value for name, value in fields.items() if value is not None})
        found.setdefault(record.stamp_ns, record)
    return [found[stamp] for stamp in sorted(found)]


def judge(of: Sequence[Rule], end: End, new: Iterable[Record], until_ns: int) -> tuple[list[AlertEvent], End]:
    """What new measurements, and silence until then, raise and clear. Measurements that come late change nothing."""
    alerts = Alerts(of)
    alerts.resume(end.states)
    events: list[AlertEvent] = []
    newest, judged_ns = end.newest, end.judged_ns
    for record in new:
        if newest is not None:
            if record.stamp_ns <= newest.stamp_ns:
                continue
            events += _silence(alerts, newest, judged_ns, record.stamp_ns)
        events += alerts.record(record)
        newest, judged_ns = record, record.stamp_ns
    if newest is not None and until_ns > judged_ns:
        events += _silence(alerts, newest, judged_ns, until_ns + 1)
        judged_ns = until_ns
    return events, End(newest, judged_ns, tuple(alerts.saved()))


def next_ns(of: Sequence[Rule], end: End) -> int | None:
    """When silence must be judged next; None if that changes nothing."""
    if end.newest is None:
        return None
    newest_ns, judged_ns = end.newest.stamp_ns, end.judged_ns
    return min((at for at in _moments(of, newest_ns) if at > judged_ns), default=None)


def row(event: AlertEvent) -> dict[str, Any]:
    """An event as a row of the table of alerts."""
    return {
        "rule": event.rule, "state": event.state, "link": event.link, "node": event.node, "peer": event.peer,
        "realm": event.realm, "severity": event.severity, "stamp_ns": event.stamp_ns, "since_ns": event.since_ns,
        "text": event.text, "topic": f"{TOPIC}/{_LEVEL.sub('-', event.rule)}/{_LEVEL.sub('-', event.link)}",
        "body": msgspec.json.encode(event).decode(),
    }  # fmt: skip


def _silence(alerts: Alerts, newest: Record, after_ns: int, before_ns: int) -> Iterator[AlertEvent]:
    for moment in _moments(tuple(alerts.rules.values()), newest.stamp_ns):
        if after_ns < moment < before_ns:
            yield from alerts.tick([newest], moment)


def _moments(of: Sequence[Rule], newest_ns: int) -> list[int]:
    """When rules about silence can come true or be over, if nothing is heard any more."""
    found = set()
    for rule in of:
        for bound in _ages(conditions.parse(rule.when)):
            moved = abs(bound) * rule.margin
            for age_s in (bound, bound - moved, bound + moved):
                at = newest_ns + math.ceil(age_s * SECOND) + 1
                found |= {at, at + math.ceil(rule.for_s * SECOND), at + math.ceil(rule.clear_s * SECOND)}
    return sorted(moment for moment in found if moment > newest_ns)


def _ages(condition: Condition) -> list[float]:
    if isinstance(condition, Comparison):
        return [condition.bound] if condition.metric == "age_s" else []
    return [bound for part in condition.parts for bound in _ages(part)]


_FIELDS = {"created_ns": "stamp_ns"}
_COLUMNS = ("link", "node", "peer", "realm", "transport", "created_ns", *METRICS)


def _value(value: Any) -> Any:
    return None if value is None or value != value else value
