"""One record as one `performancedata`, and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from chappe.measure.record import MEASURED, VERSION, Record, RecordError, link_of

SECOND = 1_000_000_000
MINUTE_NS = 60 * SECOND
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_QUOTE = {'"': "&quot;"}


class _Column(NamedTuple):
    """How a field is called in the XML and what it is."""

    field: str
    kind: str  # text, number, count, truth


# The spelling is that of the original sample; reading does not mind the case, because its own list differs.
ELEMENTS = {
    "Node_ID": _Column("node", "text"),
    "link_ID": _Column("uri", "text"),
    "user_group": _Column("user_group", "text"),
    "avg_latency": _Column("latency_ms", "number"),
    "Std_dev": _Column("deviation_ms", "number"),
    "jitter": _Column("jitter_ms", "number"),
    "lossrate": _Column("loss", "number"),
}
ATTRIBUTES = {
    "peer": _Column("peer", "text"),
    "realm": _Column("realm", "text"),
    "transport": _Column("transport", "text"),
    "interval_ms": _Column("interval_ms", "number"),
    "window": _Column("window", "count"),
    "outliers": _Column("outliers", "count"),
    "relative_jitter": _Column("jitter", "number"),
    "bandwidth": _Column("bandwidth", "number"),
    "cost": _Column("cost", "number"),
    "profile": _Column("profile", "text"),
    "published": _Column("published", "truth"),
    "origin": _Column("origin", "text"),
    "version": _Column("version", "count"),
}
_BY_LOWER = {name.lower(): column for name, column in ELEMENTS.items()}


def text_of(record: Record) -> str:
    """One `performancedata` as text: many at once are quicker this way than as a tree."""
    seconds, rest_ns = divmod(record.stamp_ns, SECOND)
    date, time = _minute(seconds // 60)
    stamp = f"{_second(seconds)}.{rest_ns:09d}Z" if rest_ns else f"{_second(seconds)}Z"
    latency, deviation, jitter, loss = record.latency_ms, record.deviation_ms, record.jitter_ms, record.loss
    return (
        f'<performancedata stamp="{stamp}" link="{record.link}"{_attributes(record)}>'
        f"<Node_ID>{_name(record.node)}</Node_ID><link_ID>{escape(record.uri)}</link_ID>"
        f"<user_group>{_name(record.user_group)}</user_group>"
        f"{'' if latency is None else f'<avg_latency>{number(latency)}</avg_latency>'}"
        f"{'' if deviation is None else f'<Std_dev>{number(deviation)}</Std_dev>'}"
        f"{'' if jitter is None else f'<jitter>{number(jitter)}</jitter>'}"
        f"{'' if loss is None else f'<lossrate>{number(loss)}</lossrate>'}"
        f"<date>{date}</date><time>{time}</time></performancedata>\n"
    )


def number(value: float) -> str:
    """All digits and no exponent: the schema says decimal, and XPath reads no exponents."""
    text = repr(value)
    return format(Decimal(text), "f") if "e" in text else text


def row_of(row: Any) -> Record:
    """The record of an element; RecordError names what is wrong with it."""
    if row.tag != "performancedata":
        raise RecordError(f"{row.tag}: only performancedata is known here")
    values: dict[str, Any] = {}
    when: dict[str, str] = {}
    for child in row:
        name = str(child.tag)
        text = (child.text or "").strip()
        column = _BY_LOWER.get(name.lower())
        if name in ("date", "time"):
            when[name] = text
        elif column is None:
            raise RecordError(f"{name}: this element is not known")
        elif column.field in values:
            raise RecordError(f"{name}: is there twice")
        else:
            values[column.field] = _value(name, text, column.kind)
    for name, text in row.attrib.items():
        if name in ("stamp", "link"):
            continue
        column = ATTRIBUTES.get(str(name))
        if column is None:
            raise RecordError(f"{name}: this attribute is not known")
        values[column.field] = _value(str(name), str(text), column.kind)
    if not values.get("node"):
        raise RecordError("Node_ID: is missing")
    if not values.get("uri") and "link" not in row.attrib:
        raise RecordError("link_ID: is missing")
    stamp = row.get("stamp")
    values["stamp_ns"] = _instant(stamp) if stamp is not None else _moment(when)
    values["link"] = row.get("link") or link_of(values["uri"])
    return Record(**values)


def _attributes(record: Record) -> str:
    """Only what differs from what is assumed without."""
    parts = []
    for name, text in (
        ("peer", record.peer), ("realm", record.realm), ("transport", record.transport), ("profile", record.profile),
    ):  # fmt: skip
        if text:
            parts.append(f' {name}="{_name(text)}"')
    for name, value in (
        ("interval_ms", record.interval_ms), ("relative_jitter", record.jitter), ("bandwidth", record.bandwidth),
        ("cost", record.cost),
    ):  # fmt: skip
        if value is not None:
            parts.append(f' {name}="{number(value)}"')
    if record.window:
        parts.append(f' window="{record.window}"')
    if record.outliers:
        parts.append(f' outliers="{record.outliers}"')
    if record.published:
        parts.append(' published="true"')
    if record.origin != MEASURED:
        parts.append(f' origin="{_name(record.origin)}"')
    if record.version != VERSION:
        parts.append(f' version="{record.version}"')
    return "".join(parts)


def _value(name: str, text: str, kind: str) -> Any:
    match kind:
        case "text":
            return text
        case "number" if _NUMBER.fullmatch(text):
            return float(text)
        case "count" if text.isascii() and text.isdecimal() and len(text) < 16:
            return int(text)
        case "truth" if text in ("true", "false", "1", "0"):
            return text in ("true", "1")
    raise RecordError(f"{name}: {text[:40]!r} is no {kind}")


def _instant(text: str) -> int:
    found = _STAMP.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        seconds = int(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise RecordError(f"stamp: {text[:40]!r} is not like 2026-05-01T12:00:00.123456789Z") from None
    return seconds * SECOND + int((found[2] or "").ljust(9, "0"))


def _moment(when: dict[str, str]) -> int:
    """The original form, to the minute and without a zone: taken as UTC."""
    text = f"{when.get('date', '')} {when.get('time', '')}"
    try:
        moment = datetime.strptime(text, "%m/%d/%Y %I:%M%p").replace(tzinfo=UTC)
    except ValueError:
        raise RecordError(f"date, time: {text[:40]!r} is not like 05/01/2026 02:15pm") from None
    return int(moment.timestamp()) * SECOND


@lru_cache(65536)
def _name(text: str) -> str:
    """For an element or an attribute; names come again and again."""
    return escape(text, _QUOTE)


@lru_cache(4096)
def _minute(minutes: int) -> tuple[str, str]:
    moment = datetime.fromtimestamp(minutes * 60, UTC)
    half = "am" if moment.hour < 12 else "pm"
    return moment.strftime("%m/%d/%Y"), f"{moment.hour % 12 or 12:02d}:{moment.minute:02d}{half}"


@lru_cache(4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
