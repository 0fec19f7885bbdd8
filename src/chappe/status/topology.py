"""The deployment as data: brokers in a tree, routers in clouds, channels between routers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Positive = Annotated[float, Meta(gt=0)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file; a key that is not listed is an error."""


class BrokerSpec(_Table, frozen=True, kw_only=True):
    """`[[broker]]`: a leaf if routers name it as their cloud, an inner one if brokers name it as their parent."""

    name: Name
    parent: str = ""  # empty: the root
    listen: tuple[str, ...]  # one url a process; several share a PostgreSQL store, one of them is active
    store: str = ""  # file of SQLite or postgresql:// url; empty: NAME.db beside the deployment
    number: Annotated[int, Meta(ge=0, le=1023)] | None = None  # of a leaf: the upper ten bits of its variable ids
    x: float = 100
    y: float = 100


class RouterSpec(_Table, frozen=True, kw_only=True):
    """`[[router]]`: a node that forwards; an edge also has clients."""

    name: Name
    cloud: Name  # its leaf broker
    listen: str
    edge: bool = True
    events_per_s: Positive = 1_000_000.0  # events it can receive
    process: str = ""  # routers with the same word run in one process; empty: its own
    x: float = 100
    y: float = 100


class ChannelSpec(_Table, frozen=True):
    """`[[channel]]`: two directed event channels between two routers."""

    between: tuple[Name, Name]
    bytes_per_s: Positive = 100_000_000.0  # each direction
    latency_ms: Annotated[float, Meta(ge=0)] = 1.0
    security: Annotated[int, Meta(ge=0, le=2)] = 0  # 0 plain, 1 authentic, 2 encrypted
    data: Literal["stream", "udp"] = "stream"

    @property
    def latency_ns(self) -> int:
        return round(self.latency_ms * 1e6)


class Model(_Table, frozen=True):
    """`[latency_model]`: what a path costs beside its channels (GS-174): reference + sum(router + load / capacity)."""

    reference_us: float = 150.0  # once a path: the clients at its ends
    router_us: float = 60.0  # each router, idle
    loaded_us: float = 200.0  # each router, more at its full capacity


class Topology(_Table, frozen=True, dict=True):
    """A whole deployment, or the part of it that one broker manages."""

    broker: tuple[BrokerSpec, ...] = ()
    router: tuple[RouterSpec, ...] = ()
    channel: tuple[ChannelSpec, ...] = ()
    latency_model: Model = Model()
    dev: bool = False

    @cached_property
    def brokers(self) -> dict[str, BrokerSpec]:
        return {broker.name: broker for broker in self.broker}

    @cached_property
    def routers(self) -> dict[str, RouterSpec]:
        return {router.name: router for router in self.router}

    def ancestors(self, broker: str) -> Iterator[str]:
        """A broker and everything above it, root last."""
        while broker:
            yield broker
            broker = self.brokers[broker].parent

    def children(self, broker: str) -> list[str]:
        return [other.name for other in self.broker if other.parent == broker]

    def height(self, broker: str) -> int:
        """1 for a leaf, else one more than its highest child."""
        return 1 + max((self.height(child) for child in self.children(broker)), default=0)

    def owner(self, channel: ChannelSpec) -> str:
        """The lowest common ancestor of its ends: the broker that manages its capacity."""
        one, other = (self.routers[name].cloud for name in channel.between)
        above = set(self.ancestors(one))
        return next(broker for broker in self.ancestors(other) if broker in above)

    def level(self, channel: ChannelSpec) -> int:
        """1 inside a cloud, k where the lowest common ancestor has height k."""
        return self.height(self.owner(channel))

    def problems(self) -> list[str]:
        """What is wrong with it, one line each; empty if nothing is."""
        return [*_repeated("broker", (broker.name for broker in self.broker)),
                *_repeated("router", (router.name for router in self.router)),
                *self._bad_tree(), *self._bad_routers(), *self._bad_channels()]  # fmt: skip

    def _bad_tree(self) -> list[str]:
        found = [f"broker {broker.name}: its parent {broker.parent!r} is not a broker of this file"
                 for broker in self.broker if broker.parent and broker.parent not in self.brokers]  # fmt: skip
        if found:
            return found
        for broker in self.broker:
            seen, at = [broker.name], broker.parent
            while at and at not in seen:
                seen.append(at)
                at = self.brokers[at].parent
            if at == broker.name:
                loop = " -> ".join([*seen, at])
                return [f"broker {broker.name}: its parents form a loop ({loop}); exactly one broker has no parent"]
        roots = [broker.name for broker in self.broker if not broker.parent]
        if self.broker and len(roots) != 1:
            found.append(f"brokers {', '.join(roots)} have no parent; give all but one of them a parent")
        return found

    def _bad_routers(self) -> list[str]:
        found = []
        parents = {broker.parent for broker in self.broker}
        for router in self.router:
            if router.cloud not in self.brokers:
                found.append(f"router {router.name}: its cloud {router.cloud!r} is not a broker of this file")
            elif router.cloud in parents:
                found.append(f"router {router.name}: {router.cloud!r} has brokers below it; only a leaf has routers")
        return found

    def _bad_channels(self) -> list[str]:
        found = []
        pairs = [tuple(sorted(channel.between)) for channel in self.channel]
        for channel in self.channel:
            a, b = channel.between
            if a == b:
                found.append(f"channel {a} - {b}: it joins a router with itself")
            found += [f"channel {a} - {b}: there is no router {name!r}" for name in (a, b) if name not in self.routers]
        found += _repeated("channel", (f"{a} - {b}" for a, b in pairs))
        if not found and len(self.router) > 1:
            alone = set(self.routers) - _reached(self.router[0].name, pairs)
            if alone:
                names = ", ".join(sorted(alone)[:5])
                found.append(f"router {names}: no way of channels leads there from {self.router[0].name}")
        return found


def _repeated(what: str, names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    again: dict[str, None] = {}
    for name in names:
        if name in seen:
            again[name] = None
        seen.add(name)
    return [f"{what} {name}: it is there twice" for name in again]


def _reached(start: str, pairs: Iterable[tuple[str, ...]]) -> set[str]:
    neighbours: dict[str, set[str]] = {}
    for a, b in pairs:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    reached, left = {start}, [start]
    while left:
        for name in neighbours.get(left.pop(), set()) - reached:
            reached.add(name)
            left.append(name)
    return reached
