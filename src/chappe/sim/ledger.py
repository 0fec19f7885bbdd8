"""The books of a simulated mesh: every event that was published, who forwarded it, who got it, and who should have.

An event is *due* at a subscriber if publisher's and subscriber's nodes were up, subscribed and joined by links that
stayed up, from `settle_s` before its sending until `settle_s` after it: ends that stay connected until the mesh has
converged. What is due must arrive once; what is not due may arrive once or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from chappe.events.source_route import decode
from chappe.sim._pump import Reader
from chappe.sim.client import Arrival, Client
from chappe.sim.connection import Connection
from chappe.sim.network import Network
from chappe.sim.node import Node

ROUTES = 100_000  # whose meaning is remembered
Matches = Callable[[str, str], bool]  # whether a pattern of a subscriber takes a topic


@dataclass(slots=True)
class Entry:
    """One event and what became of it."""

    publisher: Client
    sequence: int
    topic: str
    sent_ns: int
    rerouted: bool = False  # somebody on its way lost a neighbour
    parted: bool = False  # a unit among its destinations was in parts
    got: dict[Client, int] = field(default_factory=dict)
    forwards: dict[tuple[str, int], list[tuple[Connection, int, int]]] = field(
        default_factory=dict
    )  # link, its life, when


@dataclass(frozen=True, slots=True)
class Missing:
    """An event that was due and did not arrive."""

    sent_ns: int
    publisher: str
    sequence: int
    topic: str
    subscriber: str
    forwarders: tuple[str, ...]


@dataclass(slots=True)
class Sums:
    """What the books say."""

    published: int = 0
    forwards: int = 0
    due: int = 0
    met: int = 0  # of those that were due
    extra: int = 0  # arrived although not due
    repeats: int = 0  # arrived again at a subscriber to whom they were due
    again: int = 0  # arrived again where they were not: its node was started anew in between, or cut off
    disorder: int = 0  # arrived after a later one of the same publisher and topic
    twice: int = 0  # forwarded again by one node for no reason
    rerouted: int = 0  # forwarded again because somebody on its way had lost a neighbour
    parted: int = 0  # forwarded again because a unit had fallen apart, and each part is a destination
    late: int = 0  # was due, and arrived after it had been judged
    strangers: int = 0  # arrived so late that nothing is known of it any more


class Ledger:
    """Keeps books from its making on; `close` judges what is old enough, `sums` says what was found."""

    def __init__(self, network: Network, matches: Matches, settle_s: float = 5.0, keep: int = 100) -> None:
        self.sums = Sums()
        self.missing: list[Missing] = []
        self.latencies_ns: list[int] = []
        self._network = network
        self._matches = matches
        self._settle_ns = round(settle_s * 1e9)
        self._keep = keep
        self._open: dict[tuple[bytes, int], Entry] = {}
        self._order: deque[Entry] = deque()
        self._subscribers: list[Client] = []
        self._wanted: dict[str, list[tuple[Client, str]]] = {}
        self._newest: dict[tuple[Client, bytes, str], int] = {}
        self._routes: dict[bytes, tuple[bool, bool]] = {}
        self._awaited: set[tuple[bytes, int, Client]] = set()
        self._readers: dict[tuple[Connection, str], tuple[int, Reader]] = {}
        self._names = list(network.nodes)
        self._index = {name: at for at, name in enumerate(self._names)}
        network.watch(self._look)

    def subscriber(self, client: Client) -> None:
        """Book what this client gets; its subscriptions are looked at when an event is judged."""
        self._subscribers.append(client)
        self._wanted.clear()
        client.on_arrival = self._arrived

    def publish(self, client: Client, topic: str, body: bytes = b"") -> None:
        """Let a client publish, and book it; nothing happens while its node is down."""
        if not client.attached:
            return
        entry = Entry(client, client.published + 1, topic, self._network.clock.now_ns)
        self._open[client.issuer, entry.sequence] = entry
        self._order.append(entry)
        self.sums.published += 1
        client.publish(topic, body)

    def close(self) -> None:
        """Judge the events that are old enough; call it once a second or so."""
        now_ns = self._network.clock.now_ns
        while self._order and self._order[0].sent_ns + self._settle_ns <= now_ns:
            start_ns = self._order[0].sent_ns
            group = []
            while self._order and self._order[0].sent_ns <= start_ns + 1_000_000_000:
                if self._order[0].sent_ns + self._settle_ns > now_ns:
                    break
                group.append(self._order.popleft())
            label = self._components(start_ns - self._settle_ns)
            for entry in group:
                self._judge(entry, label)
                del self._open[entry.publisher.issuer, entry.sequence]

    # --- what happens

    def _arrived(self, client: Client, arrival: Arrival) -> None:
        entry = self._open.get((arrival.issuer, arrival.sequence))
        key = (client, arrival.issuer, arrival.topic)
        if arrival.sequence < self._newest.get(key, 0):
            self.sums.disorder += 1
        else:
            self._newest[key] = arrival.sequence
        if entry is None:
            if (arrival.issuer, arrival.sequence, client) in self._awaited:
                self._awaited.discard((arrival.issuer, arrival.sequence, client))
                self.sums.late += 1
            else:
                self.sums.strangers += 1
            return
        entry.got[client] = entry.got.get(client, 0) + 1
        if entry.got[client] == 1:
            self.latencies_ns.append(arrival.when_ns - entry.sent_ns)

    def _look(self, node: Node, link: Connection, piece: bytes) -> None:
        life, reader = self._readers.get((link, node.name), (0, None))
        if reader is None or life != link.life:
            reader = Reader()
            self._readers[link, node.name] = (link.life, reader)
        for issuer, sequence, _, route in reader.events(piece):
            self.sums.forwards += 1
            entry = self._open.get((issuer or b"", sequence))
            if entry is None:
                continue
            if route is not None:
                rerouted, parted = self._troubles(route)
                entry.rerouted, entry.parted = entry.rerouted or rerouted, entry.parted or parted
            before = entry.forwards.setdefault((node.name, node.counts.lives), [])
            if before:
                self._again(entry, before, link)
            before.append((link, link.life, self._network.clock.now_ns))

    def _troubles(self, route: bytes) -> tuple[bool, bool]:
        """Whether somebody had to leave the route that was planned at first, and whether a unit on it is in parts."""
        found = self._routes.get(route)
        if found is None:
            if len(self._routes) >= ROUTES:
                self._routes.clear()
            read = decode(route)
            names = [unit.name for unit in (*read.units, *(leaf for step in read.tree for leaf in step.leaves))]
            parted = any("@" in name for name in (*names, *read.trace))
            found = self._routes[route] = (read.reroutes > 0, parted)
        return found

    def _again(self, entry: Entry, before: list[tuple[Connection, int, int]], link: Connection) -> None:
        """A node sends an event again: to another branch at once, in the course of a reroute, or wrongly."""
        repeated = any(link is other and link.life == life for other, life, _ in before)
        if not repeated and all(when_ns == self._network.clock.now_ns for _, _, when_ns in before):
            return
        entry.rerouted = entry.rerouted or any(other.life != life or not other.connected for other, life, _ in before)
        if entry.rerouted:
            self.sums.rerouted += 1
        elif entry.parted:
            self.sums.parted += 1
        else:
            self.sums.twice += 1

    # --- judging

    def _components(self, since_ns: int) -> dict[str, int]:
        """Which nodes are joined by what has been up since then; those that were not up are left out."""
        nodes = self._network.nodes
        up = {name for name, node in nodes.items() if node.running and node.since_ns <= since_ns}
        rows, columns = [], []
        for (a, b), link in self._network.links.items():
            if link.connected and link.since_ns <= since_ns and a in up and b in up:
                rows.append(self._index[a])
                columns.append(self._index[b])
        size = len(self._names)
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
        _, label = connected_components(graph, directed=False)
        return {name: int(label[self._index[name]]) for name in up}

    def _judge(self, entry: Entry, label: dict[str, int]) -> None:
        sums = self.sums
        home = label.get(entry.publisher.node.name)
        since_ns = entry.sent_ns - self._settle_ns
        for client in self._subscribers_of(entry.topic):
            got = client in entry.got
            place = label.get(client.node.name)
            due = home is not None and place == home and self._wanted_since(client, entry.topic, since_ns)
            more = max(0, entry.got.get(client, 0) - 1)
            if due:
                sums.due += 1
                sums.met += got
                sums.repeats += more
                if not got:
                    self._awaited.add((entry.publisher.issuer, entry.sequence, client))
                    if len(self.missing) < self._keep:
                        self.missing.append(self._missed(entry, client))
            else:
                sums.extra += got
                sums.again += more

    def _subscribers_of(self, topic: str) -> list[Client]:
        found = self._wanted.get(topic)
        if found is None:
            found = self._wanted[topic] = [
                (client, each.pattern)
                for client in self._subscribers
                for each in client.subscriptions
                if self._matches(each.pattern, topic)
            ]
        return list(dict.fromkeys(client for client, _ in found))

    def _wanted_since(self, client: Client, topic: str, since_ns: int) -> bool:
        return any(each.since_ns <= since_ns and self._matches(each.pattern, topic) for each in client.subscriptions)

    def _missed(self, entry: Entry, client: Client) -> Missing:
        forwarders = tuple(
            f"{name}>{','.join(link.name for link, _, _ in links)}" for (name, _), links in entry.forwards.items()
        )
        return Missing(
            entry.sent_ns, entry.publisher.node.name, entry.sequence, entry.topic, client.node.name, forwarders
        )
