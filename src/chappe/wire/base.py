"""What every control message is made of, and the answers any request may get."""

from __future__ import annotations

import msgspec

from chappe.wire.constants import ALL_MODES


class Notice(msgspec.Struct, tag_field="k", tag=True, omit_defaults=True):
    """Expects no answer."""


class Request(msgspec.Struct, tag_field="k", tag=True, omit_defaults=True):
    """Carries an id that its answer repeats."""

    id: int


class Command(msgspec.Struct, tag_field="k", tag=True, omit_defaults=True):
    """A request of a broker to a router, answered by Done or Failed.

    Idempotent by (epoch, command); a router refuses an epoch below the highest it has seen.
    """

    id: int
    epoch: int
    command: int


class Answer(msgspec.Struct, tag_field="k", tag=True, omit_defaults=True):
    """Repeats the id of the request that it answers."""

    id: int


Message = Notice | Request | Command | Answer
"""Anything in a CONTROL frame."""


def kind_name(kind: type[Message]) -> str:
    """What `k` says of such a message on the wire; classes may have been renamed since."""
    return str(kind.__struct_config__.tag)


class Done(Answer):
    """The request was carried out."""

    note: str = ""  # what the asker should know all the same: who was left behind in a change of mode


class Failed(Answer):
    """The request was not carried out and nothing changed."""

    reason: str
    code: str = "failed"  # denied, limit, exists, unknown, invalid, unsupported, stale, type, capacity, unavailable
    best: tuple[Grant | None, ...] = ()  # code `capacity`: the best that could be granted, by mode as it was asked
    obstacle: str = ""  # code `capacity`: the resource in the way, `router/NAME` or `channel/A/B`


class Variable(msgspec.Struct, array_like=True):
    """What every node along its paths must know of a variable."""

    variable_id: int
    publisher: str
    variable: str
    type: str  # int, float, bool, bytes, or `struct:NAME:HASH` for a user type
    rate_num: int
    rate_den: int
    priority: int
    options: int
    slowest_ns: int = 0  # the publisher promises at least one event in so long; 0: its rate
    patterns: tuple[DerivedValue, ...] = ()
    minimum_ns: int = 0  # of an alert: least time between two of them; it is reserved at that rate (0: one a second)


class DerivedValue(msgspec.Struct, array_like=True, frozen=True):
    """A derived value that travels in an option block of each record."""

    number: int
    name: str
    type: str = "float"


class Qos(msgspec.Struct, array_like=True, frozen=True):
    """What a subscriber asks for in one mode, and the worst it accepts (0: nothing worse than asked)."""

    interval_ns: int = 0  # one event in so long; 0: every event
    latency_ns: int = 0  # from publisher to subscriber; 0: no bound
    redundancy: int = 1  # vertex-disjoint paths
    priority: int = 3  # 0 alert .. 6 background
    security: int = 0  # of every channel along its paths: 0 any, 1 authentic, 2 encrypted
    worst_interval_ns: int = 0
    worst_latency_ns: int = 0
    worst_redundancy: int = 0
    worst_priority: int = 0


class Grant(msgspec.Struct, array_like=True, frozen=True):
    """What a subscription gets in one mode."""

    interval_ns: int  # a multiple of the publishing interval (GS-061)
    every: int  # one of so many published events
    latency_ns: int  # of the slowest of its paths, by the model of admission; 0: nobody promises one
    redundancy: int
    priority: int
    bound_ns: int = 0  # what admission keeps the latency below from then on; 0: no bound


class DemandTerm(msgspec.Struct, array_like=True, frozen=True, order=True):
    """An interval at which a variable is wanted behind a link (0: every event), in the modes of the bit mask."""

    interval_ns: int = 0
    priority: int = 3
    modes: int = ALL_MODES
