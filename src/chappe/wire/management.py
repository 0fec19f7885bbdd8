"""Control messages of the management plane: routers and brokers, brokers and brokers, operators and brokers.

What each one does is in docs/reference/brokers.md. `Request`s are answered by `Done`, `Failed` or the answer named.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from chappe.wire.base import Answer, Command, Grant, Message, Notice, Qos, Request, Variable
from chappe.wire.constants import ALL_MODES

# --- both directions of a management link ----------------------------------------------------------------------


class Join(Notice):
    """First message of a router to each broker of its role, on every connection."""

    router: str
    issuer: bytes  # of the router's process: another one means that it has restarted empty
    epoch: int = 0  # highest epoch it has seen
    entities: tuple[Entity, ...] = ()  # clients attached now
    links: tuple[str, ...] = ()  # names of peers that are connected now


class Entity(msgspec.Struct, array_like=True, frozen=True):
    """A publisher, subscriber or condensation creator at an edge."""

    name: str
    issuer: bytes  # another one under the same name means that it has restarted


class Lead(Notice):
    """A broker says that it is the active one of its role; the highest epoch wins."""

    role: str
    epoch: int
    mode: int = 0
    finds: bool = False  # it knows `Search`


class Standby(Notice):
    """This broker is not the active one; it says `Lead` when it is."""

    role: str


class LinkState(Notice):
    """A router reports that a channel came up or failed."""

    peer: str
    up: bool


# --- names of variables: edge -> leaf, and both directions between brokers ------------------------------------------

MAX_NAMES = 100  # names or patterns in one message
MAX_PATTERN = 1024

Patterns: TypeAlias = Annotated[tuple[Annotated[str, Meta(max_length=MAX_PATTERN)], ...], Meta(max_length=MAX_NAMES)]


class Search(Notice):
    """The sender searches for variables by patterns over publisher/variable: all that there are, and each that comes.

    A pattern that begins again is answered again in full. Only to those who have said that they know it (`finds`).
    """

    begin: Patterns = ()
    end: Patterns = ()


class Names(Notice):
    """Variables that match a pattern which the receiver searches for; one may be named more than once."""

    pattern: str
    variables: Annotated[tuple[tuple[str, str], ...], Meta(max_length=MAX_NAMES)]  # publisher, variable


# --- edge -> broker: what end-entities ask for, relayed ---------------------------------------------------------


class Arrived(Notice):
    """A client is attached to this edge."""

    entity: Entity


class Left(Notice):
    """Its connection was lost; what it has stays until it comes back, restarts or is away for too long."""

    entity: Entity
    gone: bool = False  # it said goodbye: what it has is over


class Publish(Request):
    """A client registers a variable; `variable.variable_id` is 0. Answer: Issued."""

    entity: Entity
    variable: Variable


class Issued(Answer):
    variable_id: int
    place: str = ""  # of a function: CLOUD/ROUTER that runs it
    parts: tuple[str, ...] = ()  # and what other clouds compute for it: PUBLISHER/VARIABLE of each (GS-139)


class Unpublish(Request):
    entity: Entity
    variable_id: int


class SubscribeRequest(Request, tag="Want"):
    """A client subscribes to a variable. Answer: Granted."""

    entity: Entity
    publisher: str
    variable: str
    type: str = ""  # what the subscriber takes it for; empty: anything
    qos: tuple[Qos, ...] = (Qos(),)  # one for all modes, or 16
    modes: int = ALL_MODES
    wait_ns: int = 0  # a variable that nobody publishes yet: how long the request is kept


class Granted(Answer):
    variable: Variable
    grants: tuple[Grant | None, ...]  # as `qos`: one, or 16 with None outside of `modes`
    modes: int


class UnsubscribeRequest(Request, tag="Unwant"):
    entity: Entity
    variable_id: int


# --- broker -> edge and edge -> client: notices ------------------------------------------------------------------


class Withdrawn(Notice):
    """A subscription is over: its publisher withdrew the variable, or a broker removed it (GS-053)."""

    variable_id: int
    reason: str
    entities: tuple[str, ...] = ()  # for the edge; empty: all its watchers


class Regranted(Notice):
    """To the edge of a subscriber: what it has been granted is this from now on, its publisher has another rate."""

    entity: str
    variable: Variable
    grants: tuple[Grant | None, ...]  # as in `Granted`
    modes: int


class ModeState(Notice):
    """Edge to client: `next` is coming (GS-115), or it is in force when it equals `mode`."""

    mode: int
    next: int


# --- broker -> router: table commands, fenced by epoch -----------------------------------------------------------


class Path(msgspec.Struct, array_like=True):
    """One hop of one subscription path in one router. Of a publisher's or subscriber's edge one link is empty."""

    variable: Variable
    path: int  # issued by the leaf broker, distinct for this variable in this router
    source: str  # name of the link it comes from; empty: published here
    target: str  # name of the link it leaves by; empty: it ends here
    intervals_ns: tuple[int, ...]  # one for all modes, or 16
    priorities: tuple[int, ...]
    modes: int


class Channel(msgspec.Struct, array_like=True):
    """A link that a router is to have (GS-012)."""

    peer: str
    url: str = ""  # empty: the other side dials
    level: int = 1
    data: str = "stream"  # or `udp`


class Configure(Command):
    """All channels of this router; it drops those that are not in the list."""

    channels: tuple[Channel, ...]


class Reset(Command):
    """Forget every path, flooding and function that brokers have set; begins a rebuild (GS-152)."""


class Setup(Command):
    """Add or replace paths, all or none."""

    paths: tuple[Path, ...]


class Teardown(Command):
    """Remove paths (variable, path); one that is not there is no error."""

    paths: tuple[tuple[int, int], ...]


class Flood(Command):
    """Flooding of a variable by mode: level 0 is off; replaces what was set before (GS-100)."""

    variable: Variable
    levels: tuple[int, ...]  # 16


class InformMode(Command):
    """Phase 1: an edge notifies its subscribers that `mode` is coming."""

    mode: int


class CommitMode(Command):
    """Phase 5: an edge notifies its subscribers that `mode` is in force."""

    mode: int


class Place(Command):
    """Run a condensation function here and publish its result as `output` (GS-134)."""

    output: Variable
    function: Function
    inputs: tuple[Variable, ...]


class Displace(Command):
    variable_id: int


# --- condensation --------------------------------------------------------------------------------------------------


class Input(msgspec.Struct, array_like=True, frozen=True):
    """One input of a function."""

    publisher: str
    variable: str
    interval_ns: int = 0


class Function(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a condensation function is; checked before it is placed."""

    publisher: str
    variable: str
    type: str = "float"
    inputs: tuple[Input, ...]
    calculator: str  # `builtin:sum`, `expression:…` or `entry:NAME` of a registered Python entry point
    trigger: str = "event"  # time, event, alert, or `entry:NAME`
    interval_ns: int = 0  # time trigger; and the publishing interval of the output
    count: int = 0  # event and alert: of how many inputs; 0: all
    low: float | None = None  # input filter: drops values below
    high: float | None = None
    out_low: float | None = None  # output filter
    out_high: float | None = None
    priority: int = 3
    options: int = 0  # option blocks of the output; 0: none, or of a user type one more than its widest input
    place: str = ""  # the router to run it at; empty: the broker chooses


