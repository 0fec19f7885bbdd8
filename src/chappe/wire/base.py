"""What every control message is made of, and the answers any request may get."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, tag_field="k", tag=lambda name: name, omit_defaults=True, kw_only=True):
    """Anything in a CONTROL frame."""


class Request(Message):
    """Carries an id that the answer repeats."""

    id: int


class Done(Request):
    """The request was carried out."""

    note: str = ""  # what the asker should know all the same: who was left behind in a change of mode


class Failed(Request):
    """The request was not carried out and nothing changed."""

    reason: str
    code: str = "failed"  # denied, limit, exists, unknown, invalid, unsupported, stale, type, capacity, unavailable
    best: tuple[Grant | None, ...] = ()  # code `capacity`: the best that could be granted, by mode as it was asked
    obstacle: str = ""  # code `capacity`: the resource in the way, `router/NAME` or `channel/A/B`


class Command(Request):
    """Idempotent by (epoch, command); a router refuses an epoch below the highest it has seen."""

    epoch: int
    command: int


class Variable(msgspec.Struct, array_like=True):
    """What everybody on its way must know of a variable."""

    variable_id: int
    publisher: str
    variable: str
    type: str  # int, float, bool, bytes, or `struct:NAME:HASH` for a user type
    rate_num: int
    rate_den: int
    priority: int
    options: int
    slowest_ns: int = 0  # the publisher promises at least one event in so long; 0: its rate
    patterns: tuple[Pattern, ...] = ()
    minimum_ns: int = 0  # of an alert: least time between two of them; it is reserved at that rate (0: one a second)


class Pattern(msgspec.Struct, array_like=True, frozen=True):
    """A derived value that travels in an option block of each record."""

    number: int
    name: str
    type: str = "float"


class Qos(msgspec.Struct, array_like=True, frozen=True):
    """What a subscriber wants in one mode, and the worst it accepts (0: nothing worse than wanted)."""

    interval_ns: int = 0  # one event in so long; 0: every event
    latency_ns: int = 0  # from publisher to subscriber; 0: no bound
    redundancy: int = 1  # vertex-disjoint paths
    priority: int = 3  # 0 alert .. 6 background
    security: int = 0  # of every channel on the way: 0 any, 1 authentic, 2 encrypted
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
