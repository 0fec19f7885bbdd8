"""The configuration of a node as one frozen tree; `config` reads it from a file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chappe.security.config import Audit, Rule, Tls, Tokens
from chappe.security.pages import PageAccess
from chappe.status.topology import Topology
from chappe.wire.constants import MODES
from chappe.wire.control import CAPABILITIES, Capability

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Word = Annotated[str, Meta(min_length=1, max_length=32, pattern="^[a-z0-9.-]+$")]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 34)]
Count = Annotated[int, Meta(ge=0, le=1 << 30)]
Priority = Annotated[int, Meta(ge=0, le=6)]
Mode = Annotated[int, Meta(ge=0, le=15)]
Factor = Literal["latency", "jitter", "loss", "bandwidth"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; a key that is not listed is an error."""


class NodeSection(Section, frozen=True):
    """Who this node is."""

    name: Name = "node"
    leaf: Annotated[int, Meta(ge=0, le=1023)] | None = None  # id space of its variables; None: from its name
    layout: Literal["close", "sparse"] = "sparse"
    mode: Mode = 0
    drain_timeout_s: Seconds = 10.0
    away_s: Seconds = 60.0  # how long a variable or an unlisted peer is remembered after its connection was lost
    without: tuple[Capability, ...] = ()  # that this node has and does not use, as while a mesh is upgraded

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it names in handshakes and advertises."""
        return tuple(word for word in CAPABILITIES if word not in self.without)


class Listen(Section, frozen=True):
    """An address this node listens on."""

    url: str
    roles: tuple[Literal["client", "node"], ...] = ("client", "node")
    backlog: Annotated[int, Meta(ge=1, le=65_535)] = 4096
    send_buffer: Bytes = 0  # of the socket; 0 leaves it to the kernel
    receive_buffer: Bytes = 0


class Peer(Section, frozen=True):
    """A link to another node. Without a url the other side connects."""

    name: Name
    url: str | tuple[str, ...] = ""  # of a link, several of which the best is taken, or http(s):// of its capabilities
    interface: str = ""  # address of ours by which groups of this peer are heard; empty: the system chooses
    prefer: tuple[str, ...] = ()  # kinds of transport to take first, like "wss"
    proxy: str = ""  # http://user:password@host:port on the way there, or "environment": https_proxy and no_proxy
    data: Literal["stream", "udp", "multicast", "auto"] = "stream"  # what carries STATUS beside the stream
    level: Annotated[int, Meta(ge=0, le=255)] = 0  # a flooded variable of that level or above uses this link
    queue_bytes: Annotated[int, Meta(ge=65_536, le=1 << 32)] = 8 << 20  # of each of the four classes
    packing: Annotated[int, Meta(ge=0, le=65_535)] = 0  # status records a frame; 0: 4 on datagrams, no limit on streams
    send_buffer: Bytes = 0
    receive_buffer: Bytes = 0
    heartbeat_s: Annotated[float, Meta(ge=0.05, le=60)] = 0.5
    reconnect_min_s: Annotated[float, Meta(ge=0.01, le=60)] = 0.05
    reconnect_max_s: Annotated[float, Meta(ge=0.01, le=600)] = 1.0
    factors: tuple[Factor, ...] | None = None  # measured on this link; None: as [transport.KIND] or [measure] says

    @property
    def urls(self) -> tuple[str, ...]:
        """All of them; none if the other side connects."""
        return (self.url,) * bool(self.url) if isinstance(self.url, str) else self.url


class Transport(Section, frozen=True):
    """`[transport.KIND]`: what is done for every link of that kind, whichever end opened it (MR-045)."""

    measure: bool = True  # probe them
    measure_s: Annotated[float, Meta(ge=0.01, le=60)] | None = None  # that often; None: as [measure] says
    factors: tuple[Factor, ...] | None = None  # measured on them; None: as [measure] says (MR-055)
    detect: bool = True  # give up links to nodes that are silent
    heartbeat_s: Annotated[float, Meta(ge=0.05, le=60)] | None = None  # for three of these; None: as agreed for each


class Route(Section, frozen=True):
    """A static path: variables that match go to these peers, until brokers set paths by control messages."""

    variables: str  # pattern over `publisher/variable`, with + and #
    to: Annotated[tuple[Name, ...], Meta(min_length=1)]
    interval_ms: Annotated[float, Meta(ge=0)] = 0.0  # 0: every event
    priority: Priority = 3
    modes: tuple[Mode, ...] = tuple(range(MODES))


class TopicRoute(Section, frozen=True):
    """Events whose topic matches go to these peers."""

    pattern: str  # `node:NAME`: addresses at that node, `node:#` at all others; `#` is all topics and addresses
    to: Annotated[tuple[Name, ...], Meta(min_length=1)]


class BrokerLink(Section, frozen=True, kw_only=True):
    """`[broker]`: the leaf broker that manages this router; paths, channels and modes come from there."""

    name: Name  # its role
    urls: Annotated[tuple[str, ...], Meta(min_length=1)]  # one for each process of that role


class Manages(Section, frozen=True, kw_only=True):
    """`[manages]`: this process is a broker of that role."""

    role: Name
    topology: Topology  # the whole deployment: brokers, routers, channels
    store: str  # file of SQLite, or a postgresql:// url that several processes of the role share
    lease_s: Annotated[float, Meta(gt=0, le=60)] = 2.0  # after so long without renewal another process takes over

    def resolved(self, base: Path) -> Manages:
        """With the path of the store relative to the file it was written in."""
        return self if "://" in self.store else msgspec.structs.replace(self, store=str(base / self.store))


class TopicProfile(Section, frozen=True):
    """Events whose topic matches take the way that is best by another profile, or cross only nodes that can do this."""

    pattern: str
    profile: str = ""  # empty: that of [mesh]
    needs: tuple[Word, ...] = ()  # capabilities of every node that they cross


class Mesh(Section, frozen=True, kw_only=True):
    """`[mesh]`: this node brings topic events to whoever wants them, anywhere in a mesh of nodes that have it, too."""

    unit: Annotated[str, Meta(max_length=512)] = ""  # "east/plant-3": outermost first; all nodes have the same depth
    units: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # unit: nodes that may lie in it; *: any
    performance: bool = True  # ways by measured costs; else by static ones (MR-117)
    profile: str = "default"  # of topics that no [[mesh.topic]] names
    topic: tuple[TopicProfile, ...] = ()
    threshold: Annotated[float, Meta(ge=0, le=10)] = 0.1  # a cost that changed by more than this share is advertised
    floor_ms: Annotated[float, Meta(ge=0, le=10_000)] = 0.5  # and by more than this
    certainty: Annotated[float, Meta(ge=0, le=100)] = 3.0  # and by more than so many of its standard errors
    gain: Annotated[float, Meta(ge=0, le=10)] = 0.05  # a route is changed for one that is better by this share
    gain_ms: Annotated[float, Meta(ge=0, le=10_000)] = 1.0  # and by this
    hold_down: Annotated[float, Meta(ge=0, le=1000)] = 3.0  # base intervals until a route may change again
    refresh_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0  # what is spread is repeated; forgotten after three times
    capabilities: Annotated[tuple[Word, ...], Meta(max_length=32)] = ()  # of this node, for `needs` of topics
    publish: bool = True  # costs that are advertised, as events on PBR/PerformanceData/...
    publications: tuple[str, ...] = ()  # topics and patterns that are advertised to be published here (MR-133)
    formula: dict[str, str] = msgspec.field(default_factory=dict)  # own profiles: "latency_ms + 20 * jitter" (MR-109)


class Measure(Section, frozen=True, kw_only=True):
    """`[measure]`: how links are measured; without it, a node of a mesh does so by these defaults."""

    on: bool = True
    interval_s: Annotated[float, Meta(ge=0.01, le=3600)] = 1.0  # base interval; links that are stable less often
    clients: bool = False  # links to clients, too (MR-002)
    factors: tuple[Literal["latency", "jitter", "loss"], ...] = ("latency", "jitter", "loss")
    bandwidth: bool = False  # trains of up to 2 % of the capacity that was found
    adapt: bool = True  # stable and extreme links less often
    synchronous: bool = False  # all links at once in place of a random phase for each
    window: Annotated[int, Meta(ge=4, le=1000)] = 16  # round trips that a mean is made of


class Report(Section, frozen=True, kw_only=True):
    """`[report]`: what is measured goes to an aggregator of the realm, as events (MR-083)."""

    realm: Name = "default"
    user_group: str = ""
    aggregator: str = ""  # the one to use while none is announced
    silence_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0  # a link without change is reported that often anyway
    advice: Annotated[float, Meta(ge=0, lt=1)] = 0.0  # most that measurements of others count in a cost; 0: nothing


class Cells(Section, frozen=True, kw_only=True):
    """`[cells]`: this node is a cell: its clients have names, and get parcels by many paths at once."""

    neighbours: Annotated[int, Meta(ge=1, le=16)] = 2  # links to each side of each name, in the order of names
    random: Annotated[int, Meta(ge=0, le=16)] = 1  # links to any cells
    far: Annotated[int, Meta(ge=0, le=16)] = 1  # links to cells that are many hops away
    radius: Annotated[int, Meta(ge=1, le=4)] = 2  # hops within which every link is known
    paths: Annotated[int, Meta(ge=1, le=64)] = 8  # at once to one cell of the neighbourhood
    names: Annotated[int, Meta(ge=16, le=1 << 20)] = 4096  # of others that are kept
    slack: Annotated[float, Meta(gt=1, le=10)] = 1.5  # so many times that number before the least useful are dropped
    update_s: Annotated[float, Meta(ge=0.05, le=60)] = 2.0  # between updates of bandwidth
    reachable: bool = True  # False: behind a NAT or firewall, nobody can connect to it
    urls: Annotated[
        tuple[str, ...], Meta(max_length=8)
    ] = ()  # by which other cells connect; empty: those of [[listen]]
    names_per_identity: Annotated[int, Meta(ge=1, le=1024)] = 64  # of its clients


class Counters(Section, frozen=True, kw_only=True):
    """`[counters]`: what /metrics shows is published as events on node/counters/NAME."""

    every_s: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0


class Limits(Section, frozen=True):
    """What one node, and one client of it, may use."""

    connections: Count = 16_384  # of clients and peers together, half-open ones included
    per_identity: Count = 0  # connections of one identity; 0: no limit
    rate: Annotated[float, Meta(ge=0)] = 0.0  # STATUS records and other frames a second of one client; 0: no limit
    burst: Count = 0  # how many may come at once; 0: one second's worth
    payload: Annotated[int, Meta(ge=1024, le=16_777_215)] = 1 << 20  # of one frame
    subscriptions: Count = 100_000  # topics, inboxes and watched variables of one identity
    inboxes: Count = 10_000  # of one identity
    variables: Count = 1_000_000  # registered by one identity
    announced: Count = 1_000_000  # by one neighbour
    topics: Annotated[int, Meta(ge=1, le=1 << 24)] = 65_536  # numbers a link may define
    queue_bytes: Annotated[int, Meta(ge=65_536, le=1 << 32)] = 4 << 20  # of each of the four classes of one client
    identity_queue_bytes: Bytes = 256 << 20  # in all queues of one identity; 0: no limit
    identity_topics: Count = 1 << 18  # topic numbers that one identity uses up at this node; 0: no limit
    forwarding_entries: Annotated[int, Meta(ge=1, le=1 << 24)] = 1 << 17  # (topic, route) pairs of this node
    memory_bytes: Bytes = 0  # of tables and queues; 0: half of the machine's memory, 1 GiB at most
    credit: Bytes = 8 << 20  # EVENT bytes a client may have under way; 0: no credits
    handshake_s: Annotated[float, Meta(gt=0, le=60)] = 10.0
    heartbeat_s: Annotated[float, Meta(ge=0.05, le=60)] = 1.0  # to clients
    idle_s: Seconds = 0.0  # a client that sends nothing but heartbeats for so long is closed; 0: never


class Log(Section, frozen=True):
    """What is logged, and how it looks."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Config(Section, frozen=True):
    """The whole configuration of a node."""

    node: NodeSection = NodeSection()
    listen: tuple[Listen, ...] = ()
    peer: tuple[Peer, ...] = ()
    transport: dict[str, Transport] = msgspec.field(default_factory=dict)  # by kind
    path: tuple[Route, ...] = ()
    topic_route: tuple[TopicRoute, ...] = ()
    broker: BrokerLink | None = None
    manages: Manages | None = None
    mesh: Mesh | None = None
    measure: Measure | None = None
    report: Report | None = None
    cells: Cells | None = None
    counters: Counters | None = None
    limits: Limits = Limits()
    tls: Tls | None = None
    tokens: Tokens | None = None
    rule: tuple[Rule, ...] = ()
    audit: Audit | None = None
    metrics: PageAccess = PageAccess()
    log: Log = Log()

    @property
    def address(self) -> str:
        """Where events reach the node itself: its unit, if it is in a mesh, and its name."""
        return "/".join(filter(None, (self.mesh.unit if self.mesh is not None else "", self.node.name)))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What this node does on a link if its other end does, too; outside of a mesh brokers say what it forwards."""
        lacking = {"demand": self.broker is not None and self.mesh is None, "cells": self.cells is None}
        return tuple(word for word in self.node.capabilities if not lacking.get(word))

    @property
    def leaf(self) -> int:
        """The leaf of the ids issued here; from the name where the file gives none, so that a mesh has several."""
        return zlib.crc32(self.node.name.encode()) % 1024 if self.node.leaf is None else self.node.leaf
