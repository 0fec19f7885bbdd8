"""Keyword arguments that several methods share, as types: `**extension: Unpack[Extension]`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from chappe.client._status import StatusEvent, Watch
from chappe.client.derived import Derived
from chappe.client.extrapolation import Extrapolator
from chappe.client.quality import Qos, Seconds
from chappe.client.snapshots import Snapshot
from chappe.client.structs import TypeName
from chappe.client.topics import Topic
from chappe.client.violations import Violation
from chappe.errors import WithdrawnError
from chappe.links.options import LinkOptions
from chappe.security.config import Tls

Secure = ssl.SSLContext | Tls | str | Path | tuple[str, str, str]
Violated = Callable[[Violation[Watch]], None]


class Properties(TypedDict, total=False):
    """What may be said of an event beside its topic and body."""

    created: int | None  # ns since 1970
    expires: int | None
    content_type: str | None
    properties: dict[str, Any] | None


class Extension(Properties, total=False):
    """And where its answer goes."""

    reply: Topic | None
    correlation: int | None


class ConnectArguments(TypedDict, total=False):
    """Of `connect`."""

    name: str | None
    token: str | Callable[[], str] | None
    tls: Secure | None
    server_name: str | None
    proxy: str
    queue_bytes: int
    status_bytes: int
    conflate: bool
    flooded: bool
    status: Literal["stream", "udp"]
    reconnect: bool
    heartbeat_s: float
    timeout_s: float
    wait_s: float
    compare_s: float
    durable_s: float
    stamps: bool | None
    report_quality: bool
    options: LinkOptions | None


class QueueArguments(TypedDict, total=False):
    """Of what queues events: `open_inbox` and `subscribe`."""

    max_queue: int
    max_bytes: int
    on_full: Literal["drop", "block"] | None


class SubscribeArguments(QueueArguments, total=False):
    """Of `subscribe`."""

    group: str
    backpressure: bool
    since: int | None


class RegisterManyArguments(TypedDict, total=False):
    """Of `register_many`."""

    slowest: Seconds | None
    type: TypeName
    priority: int


class RegisterArguments(RegisterManyArguments, total=False):
    """Of `register`."""

    minimum: Seconds | None
    length: int | None
    options: int
    derived: Sequence[Derived]


class WatchManyArguments(TypedDict, total=False):
    """Of `watch_many`."""

    interval: Seconds | None
    qos: Qos | Mapping[int, Qos] | None
    modes: Iterable[int] | None
    type: TypeName | None
    max_queue: int
    on_full: str
    wait_s: float


class WatchArguments(WatchManyArguments, total=False):
    """Of `watch`."""

    callback: Callable[[StatusEvent], None] | None
    on_violation: Violated | None
    slack: Seconds | None
    extrapolate: Extrapolator | None
    on_withdrawn: Callable[[Watch, WithdrawnError], None] | None


class MonitorArguments(TypedDict, total=False):
    """Of `monitor`."""

    slack: Seconds | None
    extrapolate: Extrapolator | None


class GroupArguments(TypedDict, total=False):
    """Of `group`."""

    interval: Seconds | None
    qos: Qos | Mapping[int, Qos] | None
    modes: Iterable[int] | None
    history: int
    callback: Callable[[Snapshot], None] | None
    max_queue: int


class MemberArguments(TypedDict, total=False):
    """Of `Group.add`."""

    latency: Seconds | None
    redundancy: int
    type: TypeName | None
    wait_s: float


class OpenLinkArguments(TypedDict, total=False):
    """Of `open_link`."""

    kind: str
    data: str
    lifetime_s: float


class MeasureArguments(TypedDict, total=False):
    """Of `measure`."""

    every: float | None
    usual: bool
    far: bool
