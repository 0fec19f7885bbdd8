"""A node as a member of the measuring mesh: measurement, network map and ways put together, without a socket or clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chappe.engine._engine import Engine
from chappe.wire.base import Message

if TYPE_CHECKING:
    from chappe.netmap.units import Address

RawOutputs = tuple[bool, list[tuple[int, bytes]], int, tuple[str, ...] | None]
Sign = Callable[[bytes], bytes]  # what the node says of a text
Verify = Callable[[str, bytes, bytes], bool]  # whether the node of that name said so: name, text, signature


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What a member is told; each part has its own settings."""

    performance: bool = True  # routes by measured costs; else by static ones (MR-117)
    measures: bool = True  # whether probes are sent
    bandwidth: bool = False  # whether trains are sent
    interval_ns: int = 1_000_000_000  # base interval of measurement
    profile: str = "default"
    mesh: bool = True  # False: links are measured, and that is all


@dataclass(frozen=True, slots=True)
class Send:
    """A control message for the other end of a link."""

    port: int
    message: Message


@dataclass(frozen=True, slots=True)
class Publish:
    """An event of this node itself."""

    topic: str
    body: bytes
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Refuse:
    """The other end of a link does not belong here: it is no neighbour; the reason is for a person."""

    port: int
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log."""

    event: str
    level: str = "info"
    fields: dict[str, Any] = field(default_factory=dict)


Output = Send | Publish | Refuse | Log


class Member:
    """One member of the mesh. Ticks in which nothing is due cost next to nothing; route changes are applied once a tick.

    The engine asks `publish_way` and `forward_way`; give it functions that call these, since it is made first.
    """

    def __init__(
        self, me: Address, engine: Engine, settings: MemberSettings, rng: random.Random,
        sign: Sign | None = None, verify: Verify | None = None,
    ) -> None:  # fmt: skip
        self.me = me
        self.engine = engine
        self.settings = settings

    # --- links

    def up(self, port: int, name: str, now_ns: int, *, kind: str = "tcp", lossy: bool = False) -> list[Output]:
        """A link to another node can be sent to; both ends say Join on it."""
        raise NotImplementedError

    def down(self, port: int, now_ns: int) -> list[Output]:
        """A link to another node is gone: what its other end had not confirmed takes other ways."""
        raise NotImplementedError

    def attend(self, port: int, now_ns: int, *, kind: str = "tcp", lossy: bool = False) -> None:
        """Measure a link to a client, too (MR-002)."""
        raise NotImplementedError

    def leave(self, port: int) -> None:
        """Measure it no more."""
        raise NotImplementedError

    # --- what arrives

    def receive(self, port: int, message: Message, now_ns: int) -> list[Output]:
        """A control message of a neighbour; `takes` says which ones are meant."""
        raise NotImplementedError

    @staticmethod
    def takes(message: Message) -> bool:
        """Whether messages of this kind are for the member."""
        raise NotImplementedError

    def arrived(self, now_ns: int) -> list[Output]:
        """Take the echoes and train reports that the engine got."""
        raise NotImplementedError

    def tick(self, now_ns: int) -> list[Output]:
        """Send probes that are due, tell costs, refresh and forget, apply new routes."""
        raise NotImplementedError

    def next_ns(self) -> int:
        """When `tick` has something to do at the latest."""
        raise NotImplementedError

    # --- interest

    def subscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """A client of this node subscribed; the same once for each client."""
        raise NotImplementedError

    def unsubscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """It does so no more."""
        raise NotImplementedError

    def advertise(self, publications: Iterable[tuple[str, str]]) -> None:
        """What is published here, as (kind, topic), in place of what was told before."""
        raise NotImplementedError

    # --- asked by the engine

    def publish_way(self, kind: str, topic: bytes) -> RawOutputs:
        """Where events of clients of this node go."""
        raise NotImplementedError

    def forward_way(self, port: int, way: bytes, kind: str, topic: bytes) -> RawOutputs:
        """Where events that came with that way go."""
        raise NotImplementedError

    # --- to see it

    def link_rows(self) -> list[dict[str, Any]]:
        """One row a link: name, kind, mean, deviation, jitter, loss, bandwidth, cost (MR-073)."""
        raise NotImplementedError

    def history(self, port: int) -> list[tuple[int, float]]:
        """(time in ns, round trip in ms) of the last probes of a link (MR-074)."""
        raise NotImplementedError

    def map_rows(self) -> list[dict[str, Any]]:
        """The links of the network map."""
        raise NotImplementedError

    def explain(self, profile: str, to: str) -> list[dict[str, Any]]:
        """The way to a node or unit, the next best, the static one, and why."""
        raise NotImplementedError
