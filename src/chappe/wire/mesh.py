"""Control messages of the measuring mesh, neighbour to neighbour; what they mean is in docs/reference/mesh.md."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from chappe.errors import ProtocolError
from chappe.wire.base import Message, Notice
from chappe.wire.patterns import Pattern

MAX_PATTERNS = 8192  # of one statement: more are refused before they are read
MAX_SOUGHT = 100  # patterns of variables in one message: a node works on them for about a millisecond


class MeshJoin(Notice):
    """First message of a mesh peer on a link. The link has the id that the end with the smaller name proposed."""

    name: str
    unit: str  # "east/plant-3/hall-b", outermost first; empty: one cluster for all
    link: bytes  # 16 random bytes (MR-077)
    kind: str = ""  # of the transport
    profiles: tuple[str, ...] = ()  # that this node has formulas for


class LinkFact(msgspec.Struct, array_like=True, frozen=True):
    """One link as one of its ends sees it; what is not measured is left out."""

    id: bytes
    far: str  # what the other end is at the level of the link: a node's name at level 0, else a unit's path
    level: int  # at which its ends are different vertices
    kind: str = ""
    suspect: bool = False
    latency_ms: float | None = None
    jitter: float | None = None
    loss: float | None = None
    bandwidth: float | None = None  # bytes a second


Withdrawn = tuple[str, int]
"""A node whose statements about a unit do not count up to that sequence; later ones do."""


class Advert(msgspec.Struct, tag_field="k", omit_defaults=True, kw_only=True):
    """What a node states about itself, or the controller of a unit about that unit: the body of a Statement."""

    origin: str
    level: int
    scope: str
    originator: str = msgspec.field(name="speaker")
    sequence: int
    time_ns: int = 0  # when it was made, by the mesh clock of its originator (ns since 1970)
    capabilities: tuple[str, ...] = ()  # of the node; of a unit: those that all its nodes have


class LinkAdvert(Advert, tag="l"):
    """At level 0 a node advertises its links, at level k the controller of a unit those that leave it."""

    links: tuple[LinkFact, ...] = ()
    members: int = 1  # nodes in the unit, as of the last refresh
    withdrawn: tuple[Withdrawn, ...] = msgspec.field(
        default=(), name="gone"
    )  # nodes that originated for the unit before and have failed


class InterestAdvert(Advert, tag="i"):
    """The interest of a node or unit, and what is advertised to be published there."""

    patterns: Annotated[tuple[Pattern, ...], Meta(max_length=MAX_PATTERNS)] = ()
    publications: Annotated[tuple[Pattern, ...], Meta(max_length=MAX_PATTERNS)] = ()
    variables: Annotated[tuple[str, ...], Meta(max_length=MAX_PATTERNS)] = ()  # patterns over publisher/variable


class Statement(Notice):
    """An advertisement as its originator made it: bytes that are signed, kept and forwarded unchanged.

    Receivers read the fields they know and ignore others, so that a later version may add some.
    """

    body: bytes  # an Advert, encoded
    signature: bytes = b""  # with the certificate it is made by; empty in a mesh without certificates
    age_ms: int = 0  # since it was made; whoever sends it on adds the time it was kept. It is not signed.


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[LinkAdvert | InterestAdvert] = msgspec.msgpack.Decoder(LinkAdvert | InterestAdvert)


def encode_advert(advert: LinkAdvert | InterestAdvert) -> bytes:
    """The body of a statement."""
    return _encoder.encode(advert)


def decode_advert(body: bytes) -> LinkAdvert | InterestAdvert:
    """What a statement says; ProtocolError if its body cannot be read."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the body of a statement cannot be read: {error}") from None


Key = tuple[str, int, str, str]
"""By which an advertisement replaces an older one: `l` (links) or `i` (interest), level, origin, originator."""


class Digest(Notice):
    """What the sender has for this neighbour, all or what is new; a StatementRequest asks for what is missing."""

    adverts: tuple[tuple[Key, int], ...]  # with the sequence


class StatementRequest(Notice, tag="Wanted"):
    """Send these, as you have them now."""

    keys: tuple[Key, ...]


Place = tuple[int, str]
"""A vertex of the map: its level and its name."""

Via = Annotated[tuple[Place, ...], Meta(min_length=1, max_length=32)]
"""Vertices that are still to be crossed; the last is where variables are published."""

Sought = tuple[Via, str]
"""A pattern of variables over publisher/variable, and the way to where they are published."""


class Discover(Notice):
    """The sender looks for these variables, or does so no more: the receiver announces what it is on the way to."""

    begin: Annotated[tuple[Sought, ...], Meta(max_length=MAX_SOUGHT)] = ()
    end: Annotated[tuple[Sought, ...], Meta(max_length=MAX_SOUGHT)] = ()


class Pace(Notice):
    """Of either end of a link to the other: probe no more often than this, as long as the link is up (MR-072)."""

    interval_ns: int  # 0: not at all; -1: as you like


MESH: tuple[type[Message], ...] = (MeshJoin, Statement, Digest, StatementRequest, Discover, Pace)
