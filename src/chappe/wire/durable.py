"""Messages between publishers of durable events and archives: which are stored, and which are to be stored (again).

A durable event is marked on the wire and goes to its topic. An archive that has synced it confirms it at the
address of its issuer at its publisher's node (`wire.addresses.confirm_address`), to which only those may send whom a
rule allows to `confirm`. Events that nobody has confirmed are sent again, many together in one event to
`STORE_TOPIC` that says what each was. They are stored as events of the issuer of that event, which its node computed
from what it authenticated (decision 0030): no client can store in the name of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from chappe.errors import ChappeError

STORE_TOPIC = "archive/store"

Sequence32 = Annotated[int, Meta(ge=0, lt=1 << 32)]


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """An archive has synced these events of an issuer: from the first to the last of each range. JSON."""

    archive: str
    epoch: int
    ranges: Annotated[tuple[tuple[Sequence32, Sequence32], ...], Meta(max_length=65_536)]


class ResentEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event that is sent again."""

    sequence: Sequence32
    topic: Annotated[str, Meta(min_length=1, max_length=1024)]
    kind: Annotated[str, Meta(pattern="^[sil]$")]
    created: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    body: bytes


class StoreRequest(msgspec.Struct, frozen=True, array_like=True):
    """Events of one issuer that are sent again. MessagePack."""

    epoch: Sequence32
    events: Annotated[tuple[ResentEvent, ...], Meta(max_length=65_536)]


def encode_confirmation(message: Confirmation) -> bytes:
    return msgspec.json.encode(message)


def decode_confirmation(body: bytes) -> Confirmation:
    """What an archive has confirmed; ChappeError says what is wrong with the body."""
    try:
        return msgspec.json.decode(body, type=Confirmation)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChappeError(f"is no message of an archive: {error}") from None


def encode_store_request(epoch: int, events: Iterable[ResentEvent]) -> bytes:
    return msgspec.msgpack.encode(StoreRequest(epoch, tuple(events)))


def decode_store_request(body: bytes) -> StoreRequest:
    """The events of an event to `STORE_TOPIC`; ChappeError says what is wrong with it."""
    try:
        return msgspec.msgpack.decode(body, type=StoreRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChappeError(f"an event to {STORE_TOPIC} does not say what is to be stored: {error}") from None
