"""What every broker is to its shell and to the simulator: messages and a time in, outputs out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from chappe.wire.base import Message

Address = str
"""`router/NAME`, `child/ROLE`, `parent`, `operator/NUMBER`: who a message comes from or goes to."""


class Send(msgspec.Struct, frozen=True):
    """Send this message; if the address is not connected it is dropped, the broker tells again when it is back."""

    to: Address
    message: Message


class Change(msgspec.Struct, frozen=True):
    """One item of durable state; no value removes it."""

    kind: str
    key: str
    value: bytes | None = None


class Persist(msgspec.Struct, frozen=True):
    """Everything after this in the same list, and in later lists, waits until these changes are durable."""

    changes: tuple[Change, ...]


Output = Send | Persist


class Broker(Protocol):
    """A leaf or inner broker. Times are monotonic nanoseconds; nothing in it waits, reads a clock or opens a socket."""

    role: str
    epoch: int  # 0 until it leads

    def restore(self, items: Iterable[Change]) -> None:
        """The durable state as it was last committed; called once, before `lead`."""

    def lead(self, epoch: int, now_ns: int) -> list[Output]:
        """It is the active broker of its role from now on."""

    def connected(self, address: Address, now_ns: int) -> list[Output]:
        """A connection to that address is there; its first message follows."""

    def lost(self, address: Address, now_ns: int) -> list[Output]:
        """The connection is gone."""

    def receive(self, address: Address, message: Message, now_ns: int) -> list[Output]:
        """One message."""

    def tick(self, now_ns: int) -> list[Output]:
        """Called every 50 ms or so: time-outs."""

    def rows(self, what: str) -> list[dict[str, Any]]:
        """What `chappe show WHAT` prints; KeyError names what can be asked for."""
