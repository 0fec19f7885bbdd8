"""What routers and channels can take and what is reserved on them, in each of the 16 modes (GS-081, GS-114).

Loads are whole numbers of 1e-9 events or bytes a second. What a variable loads a channel with is a function of the
terms reserved there alone, so releasing everything gives exactly zero, in whatever order it was reserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub

from chappe.status.allocation.latency import LatencyModel
from chappe.status.allocation.rates import NANO, burst, event_bytes, publishing_rate, rates_by_mode
from chappe.wire.base import Variable
from chappe.wire.constants import MODES

Loads = tuple[int, ...]
Usage = dict[tuple[str, str], dict[int, int]]
"""Per directed channel: which intervals (in published events) pass in which modes."""

NOTHING: Loads = (0,) * MODES


class Stream:
    """A variable on a channel: how often each (every, modes) is reserved, and the load of all of them together."""

    __slots__ = ("den", "loads", "num", "size", "terms")

    def __init__(self) -> None:
        self.terms: dict[tuple[int, int], int] = {}
        self.loads: Loads = NOTHING  # events
        self.num, self.den, self.size = 0, 1, 0


class Channel:
    """One direction of an event channel. A capacity of 0 is no limit."""

    __slots__ = ("a", "b", "bytes", "capacity", "events", "latency_ns", "owned", "peak", "present", "security",
                 "streams", "top", "up")  # fmt: skip

    def __init__(self, a: str, b: Router) -> None:
        self.a, self.b = a, b
        self.capacity, self.latency_ns, self.security = 0, 0, 0
        self.present, self.owned, self.up = False, False, True
        self.bytes = [0] * MODES
        self.events = [0] * MODES
        self.top = 0  # the largest of `bytes`
        self.peak = 0  # the largest of `events`
        self.streams: dict[int, Stream] = {}

    @property
    def name(self) -> str:
        return f"channel/{self.a}/{self.b.name}"

    def burst(self) -> Loads:
        """Variables that can share a nominal instant, by mode."""
        return burst(stream.terms for stream in self.streams.values())


class Router:
    """A router: what it receives from channels and from its own publishers. A capacity of 0 is no limit."""

    __slots__ = ("_delays", "capacity", "edge", "events", "incoming", "name", "owned", "peaks", "present", "published",
                 "up")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.capacity, self.published = 0, 0
        self.present, self.owned, self.up, self.edge = False, False, True, True
        self.events = [0] * MODES  # with what is published here
        self.peaks = 0  # sum of the peaks of incoming channels: no mode and no change of mode brings more
        self.incoming: list[Channel] = []
        self._delays: list[int] | None = None

    def changed(self) -> None:
        """Its load or capacity is another one now."""
        self._delays = None

    def delays(self, model: LatencyModel) -> list[int]:
        """Nanoseconds an event spends here, by mode."""
        if self._delays is None:
            self._delays = self.delays_after(NOTHING, model)
        return self._delays

    def delays_after(self, added: Loads, model: LatencyModel) -> list[int]:
        """The same once this load is added."""
        first = self.events[0]
        if added.count(added[0]) == MODES and self.events.count(first) == MODES:
            return [model.router(first + added[0], self.capacity)] * MODES
        return [model.router(load + more, self.capacity) for load, more in zip(self.events, added, strict=True)]


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why something cannot be had; `obstacle` is the resource to blame, if there is one."""

    obstacle: str
    reason: str
    excess_ns: int = 0  # by how much a latency bound is missed


@dataclass(frozen=True, slots=True)
class Growth:
    """What a reservation would add: events by channel and by router."""

    size: int  # bytes of an event
    channels: tuple[tuple[Channel, Loads], ...]
    routers: dict[Router, Loads]
    published: int = 0  # of the routers' loads: what their own publishers add


