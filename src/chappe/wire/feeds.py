"""Feeds: what nodes, brokers and clients publish about themselves, as topics and JSON bodies (docs/reference/feeds.md).

The name of the publisher is in the topic alone: that is what access rules decide about.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

COUNTERS = "node/counters"
BROKER_LOG = "broker/log"
QUALITY = "quality"
RESERVED = (COUNTERS, BROKER_LOG)  # only nodes and brokers publish there
PRIORITY = 6  # behind everything that somebody waits for
CONTENT_TYPE = "application/json"

Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a node as they stood: by name as /metrics has it, then by labels (`direction="in",link="b"`)."""

    created_ns: Whole
    counters: dict[str, dict[str, float]]


class Action(msgspec.Struct, frozen=True, array_like=True):
    """One thing that a broker did or noticed; `detail` is a JSON object."""

    action: str
    subject: str
    created_ns: Whole
    detail: msgspec.Raw


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker did, in order: times grow by at least one from each action to the next of an epoch."""

    epoch: Whole
    actions: tuple[Action, ...]


class Breach(msgspec.Struct, frozen=True, array_like=True):
    """Guarantees that were broken to a client: `count` of one kind about one subject, noticed within a second.

    created_ns: when the last of them was noticed. latency_ns: of late values the longest. `detail` is a JSON object.
    """

    subject: str
    kind: str
    created_ns: Whole
    count: Count
    latency_ns: Whole | None
    detail: msgspec.Raw


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """What a client noticed of its quality in a second."""

    breaches: tuple[Breach, ...]


def counters_topic(node: str) -> str:
    return f"{COUNTERS}/{node}"


def broker_topic(role: str) -> str:
    return f"{BROKER_LOG}/{role}"


def quality_topic(client: str) -> str:
    """The topic of a client; what no topic may contain is `_` there."""
    return f"{QUALITY}/{''.join('_' if each in '+#/' else each for each in client) or '_'}"


def reserved(kind: str, topic: bytes) -> bool:
    """Whether only nodes and brokers may publish there, whatever the access rules are."""
    return kind == "s" and any(topic == name or topic.startswith(name + b"/") for name in _RESERVED)


def at_brokers(pattern: str) -> bool:
    """Whether a broker takes a subscription to that pattern: it has no events but its own feeds."""
    return any(pattern == name or pattern.startswith(f"{name}/") for name in RESERVED)


_RESERVED = tuple(name.encode() for name in RESERVED)
