"""What a leaf broker keeps durable: one struct a kind of item, in MessagePack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from chappe.machine import Change
from chappe.wire.base import Grant, Qos, Variable
from chappe.wire.constants import ALL_MODES
from chappe.wire.management import Function

FLOOD = "flood"
SETTING, GRANTED, ENDING = "setting", "granted", "ending"
RESERVED, COMMITTED, INSTALLED = "promised", "committed", "laid"  # the words of stores of all releases


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Anything in the store; fields that a newer version adds have defaults.

    The names in the store are those of the first release: a field that has a better name now keeps the stored one.
    """


class RouterItem(Item):
    """A router beyond the deployment file, one removed from it, or the process of it that has all it should have."""

    issuer: bytes = b""
    added: bool = False
    removed: bool = False
    edge: bool = True
    events_per_s: float = 0.0
    x: float = 100.0
    y: float = 100.0


class ChannelItem(Item):
    """A channel beyond the deployment file, or one removed from it."""

    a: str
    b: str
    removed: bool = False
    url: str = ""
    bytes_per_s: float = 0.0
    latency_ns: int = 0
    security: int = 0
    data: str = "stream"
    level: int = 1


class EntityItem(Item):
    """An end-entity that has publications or subscriptions."""

    issuer: bytes
    edge: str


class Publication(Item):
    """A variable that is published in this cloud."""

    variable: Variable
    edge: str
    entity: str = ""  # empty: a condensation function publishes it
    announced: bool = msgspec.field(name="told", default=True)  # every router on its paths knows it as it is


class PathSegment(msgspec.Struct, array_like=True, frozen=True):
    """One of the paths of a subscription, or the segment of it that lies in this cloud."""

    path: int  # its number in every router of it
    routers: tuple[str, ...]  # in the order of the events
    redundant: int
    modes: int
    before: str = ""  # routers of other clouds
    after: str = ""


class PreviousTerms(msgspec.Struct, array_like=True, frozen=True):
    """What a subscription had before it was changed, until the change is complete."""

    type: str
    qos: tuple[Qos, ...]
    modes: int
    grants: tuple[Grant | None, ...]
    segments: tuple[PathSegment, ...]


class Subscription(Item):
    """A subscription of an end-entity or of a condensation function."""

    key: str
    entity: str  # empty: a function's
    edge: str
    publisher: str
    name: str  # of the variable
    type: str = ""
    qos: tuple[Qos, ...] = ()
    modes: int = ALL_MODES
    variable: Variable | None = None  # None: of another cloud, and not found yet
    grants: tuple[Grant | None, ...] = ()
    segments: tuple[PathSegment, ...] = msgspec.field(name="legs", default=())
    state: str = SETTING
    remote: bool = msgspec.field(name="sought", default=False)  # its paths are allocated by an ancestor
    held: PreviousTerms | None = None
    replaces: str = ""  # key of the subscription that it replaces
    function: int = 0  # variable id of the function's output

    @property
    def variable_id(self) -> int:
        return self.variable.variable_id if self.variable is not None else 0


class Reservation(Item):
    """What an ancestor asked for and this leaf has reserved: segments of an inter-cloud subscription."""

    key: str
    variable: Variable
    grants: tuple[Grant | None, ...]
    segments: tuple[PathSegment, ...] = msgspec.field(name="legs")
    state: str = RESERVED
    ending: str = ""  # the reason why its end was asked for


class PendingTeardown(Item):
    """A path that is to be removed from these routers, and may be there until they have confirmed."""

    variable_id: int
    path: int
    routers: tuple[str, ...]


class PendingRemoval(Item):
    """A flooding or function that is over, and routers that may not know it."""

    variable: Variable
    routers: tuple[str, ...]


class FunctionItem(Item):
    """A condensation function; it belongs to its creator's name."""

    function: Function
    creator: str
    router: str
    output: Variable
    inputs: tuple[Variable, ...]  # as they were last published
    placed: bool = False
    inputs_confirmed: bool = msgspec.field(name="told", default=True)  # its router knows these inputs
    home: str = ""  # the cloud where its creator asked for it, if that is another one
    parts: tuple[Function, ...] = ()  # that run in other clouds for it, and end with it (GS-139)
    combiner: Function | None = None  # what runs here in its place, over inputs and results of parts
    remote: tuple[tuple[str, str], ...] = ()  # inputs that other clouds publish

    @property
    def runs(self) -> Function:
        """What its router gets."""
        return self.combiner or self.function


class EndedPart(Item):
    """A part in another cloud of a function that is over, until its broker has confirmed that it is."""

    creator: str
    publisher: str
    variable: str


class ModeItem(Item):
    mode: int
    rank: int


class CounterItem(Item):
    """Numbers below have been used, or may have been."""

    next: int


class NoticeItem(Item):
    """A `Withdrawn` that an edge has not confirmed."""

    edge: str
    variable_id: int
    reason: str
    entities: tuple[str, ...]


KINDS: dict[str, type[Item]] = {
    "router": RouterItem,
    "channel": ChannelItem,
    "entity": EntityItem,
    "publication": Publication,
    "subscription": Subscription,
    "reservation": Reservation,
    "leftover": PendingTeardown,
    "unflood": PendingRemoval,
    "displace": PendingRemoval,
    "function": FunctionItem,
    "ended_part": EndedPart,
    "mode": ModeItem,
    "counter": CounterItem,
    "notice": NoticeItem,
}
_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(item) for kind, item in KINDS.items()}


def encode(item: Item) -> bytes:
    """The value of a change."""
    return _encoder.encode(item)


def read(items: Iterable[Change]) -> dict[str, dict[str, Any]]:
    """The items by kind and key, floodings as they were dumped; kinds that a leaf does not keep are left out."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in (*KINDS, FLOOD)}
    for change in items:
        if change.kind == FLOOD and change.value is not None:
            found[FLOOD][change.key] = change.value
        decoder = _decoders.get(change.kind)
        if decoder is not None and change.value is not None:
            found[change.kind][change.key] = decoder.decode(change.value)
    return found
