"""What monitors, aggregators and realms say to each other, and the topics on which they say it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from chappe.measure.record import BODY_BYTES, Record, RecordError

JSON = "application/json"
JSON_LINES = "application/x-ndjson"
M = TypeVar("M", bound=msgspec.Struct)

Text = Annotated[str, Meta(max_length=255)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=4096)]
Metric = Literal["latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "bandwidth", "cost"]


class Change(msgspec.Struct, frozen=True):
    """How much a metric must differ from what was reported last."""

    kind: Literal["absolute", "percent"]
    value: Annotated[float, Meta(ge=0)]


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an aggregator asks of the monitor of a node (MR-085, MR-086).

    links: UUIDs or patterns over URIs and names of peers (`*` for any characters); none: all. metrics: none: all.
    start, stop: measure or do not measure them. set_interval: measure every `interval_ms`. report_only: of these links
    report these metrics only, and with `change` only when one of them has changed by so much. measure: measure them
    now, and report what comes out whether it has changed or not.
    """

    id: Text
    aggregator: Text
    node: Text
    action: Literal["start", "stop", "set_interval", "report_only", "measure"]
    links: Texts = ()
    metrics: tuple[Metric, ...] = ()
    interval_ms: float | None = None
    change: Change | None = None


class ControlReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a monitor did: links by UUID, and for what it did not do the reason."""

    id: Text
    node: Text
    applied: Texts = ()
    refused: Annotated[tuple[Annotated[str, Meta(max_length=1000)], ...], Meta(max_length=4096)] = ()


class Announce(msgspec.Struct, frozen=True, kw_only=True):
    """An aggregator, or somebody else who consumes records, announces itself (MR-130).

    load: records a second that it takes. nodes: patterns of the nodes that it is for. wants: (realm, group) whose
    snapshots it reads. stored: records that it has committed so far.
    """

    name: Text
    realm: Text
    kind: Literal["aggregator", "consumer"] = "aggregator"
    url: Annotated[str, Meta(max_length=1024)] = ""
    load: Annotated[float, Meta(ge=0)] = 0.0
    nodes: Annotated[tuple[Text, ...], Meta(max_length=256)] = ("*",)
    wants: Annotated[tuple[tuple[Text, Text], ...], Meta(max_length=256)] = ()
    every_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    stored: int = 0


class RealmSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a realm shows to a group of another: the newest record of each link, in parts (MR-087)."""

    realm: Text
    aggregator: Text
    group: Text
    generated_ns: int
    access: Texts = ()  # user groups of the records that the group may see; none: open ones only
    part: int = 0
    parts: int = 1
    records: Annotated[tuple[Record, ...], Meta(max_length=20_000)] = ()


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody else measured of a link of this node, for its cost (MR-079); weight: how much it counts."""

    link: Text
    source: Text
    stamp_ns: int
    weight: Annotated[float, Meta(gt=0, lt=1)]
    latency_ms: float | None = None
    jitter: float | None = None
    loss: float | None = None
    bandwidth: float | None = None


class AlertEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A rule came true for a link, or is over."""

    rule: Text
    state: Literal["raised", "cleared"]
    link: Text
    node: Text
    stamp_ns: int
    since_ns: int
    severity: Literal["info", "warning", "critical"] = "warning"
    realm: Text = ""
    uri: str = ""
    peer: Text = ""
    text: str = ""


def report_topic(realm: str, node: str, aggregator: str = "") -> str:
    """Where a node reports: to one aggregator, or to whoever listens while it knows none."""
    return f"PBR/Report/{realm}/{node}/{aggregator}" if aggregator else f"PBR/Report/{realm}/{node}"


def control_topic(realm: str, node: str) -> str:
    return f"PBR/Control/{realm}/{node}"


def reply_topic(realm: str, node: str) -> str:
    return f"PBR/Control/{realm}/{node}/Reply"


def announce_topic(realm: str) -> str:
    return f"PBR/Aggregator/Announce/{realm}"


def alert_topic(realm: str) -> str:
    return f"PBR/Alert/{realm}"


def snapshot_topic(realm: str, group: str) -> str:
    """One topic a group: an access rule of the nodes decides who may subscribe to it."""
    return f"PBR/Snapshot/{realm}/{group}"


def advice_topic(realm: str, node: str) -> str:
    return f"PBR/Advice/{realm}/{node}"


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def decode(body: bytes, kind: type[M]) -> M:
    """The message of a body; RecordError says what is wrong with it."""
    if len(body) > BODY_BYTES:
        raise RecordError(f"has {len(body)} bytes, at most {BODY_BYTES} are read")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"is no {kind.__name__}: {error}") from None
