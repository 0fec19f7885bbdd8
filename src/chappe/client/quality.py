"""Quality of service as people write it, and as it is on the wire (GS-040 to GS-042)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from chappe.client.intervals import NS, interval_ns
from chappe.errors import WithdrawnError
from chappe.wire.base import Grant
from chappe.wire.base import Qos as WireQos
from chappe.wire.constants import ALL_MODES, MODES
from chappe.wire.control import Watching

UNBOUNDED_NS = 1 << 62
Seconds = float | Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """What a subscriber asks for, in seconds; None leaves the choice to the network.

    interval: one value in so long; None: every value. latency: from publisher to subscriber; None: no bound.
    redundancy: paths that share no router. priority: 0 alert to 6 background. security: of every channel of them,
    0 any, 1 authentic, 2 encrypted. worst: the worst that is acceptable; what it leaves out may not get worse.
    """

    interval: Seconds | None = None
    latency: Seconds | None = None
    redundancy: int | None = None
    priority: int | None = None
    security: int = 0
    worst: Qos | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("interval", self.interval), ("latency", self.latency)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} is a positive number of seconds, not {seconds}")
        if self.interval is not None and math.isinf(self.interval):
            raise ValueError("an interval is finite")
        if self.redundancy is not None and self.redundancy < 1:
            raise ValueError(f"redundancy is the number of paths, 1 or more, not {self.redundancy}")
        if self.priority is not None and not 0 <= self.priority <= 6:
            raise ValueError(f"priority is 0 (alert) to 6 (background), not {self.priority}")
        if self.security not in (0, 1, 2):
            raise ValueError(f"security is 0 (any), 1 (authentic) or 2 (encrypted), not {self.security}")
        if self.worst is not None:
            self._check_worst(self.worst)

    def _check_worst(self, worst: Qos) -> None:
        if worst.worst is not None or worst.security:
            raise ValueError("worst has interval, latency, redundancy and priority only")
        pairs = (
            ("interval", worst.interval, self.interval or 0),
            ("latency", worst.latency, math.inf if self.latency is None else self.latency),
            ("priority", worst.priority, 3 if self.priority is None else self.priority),
        )
        for name, least, wanted in pairs:
            if least is not None and least < wanted:
                raise ValueError(f"worst {name} {least} is better than the wanted one ({wanted})")
        if worst.redundancy is not None and worst.redundancy > (self.redundancy or 1):
            raise ValueError(
                f"worst redundancy {worst.redundancy} is more than the wanted one ({self.redundancy or 1})"
            )

    def wire(self) -> WireQos:
        """The same in the terms of the wire, where 0 in `worst` means: no worse than wanted."""
        worst = self.worst or Qos()
        return WireQos(
            interval_ns=interval_ns(self.interval),
            latency_ns=_latency_ns(self.latency),
            redundancy=self.redundancy or 1,
            priority=3 if self.priority is None else self.priority,
            security=self.security,
            worst_interval_ns=interval_ns(worst.interval),
            worst_latency_ns=_latency_ns(worst.latency),
            worst_redundancy=worst.redundancy or 0,
            worst_priority=worst.priority or 0,
        )


def _latency_ns(latency: Seconds | None) -> int:
    if latency is None:
        return 0
    return UNBOUNDED_NS if math.isinf(latency) else interval_ns(latency)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a subscription gets in one mode, in seconds."""

    interval: float
    every: int  # one of so many published values
    latency: float | None  # of the slowest of its paths, by the model of admission; None: nobody promises one
    redundancy: int
    priority: int

    @classmethod
    def of(cls, grant: Grant) -> Granted:
        """A grant of the wire."""
        latency = grant.latency_ns / NS if grant.latency_ns else None
        return cls(grant.interval_ns / NS, grant.every, latency, grant.redundancy, grant.priority)


@dataclass(frozen=True, slots=True)
class QosRequest:
    """A subscription as it is requested: one quality for all modes or 16, and the modes in which it lives."""

    qos: tuple[WireQos, ...]
    modes: int = ALL_MODES
    plain: bool = True  # an interval alone, as a node without grants understands it

    def in_mode(self, mode: int) -> WireQos | None:
        """The quality in a mode, None outside of the modes."""
        if not self.modes >> mode & 1:
            return None
        return self.qos[0] if len(self.qos) == 1 else self.qos[mode]


