"""What the archive hears beside topics and variables: which topics to subscribe to, and rows of what comes there.

A body that is not as it should be gives no rows at all but a FeedError: nothing of it can be trusted. What is well
formed is kept as it is, sensible or not: to judge it is the business of whoever reads the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from chappe.errors import ChappeError
from chappe.measure import record
from chappe.wire import feeds

BODY_BYTES: Final = 4 << 20
REPORT: Final = "PBR/Report"

Row = dict[str, object]
Rows = Callable[[str, bytes, int], list[Row]]
M = TypeVar("M", bound=msgspec.Struct)


class FeedError(ChappeError):
    """An event of a feed is malformed; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Events that are rows of a dataset: `rows(topic, body, received_ns)` gives them, or raises FeedError.

    at_brokers: brokers publish it, too. They forward nothing and are in no mesh: subscribe at each process of them.
    """

    dataset: str
    topics: tuple[str, ...]
    rows: Rows
    at_brokers: bool = False


def measurements(topic: str, body: bytes, received_ns: int) -> list[Row]:
    """Rows of a report of a node (MR-083)."""
    match topic.split("/"):
        case ["PBR", "Report", realm, node, *rest] if len(rest) <= 1:
            pass
        case _:
            raise FeedError(f"{topic}: is no topic of reports; they are {REPORT}/REALM/NODE[/AGGREGATOR]")
    try:
        records = record.parse(body)
    except record.RecordError as error:
        raise FeedError(f"{topic}: {error}") from None
    for number, each in enumerate(records, 1):
        if (each.node, each.realm) != (node, realm):
            raise FeedError(f"{topic}: record {number} is of {each.node[:80]!r} in {each.realm[:80]!r}")
    return [
        {
            "node": each.node,
            "link": each.link,
            "peer": each.peer,
            "transport": each.transport,
            "realm": each.realm or None,
            "created_ns": each.stamp_ns,
            **{metric: getattr(each, metric) for metric in record.METRICS},
            "outliers": each.outliers,
            "window": each.window,
            "received_ns": received_ns,
        }
        for each in records
    ]


def counters(topic: str, body: bytes, received_ns: int) -> list[Row]:
    """Rows of the counters of a node."""
    node = _publisher_of(topic, feeds.COUNTERS)
    message = _decode(topic, body, feeds.Counters)
    return [
        {
            "node": node,
            "name": name,
            "labels": labels,
            "created_ns": message.created_ns,
            "value": value,
            "received_ns": received_ns,
        }
        for name, samples in message.counters.items()
        for labels, value in samples.items()
    ]


def broker(topic: str, body: bytes, received_ns: int) -> list[Row]:
    """Rows of the log of a broker."""
    role = _publisher_of(topic, feeds.BROKER_LOG)
    return [
        {
            "broker": role,
            "action": each.action,
            "subject": each.subject,
            "created_ns": each.created_ns,
            "detail": _detail(topic, each.detail),
            "received_ns": received_ns,
        }
        for each in _decode(topic, body, feeds.Actions).actions
    ]


def quality(topic: str, body: bytes, received_ns: int) -> list[Row]:
    """Rows of what a client noticed of its quality."""
    client = _publisher_of(topic, feeds.QUALITY)
    return [
        {
            "client": client,
            "subject": each.subject,
            "kind": each.kind,
            "created_ns": each.created_ns,
            "latency_ns": each.latency_ns,
            "count": each.count,
            "detail": _detail(topic, each.detail),
            "received_ns": received_ns,
        }
        for each in _decode(topic, body, feeds.Quality).breaches
    ]


FEEDS: Final[Mapping[str, Feed]] = MappingProxyType(
    {
        "measurements": Feed("measurements", (f"{REPORT}/#",), measurements),
        "counters": Feed("counters", (f"{feeds.COUNTERS}/+",), counters, at_brokers=True),
        "broker": Feed("broker", (f"{feeds.BROKER_LOG}/+",), broker, at_brokers=True),
        "quality": Feed("quality", (f"{feeds.QUALITY}/+",), quality),
    }
)


def _publisher_of(topic: str, prefix: str) -> str:
    """The name of the publisher: the one level behind the prefix."""
    name = topic.removeprefix(f"{prefix}/")
    if name == topic or not name or "/" in name:
        raise FeedError(f"{topic[:200]}: is no topic of this feed; they are {prefix}/NAME")
    return name


def _decode(topic: str, body: bytes, kind: type[M]) -> M:
    if len(body) > BODY_BYTES:
        raise FeedError(f"{topic}: has {len(body)} bytes, at most {BODY_BYTES} are read")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FeedError(f"{topic}: is no {kind.__name__}: {error}") from None


def _detail(topic: str, raw: msgspec.Raw) -> str | None:
    try:
        text = bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise FeedError(f"{topic}: detail: {error}") from None
    if text == "null":
        return None
    if not text.startswith("{"):
        raise FeedError(f"{topic}: detail: is no JSON object: {text[:60]}")
    return text
