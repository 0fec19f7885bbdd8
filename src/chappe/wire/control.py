"""Control messages: one msgspec struct a kind, tagged by `k`, unknown fields ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, Union, get_args

import msgspec
from msgspec import Meta

from chappe.errors import ProtocolError
from chappe.wire.base import Answer as Answer
from chappe.wire.base import Command as Command
from chappe.wire.base import DemandTerm as DemandTerm
from chappe.wire.base import DerivedValue as DerivedValue
from chappe.wire.base import Done as Done
from chappe.wire.base import Failed as Failed
from chappe.wire.base import Grant as Grant
from chappe.wire.base import Message as Message
from chappe.wire.base import Notice as Notice
from chappe.wire.base import Qos as Qos
from chappe.wire.base import Request as Request
from chappe.wire.base import Variable as Variable
from chappe.wire.base import kind_name as kind_name
from chappe.wire.cells import CELLS
from chappe.wire.constants import ALL_MODES
from chappe.wire.management import MANAGEMENT
from chappe.wire.mesh import MESH

MAJOR, MINOR = 2, 0  # MINOR stays 0: whatever is added later is a capability
Capability: TypeAlias = Literal["credit", "loss", "datagram", "stamp", "demand", "find", "cells"]
CAPABILITIES: tuple[str, ...] = get_args(Capability)

MAX_TERMS = 16  # of one variable on one link: who wants more than so many different ones wants everything
MAX_DEMANDED = 1_000  # variables in one Demand


# --- handshake -------------------------------------------------------------------------------------------------


class Hello(Notice):
    """First frame of the connecting side."""

    role: str  # "client" or "node"
    name: str  # of the client or node, for people and rules
    session: bytes  # 16 random bytes, kept over reconnections; a secret between the two sides
    epoch: int = 1  # raised when the same session restarts its sequence
    token: str | None = None  # signed token; None when the certificate (or --dev) says who it is
    capabilities: tuple[str, ...] = ()
    heartbeat_ns: int = 1_000_000_000
    conflate: bool = False  # client: newest value of a variable wins when this client is slow
    flooded: bool = False  # client: gets every flooded variable
    resume: bool = False  # not read: the session number says whether a port of it still exists
    links: tuple[str, ...] = ()  # node: urls that it can be reached by
    joins: bool = True  # node: the link is one of the mesh, too; False: it is for cells alone


class Welcome(Notice):
    """The acceptor agrees."""

    name: str  # of the node
    session: bytes  # of the node: changes when it restarts
    issuer: bytes = b""  # to a client: who publishes its events, computed by the node from what it authenticated
    address: str = ""  # of the node, its unit included
    capabilities: tuple[str, ...] = ()
    heartbeat_ns: int = 1_000_000_000
    max_payload: int = 1_048_576
    max_topics: int = 65_536
    credit: int = 0  # bytes of EVENT frames the client may send now; 0 = unlimited
    mode: int = 0
    resumed: bool = False  # the port of this session was still there: topic and issuer numbers stay valid
    links: tuple[str, ...] = ()  # to a node: urls that this one can be reached by
    wall_ns: int = 0  # to a client that is asked to stamp its events: the node's clock, ns since 1970
    restarted: bool = False  # an earlier session of this client was known: what it had is withdrawn (GS-153)


class Refused(Notice):
    """The connection ends; the reason is for a person."""

    reason: str
    code: str = "protocol"  # protocol, version, identity, limit, address, draining


class PublishRefused(Notice):
    """The client published to a topic that it may not publish to: its events there are dropped and counted.

    Sent once for each definition of the topic, before any ECHO of events to it.
    """

    topic: str  # of an integer topic: its number as text
    kind: str = "s"
    reason: str = ""  # names the rule that would allow it


class Goodbye(Notice):
    """The node drains: connect elsewhere or again later; everything accepted is being delivered."""

    reason: str = ""


# --- requests of clients ---------------------------------------------------------------------------------------


class Register(Request):
    """Publish a variable. The rate is a rational: `rate_num` events in `rate_den` nanoseconds; 0/1 for alerts."""

    publisher: str
    variable: str
    type: str = "float"  # int, float, bool, bytes
    rate_num: int = 0
    rate_den: int = 1
    priority: int = 3
    options: int = 0  # option blocks of each record
    slowest_ns: int = 0  # at least one event in so long; 0: by its rate
    minimum_ns: int = 0  # of an alert: least time between two of them (GS-033)
    patterns: tuple[DerivedValue, ...] = ()  # derived values, in the last option blocks


class Registered(Answer):
    variable_id: int


class Withdraw(Request):
    variable_id: int


class Watch(Request):
    """Subscribe to a variable at an interval (0 = every event), in the modes of the bit mask."""

    publisher: str
    variable: str
    interval_ns: int = 0
    priority: int = 3
    modes: int = ALL_MODES
    wait_ns: int = 0  # a variable that is not known yet: how long the node keeps the request before `Failed`
    type: str = ""  # what the subscriber takes it for; another one is refused (GS-022); empty: anything
    qos: tuple[Qos, ...] = ()  # one for all modes or 16, instead of interval_ns and priority (GS-040 to GS-042)


class Watching(Answer):
    variable_id: int
    type: str
    rate_num: int
    rate_den: int
    every: int  # one of how many published events this subscription gets
    options: int = 0
    slowest_ns: int = 0
    patterns: tuple[DerivedValue, ...] = ()
    grants: tuple[Grant | None, ...] = ()  # as `qos` was asked; empty where no broker manages the node


class Unwatch(Request):
    variable_id: int


class Find(Request):
    """Name the variables that match a pattern over publisher/variable, now and as they come: in `Found`."""

    pattern: str


class Unfind(Request):
    pattern: str


class Found(Notice):
    """Variables that a client looks for; one may be named again when its publisher comes back."""

    pattern: str
    variables: tuple[tuple[str, str], ...]  # publisher, variable


class Subscribe(Request):
    """Subscribe to a topic pattern; `kind` is `s`, `i` or `l` as in TOPIC frames (inboxes are opened instead)."""

    pattern: str
    kind: str = "s"
    group: str = ""
    backpressure: bool = False


class Unsubscribe(Request):
    pattern: str
    kind: str = "s"
    group: str = ""


class OpenInbox(Request):
    """Open an inbox at the node, the same one for the same key. Answer: InboxOpened."""

    key: bytes = b""  # 16 random bytes, a secret; empty: where archives confirm the durable events of this client


class InboxOpened(Answer):
    address: str


class CloseInbox(Request):
    address: str


class OwnNames(Request):
    """Names of cells that this client has at the node from now on, and others that it gives up (BF-04)."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class Check(Request):
    """Whether the asker has a right: Done or Failed, and nothing else happens."""

    action: str
    address: str  # or a pattern: for all of it


