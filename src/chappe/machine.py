"""What every protocol is to the drivers that run it: messages and a time in, effects out; no socket, no clock.

`runtime` (sockets, workers, disks) and `sim` (virtual time, modelled links) are the two drivers. Both run the same
machines and carry out the same effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from chappe.security.identity import Identity
from chappe.wire.base import Message

Address = int | str
"""Whom a message comes from or goes to: the number of a port, or a name that the machine's driver resolves to one.

A broker knows `router/NAME`, `child/ROLE`, `parent` and `operator/NUMBER`.
"""

NEVER = (1 << 63) - 1
"""The `next_tick` of a machine that waits for messages alone."""


# --- what a driver tells a machine, beside messages


class Connected(msgspec.Struct, frozen=True):
    """Messages to the source arrive from now on; its first message follows. A link says what it is like."""

    name: str = ""  # of the other end
    kind: str = "tcp"  # its transport
    lossy: bool = False
    link: bytes = b""  # the UUID that this end gave it
    joins: bool = True  # False: the link is measured, and that is all
    fresh: bool = True  # the other end remembers nothing of an earlier connection
    capabilities: tuple[str, ...] = ()  # that both ends have


class Disconnected(msgspec.Struct, frozen=True):
    """The connection to the source has ended."""

    final: bool = False  # nobody connects it again: its port is about to be freed


class Suspected(msgspec.Struct, frozen=True):
    """The source was silent for longer than it should be; `on` False: it is heard again."""

    on: bool


class AuditWritten(msgspec.Struct, frozen=True):
    """The line of an `AuditIntent` is on disk; with an error it is not, and nothing may be done."""

    number: int
    error: str = ""


class Delivered(msgspec.Struct, frozen=True):
    """An event of a topic that the driver has subscribed to for a machine beside a client."""

    topic: str
    body: bytes


class Appended(msgspec.Struct, frozen=True):
    """So many items of `Append` are on disk that were not there before."""

    number: int


Input = Message | Connected | Disconnected
NodeInput = Input | Suspected | AuditWritten
"""What the machines of a node are given: its driver watches links and writes the audit log for them."""

In = TypeVar("In", contravariant=True)


class Machine(Protocol[In]):
    """A protocol without I/O. Times are monotonic nanoseconds; nothing but these calls changes it."""

    def receive(self, source: Address, message: In, now_ns: int) -> list[Effect]:
        """What follows from one message, or from something that happened to the source's connection."""

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due; called at `next_tick` or later, and harmless before."""

    def next_tick(self) -> int:
        """When it wants to be called again, NEVER if only a message can change something."""


# --- what a machine asks its driver to do


class Send(msgspec.Struct, frozen=True, gc=False):
    """Queue this message for that address; dropped if nothing is connected there.

    One message may go to many: it is the same object then, and is encoded once.
    """

    to: Address
    message: Message


class Publish(msgspec.Struct, frozen=True):
    """Publish an event of this node, or of this process, itself."""

    topic: str
    body: bytes
    content_type: str = "application/json"


RECONNECT = "again"
"""The code of a `Close` that asks the other side to connect again."""


class Close(msgspec.Struct, frozen=True):
    """End that connection and send the other side the reason."""

    to: Address
    reason: str
    code: str = "protocol"


class FreePort(msgspec.Struct, frozen=True):
    """Nothing refers to that closed port any more: its number may be used again."""

    port: int


class Delegate(msgspec.Struct, frozen=True):
    """A message of that address that only the driver can answer: about links beside its connection, or a listing."""

    to: Address
    message: Message


class Change(msgspec.Struct, frozen=True):
    """One item of durable state; no value removes it."""

    kind: str
    key: str
    value: bytes | None = None


class Persist(msgspec.Struct, frozen=True):
    """Everything after this in the same list, and in later lists of this machine, waits until this is durable."""

    changes: tuple[Change, ...]


class Append(msgspec.Struct, frozen=True):
    """Add to a store that only grows. Nothing waits for it; it is committed with what comes in the same moment."""

    items: Sequence[msgspec.Struct]


class AuditIntent(msgspec.Struct, frozen=True):
    """Write to the audit log what is about to be done; then the machine receives `AuditWritten` from this source."""

    source: Address
    identity: Identity
    action: str
    address: str
    details: dict[str, Any]
    number: int  # of this node, so that intent and outcome can be told to belong together


class Audit(msgspec.Struct, frozen=True):
    """Write to the audit log what was done or refused, then send the answer, if somebody waits for it."""

    identity: Identity
    action: str
    address: str
    outcome: str
    reason: str
    details: dict[str, Any]
    answer: Send | None
    number: int = 0  # of the intent, if there was one


class Log(msgspec.Struct, frozen=True):
    """Write a line to the log."""

    event: str
    level: str = "info"
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class Dial(msgspec.Struct, frozen=True):
    """Keep a link to that node, which no file lists; it is for cells alone. Again with other urls: use those."""

    name: str
    urls: tuple[str, ...]


class HangUp(msgspec.Struct, frozen=True):
    """Dial that node no more, and end the connection that was dialled; links that a file lists stay."""

    name: str


Effect = Send | Publish | Close | FreePort | Delegate | Persist | Append | AuditIntent | Audit | Log | Dial | HangUp
