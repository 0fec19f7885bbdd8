"""What the control protocol of a node asks its shell to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from chappe.security.identity import Identity
from chappe.wire.control import DatagramOpened, Message


class Send(msgspec.Struct, frozen=True):
    """Queue this message on that port; a struct, because each answer makes one."""

    port: int
    message: Message


AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Close:
    """End that connection and tell the other side why; with the code AGAIN it is asked to connect again."""

    port: int
    reason: str
    code: str = "protocol"


@dataclass(frozen=True, slots=True)
class Record:
    """Write this down in the audit log, then send the answer, if somebody is there to hear it."""

    identity: Identity
    action: str
    address: str
    outcome: str
    reason: str
    details: dict[str, Any]
    answer: Send | None
    number: int = 0  # of the intent, if there was one


@dataclass(frozen=True, slots=True)
class Intend:
    """Write down in the audit log what is about to be done, and then do it; if that fails send the refusal instead."""

    identity: Identity
    action: str
    address: str
    details: dict[str, Any]
    number: int
    proceed: Proceed
    refuse: Refuse


@dataclass(frozen=True, slots=True)
class OpenData:
    """Open a UDP data link beside that port and answer the request with this id."""

    port: int
    request: int
    reports: bool = False
    multicast: bool = False


@dataclass(frozen=True, slots=True)
class DataSaid:
    """The peer at that port says something about the UDP data link beside it."""

    port: int
    message: Message


@dataclass(frozen=True, slots=True)
class DataOpened:
    """The peer at that port agreed to a UDP data link."""

    port: int
    answer: DatagramOpened


@dataclass(frozen=True, slots=True)
class Work:
    """Do this in slices beside forwarding, behind what that identity asked for before; its outputs are performed."""

    port: int
    identity: str
    job: Iterator[list[Output]]
    request: int  # id of the request, for a refusal if too many wait


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing refers to that closed port any more: its number may be used again."""

    port: int


Proceed = Callable[[int], "list[Output]"]
"""Does what was intended, at a time, and gives what follows."""
Refuse = Callable[[str], Send]
"""The answer if a reason forbids it; nothing was done."""
Output = Send | Close | Record | Intend | OpenData | DataOpened | DataSaid | Work | Free