class Ledger:
    """All routers and channels of one broker with their loads."""

    def __init__(self, model: LatencyModel) -> None:
        self.model = model
        self.routers: dict[str, Router] = {}
        self.channels: dict[tuple[str, str], Channel] = {}
        self.carried: dict[int, set[tuple[str, str]]] = {}  # by variable
        self.version = 0  # another one after every change of a load

    def router(self, name: str) -> Router:
        """The router of that name; made if it is not known."""
        found = self.routers.get(name)
        if found is None:
            found = self.routers[name] = Router(name)
        return found

    def channel(self, a: str, b: str) -> Channel:
        """The channel from a to b; made if it is not known."""
        found = self.channels.get((a, b))
        if found is None:
            head = self.router(b)
            found = self.channels[a, b] = Channel(a, head)
            head.incoming.append(found)
        return found

    def forget(self, channel: Channel) -> None:
        """Drop a channel that neither the topology nor a reservation has."""
        if not channel.present and not channel.streams:
            channel.b.incoming.remove(channel)
            del self.channels[channel.a, channel.b.name]
            self.forget_router(channel.b)

    def forget_router(self, router: Router) -> None:
        """Drop a router that neither the topology nor a reservation has."""
        if not router.present and not router.incoming and not router.published:
            self.routers.pop(router.name, None)

    def growth(self, variable: Variable, usage: Usage) -> Growth:
        """What reserving this would add: nothing where the stream flows already (GS-086)."""
        channels = []
        routers: dict[Router, Loads] = {}
        rate = publishing_rate(variable)
        num, den = rate.numerator, rate.denominator
        number = variable.variable_id
        for (a, b), intervals in usage.items():
            channel = self.channels.get((a, b)) or Channel(a, self.routers.get(b) or Router(b))
            stream = channel.streams.get(number)
            terms = intervals.items()
            if stream is not None:
                if terms <= stream.terms.keys():
                    continue
                after = rates_by_mode(tuple(sorted(terms | stream.terms.keys())), num, den)
                before = stream.loads
            else:
                after = rates_by_mode(tuple(sorted(terms)), num, den)
                before = NOTHING
            if after == before:
                continue
            added = after if before is NOTHING else tuple(map(sub, after, before))
            channels.append((channel, added))
            head = channel.b
            known = routers.get(head)
            routers[head] = added if known is None else tuple(map(add, known, added))
        return Growth(event_bytes(variable), tuple(channels), routers)

    def blocked(self, growth: Growth) -> Blocked | None:
        """The first capacity that this would exceed, in a mode or while changing between two."""
        for channel, added in growth.channels:
            if channel.owned and channel.capacity and channel.top + max(added) * growth.size > channel.capacity:
                found = self._bandwidth(channel, added, growth.size)
                if found is not None:
                    return found
        new = growth.published
        if len(growth.channels) > len(growth.routers):
            new += sum(max(added) for _, added in growth.channels)
        for router, added in growth.routers.items():
            if not router.owned or router.capacity == 0:
                continue
            # No mode and no change of mode can bring more than all peaks together.
            if router.published + router.peaks + max(new, max(added)) > router.capacity:
                found = self._received(router, growth)
                if found is not None:
                    return found
        return None

    def _bandwidth(self, channel: Channel, added: Loads, size: int) -> Blocked | None:
        for mode, (load, more) in enumerate(zip(channel.bytes, added, strict=True)):
            if more > 0 and load + more * size > channel.capacity:
                free = max(0, channel.capacity - load) / NANO
                reason = (
                    f"bandwidth of the channel {channel.a} -> {channel.b.name}: needs {more * size / NANO:.6g} more "
                    f"bytes/s in mode {mode}, {free:.6g} of {channel.capacity / NANO:.6g} are free"
                )
                return Blocked(channel.name, reason)
        return None

    def _received(self, router: Router, growth: Growth) -> Blocked | None:
        fresh = {channel: added for channel, added in growth.channels if channel.b is router}
        grown = [(channel, max(map(int.__add__, channel.events, added))) for channel, added in fresh.items()]
        local = router.published + growth.published
        if local + router.peaks + sum(peak - channel.peak for channel, peak in grown) <= router.capacity:
            return None
        added = growth.routers[router]
        for mode, (load, more) in enumerate(zip(router.events, added, strict=True)):
            if more > 0 and load + more > router.capacity:
                return _overload(router, load, more, f"in mode {mode}")
        return self._transition(router, fresh, local)

    def _transition(self, router: Router, fresh: dict[Channel, Loads], local: int) -> Blocked | None:
        """While modes change each incoming channel may still carry the old load or already the new one."""
        after = [
            [load + more for load, more in zip(channel.events, fresh.get(channel, NOTHING), strict=True)]
            for channel in [*router.incoming, *(channel for channel in fresh if channel not in router.incoming)]
        ]
        for old in range(MODES):
            for new in range(old + 1, MODES):
                total = local + sum(max(loads[old], loads[new]) for loads in after)
                now = router.published + sum(max(channel.events[old], channel.events[new])
                                             for channel in router.incoming)  # fmt: skip
                if total > router.capacity and total > now:
                    return _overload(router, now, total - now, f"while modes {old} and {new} change")
        return None

    def add(self, variable: Variable, usage: Usage) -> None:
        """Count one more reservation of these terms."""
        for (a, b), intervals in usage.items():
            channel = self.channel(a, b)
            stream = channel.streams.get(variable.variable_id)
            if stream is None:
                stream = channel.streams[variable.variable_id] = Stream()
                self.carried.setdefault(variable.variable_id, set()).add((a, b))
            grown = self._describe(channel, stream, variable)
            for term in intervals.items():
                count = stream.terms.get(term, 0)
                stream.terms[term] = count + 1
                grown = grown or count == 0
            if grown:
                self._weigh(channel, stream)

    def remove(self, variable_id: int, usage: Usage) -> None:
        """Count one reservation of these terms less; what was added can be removed, in any order."""
        for (a, b), intervals in usage.items():
            channel = self.channels[a, b]
            stream = channel.streams[variable_id]
            shrunk = False
            for term in intervals.items():
                count = stream.terms[term] - 1
                if count:
                    stream.terms[term] = count
                else:
                    del stream.terms[term]
                    shrunk = True
            if shrunk:
                self._weigh(channel, stream)
            if not stream.terms:
                del channel.streams[variable_id]
                hops = self.carried[variable_id]
                hops.remove((a, b))
                if not hops:
                    del self.carried[variable_id]
                self.forget(channel)

    def _describe(self, channel: Channel, stream: Stream, variable: Variable) -> bool:
        """Take over rate and size of a variable; True if they are others than before."""
        rate = publishing_rate(variable)
        described = rate.numerator, rate.denominator, event_bytes(variable)
        if described == (stream.num, stream.den, stream.size):
            return False
        self._count(channel, stream, NOTHING)  # with the size it was counted by
        stream.num, stream.den, stream.size = described
        return True

    def _weigh(self, channel: Channel, stream: Stream) -> None:
        """Bring the loads of a channel and its head router up to date with the terms of a stream."""
        terms = tuple(sorted(stream.terms))
        self._count(channel, stream, rates_by_mode(terms, stream.num, stream.den) if terms else NOTHING)

    def _count(self, channel: Channel, stream: Stream, after: Loads) -> None:
        before = stream.loads
        if after == before:
            return
        stream.loads = after
        delta, sized = _difference(after, before, stream.size)
        router = channel.b
        channel.bytes, channel.top = _raised(channel.bytes, sized)
        channel.events, peak = _raised(channel.events, delta)
        router.events, _ = _raised(router.events, delta)
        router.peaks += peak - channel.peak
        channel.peak = peak
        router.changed()
        self.version += 1

    def publish(self, router: Router, rate: int) -> None:
        """Count a variable published here at this rate (negative: no longer)."""
        router.published += rate
        router.events = [load + rate for load in router.events]
        router.changed()
        self.version += 1

    def delays(self, routers: Sequence[Router], growth: Growth | None = None) -> list[int]:
        """Nanoseconds in all these routers together, by mode, once the growth is added."""
        parts = []
        for router in routers:
            added = growth.routers.get(router) if growth is not None else None
            parts.append(router.delays(self.model) if added is None else router.delays_after(added, self.model))
        return list(map(sum, zip(*parts, strict=True)))

    def rows(self) -> Iterable[dict[str, object]]:
        """Loads as `chappe show loads` prints them: events/s of routers, bytes/s of channels."""
        for router in self.routers.values():
            if router.present:
                yield _row(f"router/{router.name}", "router", router.capacity, router.events)
        for channel in self.channels.values():
            if channel.present:
                yield _row(channel.name, "channel", channel.capacity, channel.bytes) | {"burst": max(channel.burst())}

    def router_loads(self) -> dict[str, tuple[float, ...]]:
        """Events a second by router, by mode."""
        routers = [router for router in self.routers.values() if router.present]
        return {router.name: tuple(load / NANO for load in router.events) for router in routers}