def qos_request(
    qos: Qos | Mapping[int, Qos] | None, interval: Seconds | None = None, modes: Iterable[int] | None = None
) -> QosRequest:
    """What the arguments of a watch mean; ValueError if they contradict each other."""
    if qos is not None and interval is not None:
        raise ValueError("give the interval as interval= or in qos=, not both")
    if isinstance(qos, Mapping):
        if modes is not None:
            raise ValueError("qos by mode says the modes itself: leave out modes=")
        mask = mode_mask(qos)
        return QosRequest(tuple((qos.get(mode) or Qos()).wire() for mode in range(MODES)), mask, plain=False)
    wanted = (qos or Qos()).wire() if interval is None else WireQos(interval_ns=interval_ns(interval))
    return QosRequest((wanted,), ALL_MODES if modes is None else mode_mask(modes), plain=qos is None)


def mode_mask(modes: Iterable[int]) -> int:
    """The bit mask of some modes; ValueError for none, or one that does not exist."""
    chosen = list(modes)
    if not chosen or not all(isinstance(mode, int) and 0 <= mode < MODES for mode in chosen):
        raise ValueError(f"modes are some of 0 to {MODES - 1}, not {chosen}")
    return sum(1 << mode for mode in set(chosen))


def granted_by_mode(grants: Sequence[Grant | None], modes: int) -> dict[int, Granted]:
    """Grants as they were asked for (one, or 16) by mode."""
    found = {}
    for mode in range(MODES):
        grant = (grants[0] if len(grants) == 1 else grants[mode] if mode < len(grants) else None) if grants else None
        if grant is not None and modes >> mode & 1:
            found[mode] = Granted.of(grant)
    return found


def periods(interval_ns: int, rate_num: int, rate_den: int) -> int:
    """Whole publishing periods in an interval, at least one; as the node counts them (GS-061)."""
    if rate_num == 0 or interval_ns == 0:
        return 1
    return max(1, (interval_ns * rate_num + rate_num - 1) // rate_den)


def multiple(wanted: int, granted: int) -> int:
    """The least multiple of what is granted that is not finer than what is wanted."""
    return -(-wanted // granted) * granted


@dataclass(slots=True, eq=False)
class Quality:
    """What one watch asked for, what it got, and what became of it."""

    request: QosRequest
    kind: str = ""  # the type that the subscriber takes it for
    every: dict[int, int] = field(default_factory=dict)  # by mode: one of so many published values is for this watch
    granted: dict[int, Granted] = field(default_factory=dict)
    slowest_ns: int = 0
    violations: dict[str, int] = field(default_factory=lambda: {"late": 0, "missed": 0})
    withdrawn: WithdrawnError | None = None
    on_withdrawn: Callable[[Any, WithdrawnError], None] | None = None
    on_admitted: Callable[[Any], None] | None = None

    def settle(self, granted: Mapping[int, Granted], answer: Watching, *, alone: bool) -> None:
        """Take what the node has granted; not `alone`: to several watches, of which this one may want less."""
        self.slowest_ns = answer.slowest_ns
        self.every, self.granted = {}, {}
        for mode in range(MODES):
            wanted = self.request.in_mode(mode)
            if wanted is None:
                continue
            grant = granted.get(mode)
            every = answer.every if grant is None else grant.every
            if not alone:
                every = multiple(periods(wanted.interval_ns, answer.rate_num, answer.rate_den), every)
            self.every[mode] = every
            if grant is not None:
                seconds = every * answer.rate_den / answer.rate_num / NS if answer.rate_num else grant.interval
                self.granted[mode] = replace(grant, every=every, interval=seconds)

    def bound_ns(self, mode: int) -> int:
        """The latency that may not be exceeded in a mode; 0: none was asked for."""
        wanted = self.request.in_mode(mode)
        if wanted is None or wanted.latency_ns == 0:
            return 0
        granted = self.granted.get(mode)
        if granted is not None and (granted.latency or 0) * NS > wanted.latency_ns:
            return wanted.worst_latency_ns or wanted.latency_ns
        return wanted.latency_ns
