"""The deployment as data: brokers in a tree, routers in clouds, channels between routers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
LEAVES = 1024  # ten bits of a variable id


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file; a key that is not listed is an error."""


class BrokerSpec(_Table, frozen=True, kw_only=True):
    """`[[broker]]`: a leaf if routers name it as their cloud, an inner one if brokers name it as their parent."""

    name: Name
    parent: str = ""  # empty: the root
    listen: Annotated[tuple[str, ...], Meta(min_length=1)]  # one url a process; several share a PostgreSQL store
    store: str = ""  # file of SQLite or postgresql:// url; empty: NAME.db beside the deployment
    number: Annotated[int, Meta(ge=0, lt=LEAVES)] | None = None  # of a leaf: upper ten bits of its variable ids
    x: float = 100
    y: float = 100

    @property
    def shares_store(self) -> bool:
        """Several processes can have this store open."""
        return self.store.startswith(("postgresql://", "postgres://"))

    def process(self, index: int) -> str:
        """The name of its process that listens on `listen[index]`: its own if there is only one."""
        return self.name if len(self.listen) == 1 else f"{self.name}-{index + 1}"


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


LEVELS = ("plain", "authentic", "encrypted")
ENCRYPTED = ("tls", "wss", "unix")  # or on one machine


def most_security(url: str, data: str) -> int:
    """The level that a channel may claim: of the link that is dialled, and of datagrams if values go by them."""
    if url.partition(":")[0] not in ENCRYPTED:
        return 0
    return 1 if data == "udp" else 2


def overclaimed(url: str, data: str, security: int) -> str:
    """Why a channel may not claim that level of security; empty if it may."""
    most = most_security(url, data)
    if security <= most:
        return ""
    by = (
        f"{url.partition(':')[0]} with udp data"
        if data == "udp" and most
        else url.partition(":")[0] or "an unknown link"
    )
    remedy = 'data = "stream"' if most else "tls://, wss:// or unix://"
    return f"security {security} ({LEVELS[security]}) is more than {by} gives ({most}, {LEVELS[most]}); use {remedy}"


class ChannelSpec(_Table, frozen=True):
    """`[[channel]]`: two directed event channels between two routers."""

    between: tuple[Name, Name]
    bytes_per_s: Positive = 100_000_000.0  # each direction
    latency_ms: NotNegative = 1.0
    security: Annotated[int, Meta(ge=0, le=2)] = 0  # 0 plain, 1 authentic, 2 encrypted
    data: Literal["stream", "udp"] = "stream"

    @property
    def latency_ns(self) -> int:
        return round(self.latency_ms * 1e6)


class Model(_Table, frozen=True):
    """`[latency_model]`: what a path costs beside its channels (GS-174): reference + sum(router + load / capacity)."""

    reference_us: NotNegative = 150.0  # once a path: the clients at its ends
    router_us: NotNegative = 60.0  # each router, idle
    loaded_us: NotNegative = 200.0  # each router, more at its full capacity


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

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for broker in self.broker:
            found.setdefault(broker.parent, []).append(broker.name)
        return found

    @property
    def root(self) -> str:
        """The broker without a parent."""
        return self._children[""][0]

    @property
    def leaves(self) -> list[str]:
        """The brokers that have no broker below them: one a cloud."""
        return [broker.name for broker in self.broker if broker.name not in self._children]

    def ancestors(self, broker: str) -> Iterator[str]:
        """A broker and everything above it, root last."""
        while broker:
            yield broker
            broker = self.brokers[broker].parent

    def children(self, broker: str) -> list[str]:
        return [*self._children.get(broker, ())]

    def height(self, broker: str) -> int:
        """1 for a leaf, else one more than its highest child."""
        return 1 + max((self.height(child) for child in self._children.get(broker, ())), default=0)

    def number(self, leaf: str) -> int:
        """The upper ten bits of the variable ids of a leaf; by its name where the file gives none."""
        given = self.brokers[leaf].number
        return zlib.crc32(leaf.encode()) % LEAVES if given is None else given

    def members(self, leaf: str) -> list[str]:
        """The routers of a cloud."""
        return [router.name for router in self.router if router.cloud == leaf]

    def owner(self, channel: ChannelSpec) -> str:
        """The lowest common ancestor of its ends: the broker that manages its capacity."""
        one, other = (self.routers[name].cloud for name in channel.between)
        above = set(self.ancestors(one))
        return next(broker for broker in self.ancestors(other) if broker in above)

    def level(self, channel: ChannelSpec) -> int:
        """1 inside a cloud, k where the lowest common ancestor has height k."""
        return self.height(self.owner(channel))