@lru_cache(maxsize=1 << 12)
def _difference(after: Loads, before: Loads, size: int) -> tuple[Loads, Loads]:
    """What a stream brings more, in events and in bytes: many streams change from the same loads to the same."""
    delta = tuple(map(sub, after, before))
    return delta, tuple(more * size for more in delta)


def _raised(loads: list[int], delta: Loads) -> tuple[list[int], int]:
    """Loads with these added, and the largest of them; as a rule a stream is the same in all modes."""
    first, more = loads[0], delta[0]
    if delta.count(more) == MODES and loads.count(first) == MODES:
        return [first + more] * MODES, first + more
    raised = list(map(add, loads, delta))
    return raised, max(raised)


def _overload(router: Router, load: int, more: int, when: str) -> Blocked:
    free = max(0, router.capacity - load) / NANO
    return Blocked(
        f"router/{router.name}",
        f"load of the router {router.name}: it would receive {more / NANO:.6g} more events/s {when}, "
        f"{free:.6g} of {router.capacity / NANO:.6g} are free",
    )


def _row(resource: str, kind: str, capacity: int, loads: Sequence[int]) -> dict[str, object]:
    return {
        "resource": resource,
        "kind": kind,
        "capacity": capacity / NANO,
        "load": tuple(load / NANO for load in loads),
        "share": max(loads) / capacity if capacity else 0.0,
    }


def modes_of(mask: int) -> list[int]:
    """The modes of a bit mask."""
    return [mode for mode in range(MODES) if mask >> mode & 1]