class Advertise(Request):
    """This client will publish to a topic, or to topics of a pattern; over when it goes (MR-133)."""

    pattern: str
    kind: str = "s"


class Unadvertise(Request):
    pattern: str
    kind: str = "s"


class Measure(Request):
    """Measure links now, or at an interval from now on. Answer: Listing, when all have answered or 5 s are over.

    every_ns: 0: not at all; -1: as the node likes. far: the other end is asked to do the same by `Pace` (MR-072).
    """

    of: str = ""  # name of the other end; empty: all links
    every_ns: int | None = None  # None: now, once
    far: bool = False


class OpenLink(Request):
    """Open another link to a peer that is connected (MR-047, MR-048). Answer: Listing with its row of `transports`.

    One of `kind` and `data` is given. After `lifetime_ns` (0: never) everything is as before.
    """

    to: str  # name of the peer
    kind: str = ""  # of transport
    data: str = ""  # control, status or bulk: the best link for it that both ends have
    lifetime_ns: int = 0


class List(Request):
    """What exists: variables, topics, publishers, types, links, clients, counters."""

    what: str
    limit: int = 1000
    start: int = 0  # rows to pass over: an answer holds at most 500
    variable: str = ""  # of a broker: only rows of this PUBLISHER/VARIABLE
    of: str = ""  # of a node: the link, the node whose route, or the topics whose publications are asked for
    to: str = ""  # node or unit at the end of a route; or the one factor that is asked for
    profile: str = ""  # of the costs of a route; empty: that of the node


