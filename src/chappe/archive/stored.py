"""What publishers and archives tell each other about durable events: stored ones, and ones to store (again).

A durable event is marked on the wire and goes to its topic. An archive that has synced it confirms it at the
address of its issuer at its publisher's node (`wire.addresses.confirm_address`), to which only those may send whom a
rule allows to `confirm`. Events of which nothing is heard are sent again, many together in one event to
`STORE` that says what each was. They are stored as events of the issuer of that event, which its node computed from
what it authenticated (decision 0030): no client can store in the name of another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from chappe.errors import ChappeError, ProtocolError
from chappe.wire.addresses import Address, check_address, confirm_address

STORE = "archive/store"
OWN = "archive/"  # topics of archives, which no archive keeps
ISSUERS = 4096  # publishers of durable events that are remembered
REMEMBERED = 65_536  # durable events of each

Sequence32 = Annotated[int, Meta(ge=0, lt=1 << 32)]


class Identity(NamedTuple):
    """The same however often and by whichever way an event arrives."""

    issuer: bytes
    epoch: int
    sequence: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An archive has synced these events of an issuer: from the first to the last of each range."""

    archive: str
    epoch: int
    ranges: Annotated[tuple[tuple[Sequence32, Sequence32], ...], Meta(max_length=65_536)]


class Again(msgspec.Struct, frozen=True, array_like=True):
    """An event that is sent again."""

    sequence: Sequence32
    topic: Annotated[str, Meta(min_length=1, max_length=1024)]
    kind: Annotated[str, Meta(pattern="^[sil]$")]
    created: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    body: bytes


class Store(msgspec.Struct, frozen=True, array_like=True):
    """Events of one issuer that are sent again; MessagePack."""

    epoch: Sequence32
    events: Annotated[tuple[Again, ...], Meta(max_length=65_536)]


def encode(message: Stored) -> bytes:
    return msgspec.json.encode(message)


def decode(body: bytes) -> Stored:
    """What an archive told; ChappeError says what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=Stored)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChappeError(f"is no message of an archive: {error}") from None


def encode_again(epoch: int, events: Iterable[Again]) -> bytes:
    return msgspec.msgpack.encode(Store(epoch, tuple(events)))


def decode_again(body: bytes) -> Store:
    """The events of an event to `STORE`; ChappeError says what is wrong with it."""
    try:
        return msgspec.msgpack.decode(body, type=Store)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChappeError(f"an event to {STORE} does not say what is to be stored: {error}") from None


def ranges(sequences: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as ranges of those that follow each other."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(sequences)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


class Known:
    """Which events are stored or on their way, so that one that is sent again is stored once.

    It remembers the newest of each issuer, and the issuers that were heard last.
    """

    def __init__(self, issuers: int = ISSUERS, remembered: int = REMEMBERED) -> None:
        self._issuers = issuers
        self._remembered = remembered
        self._stored: OrderedDict[bytes, OrderedDict[tuple[int, int], bool]] = OrderedDict()

    def seen(self, identity: Identity) -> bool | None:
        """True: it is stored; False: it is on its way; None: it is new, and on its way from now on."""
        found = self._stored.get(identity.issuer)
        if found is None:
            found = self._stored[identity.issuer] = OrderedDict()
            if len(self._stored) > self._issuers:
                self._stored.popitem(last=False)
        else:
            self._stored.move_to_end(identity.issuer)
        known = found.get(identity[1:])
        if known is None:
            found[identity[1:]] = False
            if len(found) > self._remembered:
                found.popitem(last=False)
        return known

    def stored(self, issuer: bytes, epoch: int, sequence: int) -> bool:
        """Whether it is known to be stored; unlike `seen` this remembers nothing."""
        found = self._stored.get(issuer)
        return found is not None and found.get((epoch, sequence), False)

    def settle(self, identities: Iterable[Identity], stored: bool) -> None:
        """They are stored, or were not taken and may come again."""
        for identity in identities:
            found = self._stored.get(identity.issuer)
            if found is None or identity[1:] not in found:
                continue
            if stored:
                found[identity[1:]] = True
            else:
                del found[identity[1:]]


class Durable(NamedTuple):
    """A durable event, and the address of its publisher's node."""

    identity: Identity
    origin: str


def confirmations(archive: str, events: Iterable[Durable]) -> list[tuple[Address, bytes]]:
    """Where publishers are told, and what; one whose node is no address is told nothing."""
    together: dict[tuple[str, bytes, int], list[int]] = {}
    for (issuer, epoch, sequence), origin in events:
        together.setdefault((origin, issuer, epoch), []).append(sequence)
    found = []
    for (origin, issuer, epoch), sequences in together.items():
        address = confirm_address(origin, issuer)
        try:
            check_address(address)
        except ProtocolError:
            continue
        found.append((Address(address), encode(Stored(archive=archive, epoch=epoch, ranges=ranges(sequences)))))
    return found