class Compound(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a function over inputs of several clouds is run (GS-139): whole, or as parts in some and a combiner."""

    described: tuple[Variable, ...]  # the inputs of the function, as their clouds describe them
    parts: tuple[Function, ...] = ()
    combiner: Function | None = None  # over inputs and results of parts; None: the function itself
    inputs: tuple[Variable, ...] = ()  # of the combiner; what a part publishes has no number yet


class Condense(Request):
    """A creator asks for a function. Answer: Issued. Relayed by the edge with the entity filled in.

    A leaf that has not all inputs passes it to its parent, and ancestors to the leaf that has, or to the one with most.
    """

    function: Function
    entity: Entity | None = None
    home: str = ""  # among brokers: the creator's cloud
    cloud: str = ""  # among brokers: the leaf that places it, once an ancestor knows it
    compound: Compound | None = None  # from an ancestor to that leaf, where other clouds have inputs


class Uncondense(Request):
    """Only its creator may remove a function (GS-136); passed on as `Condense` is."""

    publisher: str
    variable: str
    entity: Entity | None = None
    cloud: str = ""


# --- brokers among themselves ---------------------------------------------------------------------------------------


class Child(Request):
    """First message of a child broker to its parent on every connection; the answer is Lead."""

    role: str
    epoch: int
    mode: int
    issuer: bytes
    height: int = 1  # of the child; a leaf has 1
    claims: tuple[tuple[str, str], ...] | None = None  # all (publisher, cloud) it has claimed; None: it does not say
    finds: bool = False  # it knows `Search`


class RouterFact(msgspec.Struct, array_like=True):
    """A router as its ancestors see it."""

    name: str
    cloud: str
    edge: bool
    events_per_s: float
    up: bool = True
    load: tuple[float, ...] = ()  # by mode, as last reported; advice, the leaf decides


class ChannelFact(msgspec.Struct, array_like=True):
    """A channel, both directions, as its ancestors see it."""

    a: str
    b: str
    bytes_per_s: float
    latency_ns: int
    security: int = 0
    up: bool = True


class Map(Notice):
    """The routers and inner channels of a child's subtree; sent on joining and when they change.

    A channel that leaves the subtree is listed for its `up`, with the router inside as `a`.
    """

    routers: tuple[RouterFact, ...]
    channels: tuple[ChannelFact, ...]
    owners: tuple[tuple[str, str, str], ...] = ()  # a, b and the inner broker to ask for the channel between them


class Claim(Request):
    """A cloud asks for the name of a publisher; a root grants it to one cloud at a time. Answer: Done."""

    publisher: str
    cloud: str


class Unclaim(Notice):
    publisher: str
    cloud: str


class Seek(Request):
    """A leaf asks, through its ancestors, for a path from another cloud; answer: Granted. `subscription` is unique."""

    subscription: str
    cloud: str  # of the subscriber
    edge: str
    request: SubscribeRequest = msgspec.field(name="want")
    claimed: str = ""  # the cloud of the publisher, once an ancestor knows it


class Describe(Request):
    """Parent to leaf: a publication of yours. Answer: Described."""

    publisher: str
    variable: str
    cloud: str = ""  # the leaf that is asked; brokers in between pass it on (so in all that follow)


class Described(Answer):
    variable: Variable
    edge: str
    made_of: tuple[tuple[str, str], ...] = ()  # of a function's output: all that it is computed from in that cloud


class Segment(msgspec.Struct, array_like=True):
    """A piece of one of the redundant paths inside one cloud: routers in the order of the events."""

    routers: tuple[str, ...]
    source: str  # the router before, in another cloud; empty: the publisher's edge is first
    target: str  # the router after, in another cloud; empty: the subscriber's edge is last
    redundant: int  # which of the paths
    modes: int


class Ask(Request):
    """Reserve segments for a subscription; nothing is set up yet (GS-088).

    Of an inner broker (`cloud` is its name): channels that it manages, each a segment of its two routers.
    """

    subscription: str
    variable: Variable
    grants: tuple[Grant | None, ...]  # 16
    segments: tuple[Segment, ...]
    cloud: str = ""


class Commit(Request):
    """Set up what was reserved; answered when every router has it."""

    subscription: str
    cloud: str = ""


class Release(Request):
    """Give back what was reserved or set up; unknown is no error."""

    subscription: str
    reason: str = ""
    cloud: str = ""


class Outcome(Request):
    """A leaf asks its parent what became of a reservation: Commit or Release follows."""

    subscription: str
    cloud: str = ""  # the leaf that asks; brokers in between fill it in


class Unseek(Request):
    """The subscription is over: the ancestor that allocated it releases every segment."""

    subscription: str
    reason: str = ""
    cloud: str = ""  # the leaf that ends it, which may be any along its path; brokers in between fill it in


class Gone(Notice):
    """Parent to the subscriber's leaf: an inter-cloud subscription has ended (publisher withdrew it)."""

    subscription: str
    reason: str
    cloud: str = ""


# --- operators, and parents to children -------------------------------------------------------------------------------


class ChangeMode(Request):
    """Change the mode of this broker and everything below it; answered when the change is over."""

    mode: int
    rank: int = 0  # height of the broker that decided; a higher one wins


class SetFlood(Request):
    """Flood a variable in everything below the broker that is asked, or to `level`."""

    publisher: str
    variable: str
    modes: int = ALL_MODES
    level: int = 0  # 0: the height of the broker that is asked
    rank: int = 0
    described: Variable | None = None  # filled in by the parent


class ClearFlood(Request):
    publisher: str
    variable: str
    modes: int = ALL_MODES
    rank: int = 0
    variable_id: int = 0


class AddRouter(Request):
    name: str
    edge: bool = True
    events_per_s: float = 0
    x: float = 100
    y: float = 100


class RemoveRouter(Request):
    name: str


class AddChannel(Request):
    a: str
    b: str
    url: str = ""  # where `b` listens
    bytes_per_s: float = 0
    latency_ns: int = 0
    security: int = 0
    data: str = "stream"
    level: int = 0  # between clouds: the height of the broker that owns it, which commands the leaves of both ends
    cloud: str = ""


class RemoveChannel(Request):
    """Refused while a path uses it (GS-089)."""

    a: str
    b: str
    cloud: str = ""


class AddChild(Request):
    role: str


class RemoveChild(Request):
    role: str


MANAGEMENT: tuple[type[Message], ...] = (
    Join, Lead, Standby, LinkState, Arrived, Left, Publish, Issued, Unpublish, SubscribeRequest, Granted,
    UnsubscribeRequest, Withdrawn, ModeState, Configure, Reset, Setup, Teardown, Flood, InformMode, CommitMode, Place,
    Displace, Condense, Uncondense,
    Child, Map, Claim, Unclaim, Seek, Describe, Described, Ask, Commit, Release, Outcome, Unseek, Gone, ChangeMode,
    SetFlood, ClearFlood, AddRouter, RemoveRouter, AddChannel, RemoveChannel, AddChild, RemoveChild, Regranted,
    Search, Names,
)  # fmt: skip