class Listing(Answer):
    rows: tuple[dict[str, Any], ...]
    total: int  # in all; while more may follow, more than were sent so far


class OpenDatagram(Request):
    """Ask for a UDP data link beside this connection."""

    reports: bool = False  # the one who asks understands the three messages below
    multicast: bool = False  # it listens to the groups of the one who answers


class DatagramOpened(Answer):
    port: int
    link: int  # session number in each datagram, both directions
    key: bytes  # 16 bytes, for this link alone
    reports: bool = False  # so does the one who answers: both sides send reports
    group: str = ""  # of a multicast link: its url; said again when the key changes


class DatagramReport(Notice):
    """What has arrived of the other side's datagrams; also the answer to a fence."""

    link: int
    newest: int  # highest sequence number accepted, without the top bit
    accepted: int
    fence: int = 0


class DatagramFence(Notice):
    """Answer with a report: everything sent before this on the stream, in its class, has been taken in."""

    link: int
    fence: int


class DatagramClosed(Notice):
    """The sender sends no more datagrams on that link; when both have said so it is over."""

    link: int


# --- between nodes ---------------------------------------------------------------------------------------------


class Announce(Notice):
    """Variables that the sender will forward on this link."""

    variables: tuple[Variable, ...]
    origins: tuple[str, ...] = ()  # addresses of the nodes of the mesh where they are published; none: at the sender


class Retract(Notice):
    """Variables that the sender no longer forwards."""

    variable_ids: tuple[int, ...]


Demanded: TypeAlias = tuple[int, Annotated[tuple[DemandTerm, ...], Meta(max_length=MAX_TERMS)]]
"""A variable id and the terms on which it is wanted; none: it is not wanted any more."""


class Demand(Notice):
    """What the sender wants of variables that the receiver has announced to it, in place of what it wanted before."""

    wanted: Annotated[tuple[Demanded, ...], Meta(max_length=MAX_DEMANDED)]


# --- commands of brokers; the others are in `chappe.wire.management` -------------------------------------------


class PrepareMode(Command):
    """Build the temporary table (paths valid in both modes, old intervals) and use it."""

    mode: int


class SetMode(Command):
    mode: int


_ALL: tuple[type[Message], ...] = (
    Hello, Welcome, Refused, PublishRefused, Goodbye, Done, Failed, Register, Registered, Withdraw, Watch, Watching,
    Unwatch, Find, Unfind, Found, Subscribe, Unsubscribe, OpenInbox, InboxOpened, CloseInbox, OwnNames, Check,
    Advertise,
    Unadvertise, Measure, OpenLink, List, Listing, OpenDatagram, DatagramOpened, DatagramReport, DatagramFence,
    DatagramClosed, Announce, Retract, Demand, PrepareMode,
    SetMode, *MANAGEMENT, *MESH, *CELLS,
)  # fmt: skip
KINDS: dict[str, type[Message]] = {kind_name(kind): kind for kind in _ALL}


class _Kind(msgspec.Struct):
    k: str


_encoder = msgspec.msgpack.Encoder()
_kind = msgspec.msgpack.Decoder(_Kind)
_any: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Union[tuple(KINDS.values())])  # noqa: UP007
_decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in KINDS.items()}


def encode(message: Message) -> bytes:
    """The payload of a CONTROL frame."""
    return _encoder.encode(message)


def decode(payload: bytes | memoryview) -> Message:
    """The message in a CONTROL payload; ProtocolError names an unknown kind or the field that is wrong."""
    try:
        return _any.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # a second look finds out what is wrong
    try:
        kind = _kind.decode(payload).k
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"control message is not readable: {error}") from None
    decoder = _decoders.get(kind)
    if decoder is None:
        raise ProtocolError(f"unknown control message {kind[:64]!r}")
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"control message {kind}: {error}") from None
