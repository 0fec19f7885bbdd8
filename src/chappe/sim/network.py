"""A mesh in one process: nodes, links, failures, and everything that happens between them in virtual time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from chappe.errors import ConfigError
from chappe.events.member_settings import MemberSettings
from chappe.linkstate.units import Address, level_between
from chappe.machine import Dial, HangUp
from chappe.sim.build import Design, plain_config
from chappe.sim.clock import Clock, Streams
from chappe.sim.codec import Codec
from chappe.sim.connection import Connection, Timing
from chappe.sim.link import Quality
from chappe.sim.node import Node

Look = Callable[[Node, Connection, bytes], None]
Change = Callable[[str, str], None]  # what happened (`crash`, `restart`, `cut`, `mend`), to which node or link


class Network:
    """Nodes and links. The same seed and the same calls give the same run, byte for byte.

    `settings` None: engines only, with static topic routes.
    """

    def __init__(
        self, seed: int, *, settings: MemberSettings | None = None, timing: Timing | None = None,
        reachable: Callable[[str, str], bool] = lambda a, b: True, quality: Callable[[str, str], Quality] | None = None,
    ) -> None:  # fmt: skip
        """`reachable(a, b)`: whether `a` can connect to `b`; `quality(a, b)`: of a link that cells dial, forth."""
        self.seed = seed
        self.streams = Streams(seed)
        self.clock = Clock(self._settle)
        self.timing = timing or Timing()
        self.settings = settings
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], Connection] = {}
        self.changes: list[Change] = []
        self._looks: list[Look] = []
        self._touched: dict[Node, None] = {}
        self._codec = Codec()
        self._reachable = reachable
        self._quality = quality or (lambda a, b: Quality())
        self._kept: dict[tuple[str, str], set[str]] = {}  # who dials, for each link that cells alone want

    # --- building

    def add(self, name: str, unit: Iterable[str] = (), settings: MemberSettings | None = None) -> Node:
        """A node that does not run yet, with a configuration that says nothing but its address."""
        address, settings = Address(tuple(unit), name), settings or self.settings
        return self.add_node(address, Design(plain_config(address, settings is not None), settings))

    def add_node(self, address: Address, design: Design) -> Node:
        """A node of that design, which does not run yet."""
        name = address.node
        if name in self.nodes:
            raise ConfigError(f"there are two nodes {name!r}; give each its own name")
        grain_ns = max(1, round(self.timing.grain_ms * 1e6))
        node = Node(address, self.clock, self.streams, design, self._touch, self._codec, grain_ns, self._dialling)
        self.nodes[name] = node
        return node

    def join(
        self, a: str, b: str, quality: Quality | None = None, back: Quality | None = None, datagrams: bool = False,
        manages: str = "", joins: bool = True,
    ) -> Connection:  # fmt: skip
        """A link between two nodes; `back` is its quality from `b` to `a` if that is another.

        `manages`: the one of them that is a broker, to which the other keeps a management link.
        """
        if a == b or (a, b) in self.links or (b, a) in self.links:
            raise ConfigError(f"a link {a}-{b} is there already, or its ends are the same")
        forth = quality or Quality()
        rngs = (self.streams.of("link", a, b), self.streams.of("link", b, a), self.streams.of("dial", a, b))
        ends = (self._node(a), self._node(b))
        link = Connection(self.clock, ends, (forth, back or forth), self.timing, rngs, datagrams, manages, joins)
        self.links[a, b] = link
        link.look = self._look if self._looks else None
        if link.possible:
            link.dial(at_once=True)
        return link

    def link(self, a: str, b: str) -> Connection:
        """The link between two nodes, in whatever order they are named."""
        found = self.links.get((a, b)) or self.links.get((b, a))
        if found is None:
            raise ConfigError(f"there is no link {a}-{b}")
        return found

    def start(self) -> None:
        """Start every node that does not run."""
        for node in self.nodes.values():
            node.start()
        for link in self.links.values():
            if link.possible:
                link.dial(at_once=True)

    def grow(self, pause_s: float = 1.0) -> None:
        """Start every node, then join clusters first, units of clusters next, and so on, as large meshes come about."""
        outer: dict[int, list[Connection]] = {}
        for link in self.links.values():
            level = level_between(link.ends[0].address, link.ends[1].address)
            if level:
                link.intact = False
                outer.setdefault(level, []).append(link)
        self.start()
        for level in sorted(outer):
            self.run(pause_s)
            for link in outer[level]:
                link.intact = True
                link.dial(at_once=True)
        self.run(pause_s)

    def run(self, seconds: float) -> None:
        """Let that much virtual time pass."""
        self._settle()
        self.clock.run(seconds)

    # --- failures

    def crash(self, name: str, silent: bool = False) -> None:
        """A node's process ends; `silent`: its machine does, so that neighbours find out by their heartbeats only."""
        node = self._node(name)
        if not node.running:
            return
        node.stop()
        for link in node.connections.values():
            if silent:
                link.silence(node)
            else:
                link.reset(node)
        for key, dialling in self._kept.items():
            if name in dialling:
                dialling.discard(name)
                self._release(key)
        self._tell("crash", name)

    def restart(self, name: str) -> None:
        """A node starts with empty tables and dials its neighbours."""
        node = self._node(name)
        if node.running:
            return
        node.start()
        for link in node.connections.values():
            if link.possible:
                link.dial(at_once=True)
        self._tell("restart", name)

    def cut(self, a: str, b: str) -> None:
        """A line goes dead without a word."""
        link = self.link(a, b)
        if link.intact:
            link.fail()
            self._tell("cut", link.name)

    def mend(self, a: str, b: str) -> None:
        """The line carries again; the next attempt to connect succeeds."""
        link = self.link(a, b)
        if not link.intact:
            link.mend()
            self._tell("mend", link.name)

    # --- links that cells want

    def _dialling(self, node: Node, effect: Dial | HangUp) -> None:
        a, b = node.name, effect.name
        key = (a, b) if (a, b) in self.links or (b, a) not in self.links else (b, a)
        link = self.links.get(key)
        if link is not None and link.joins:
            return
        if isinstance(effect, HangUp):
            if key in self._kept:
                self._kept[key].discard(a)
                self._release(key)
        elif b in self.nodes and self._reachable(a, b):
            self._kept.setdefault(key, set()).add(a)
            if link is None:
                self.join(a, b, self._quality(a, b), self._quality(b, a), joins=False)
            elif not link.intact:
                link.mend()

    def _release(self, key: tuple[str, str]) -> None:
        """End a link that neither end dials any more."""
        if not self._kept[key] and self.links[key].intact:
            self.links[key].end()

    def partition(self, *groups: Iterable[str]) -> list[tuple[str, str]]:
        """Cut every line between two groups of nodes; who is in none makes one more. The lines, to mend them."""
        side = {name: at for at, group in enumerate(groups, 1) for name in group}
        lines = [(a, b) for (a, b), link in self.links.items() if link.intact and side.get(a, 0) != side.get(b, 0)]
        for a, b in lines:
            self.cut(a, b)
        return lines

    # --- looking

    def watch(self, look: Look) -> None:
        """Show what nodes send over links: node, link, bytes (whole frames unless the line is short of room)."""
        self._looks.append(look)
        for link in self.links.values():
            link.look = self._looks[0] if len(self._looks) == 1 else self._look

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.running]

    def balance(self) -> int:
        """Bytes that no pipe can account for."""
        return sum(abs(pipe.balance) for link in self.links.values() for pipe in (*link.pipes, *link.datagrams))

    def _node(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            raise ConfigError(f"there is no node {name!r}")
        return node

    def _look(self, node: Node, link: Connection, piece: bytes) -> None:
        for look in self._looks:
            look(node, link, piece)

    def _tell(self, what: str, whom: str) -> None:
        for change in self.changes:
            change(what, whom)

    def _touch(self, node: Node) -> None:
        self._touched[node] = None

    def _settle(self) -> None:
        while self._touched:
            touched, self._touched = self._touched, {}
            for node in touched:
                node.settle()


class Tape:
    """A digest of everything that was sent, with its time: two runs are the same if their digests are."""

    def __init__(self, network: Network) -> None:
        self._clock = network.clock
        self._hash = hashlib.blake2b(digest_size=16)
        self.pieces = 0
        network.watch(self._look)

    def _look(self, node: Node, link: Connection, piece: bytes) -> None:
        self.pieces += 1
        self._hash.update(f"{self._clock.now_ns} {node.name} {link.name} {len(piece)} ".encode())
        self._hash.update(piece)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
