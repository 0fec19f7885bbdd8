"""A mesh in memory: network maps and ways of many nodes, messages between them at once or held back, no engine."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from chappe.events.forwarding import ForwardingTable, NextHops
from chappe.events.interest import Pattern, Subscriptions, Wanted
from chappe.events.source_route import decode
from chappe.linkstate.changes import InterestChanged, MapResult, Notice, RoutesChanged
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address, VertexId
from chappe.machine import Send
from chappe.measure.cost import Metrics
from chappe.wire.base import Message

SECOND = 1_000_000_000


@dataclass
class Journey:
    """What became of one event."""

    delivered: Counter[str] = field(default_factory=Counter)  # nodes whose plain subscribers got it
    served: Counter[str] = field(default_factory=Counter)  # queue groups that got it
    visited: Counter[str] = field(default_factory=Counter)
    hops: list[tuple[str, str]] = field(default_factory=list)
    undeliverable: list[VertexId] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)  # hops over links that were gone
    rerouted: int = 0
    strayed: bool = False  # a node on its way had to plan anew
    parted: bool = False  # a unit on its way had fallen apart
    kind: str = "s"  # of its topic


class EventMesh:
    """Nodes by name; what they tell each other arrives when `settle` is called, or by and by with `step`."""

    def __init__(self, addresses: Iterable[Address], seed: int = 1, settings: Settings | None = None) -> None:
        self.now_ns = 0
        self.rng = random.Random(seed)
        self.addresses = {address.node: address for address in addresses}
        self.states = {
            name: LinkState(Parts(address, settings or Settings(), random.Random(seed * 1000 + number)))
            for number, (name, address) in enumerate(self.addresses.items())
        }
        self.mine = {name: Subscriptions() for name in self.states}
        self.forwarding = {
            name: ForwardingTable(
                self.addresses[name],
                state,
                self.mine[name],
                connected=lambda peer, me=name: frozenset((me, peer)) in self.links,  # type: ignore[misc]
            )
            for name, state in self.states.items()
        }
        self.links: dict[frozenset[str], bytes] = {}
        self.latency_ms: dict[frozenset[str], float] = {}
        self.mail: deque[tuple[str, str, Message]] = deque()
        self.published: dict[str, tuple[Pattern, ...]] = {}
        self.notices: list[tuple[str, Notice]] = []
        self._numbers = 0

    # --- changes

    def link(self, a: str, b: str, latency_ms: float | None = None) -> None:
        """A link between two nodes, of a latency that both have measured."""
        pair = frozenset((a, b))
        if a == b or pair in self.links:
            return
        self._numbers += 1
        self.links[pair] = number = self._numbers.to_bytes(16, "big")
        for me, peer in ((a, b), (b, a)):
            self._obey(me, self.states[me].up(peer, self.addresses[peer], number, "tcp", self.now_ns))
        if latency_ms is not None:
            self.measure(a, b, latency_ms)

    def measure(self, a: str, b: str, latency_ms: float, jitter: float = math.nan) -> None:
        """Both ends find another latency."""
        number = self.links[frozenset((a, b))]
        self.latency_ms[frozenset((a, b))] = latency_ms
        for me in (a, b):
            self._obey(me, self.states[me].measured(number, Metrics(latency_ms, jitter=jitter, loss=0.0), self.now_ns))

    def cut(self, a: str, b: str) -> None:
        """The link is gone, with what was under way on it."""
        number = self.links.pop(frozenset((a, b)))
        self.mail = deque(item for item in self.mail if frozenset(item[:2]) != frozenset((a, b)))
        for me, peer in ((a, b), (b, a)):
            self._obey(me, self.states[me].down(peer, number, self.now_ns))

    def subscribe(self, node: str, text: str, group: str = "", kind: str = "s") -> None:
        """A client of that node subscribes."""
        self.mine[node].add(kind, text, group)
        self._want(node)

    def unsubscribe(self, node: str, text: str, group: str = "", kind: str = "s") -> None:
        """It does so no more."""
        self.mine[node].remove(kind, text, group)
        self._want(node)

    def advertise(self, node: str, *publications: Pattern) -> None:
        """What clients of that node are going to publish."""
        self.published[node] = publications
        self._want(node)

    def _want(self, node: str) -> None:
        published = self.published.get(node, ())
        while self.mine[node].due:
            self.mine[node].work()
        self._obey(node, self.states[node].want(self.mine[node].patterns(), published, self.now_ns))
        self.forwarding[node].changed()

    def _obey(self, node: str, outputs: Iterable[MapResult]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self.mail.append((node, str(output.to), output.message))
            elif isinstance(output, RoutesChanged | InterestChanged):
                self.forwarding[node].changed()
            elif isinstance(output, Notice):
                self.notices.append((node, output))

    # --- time

    def step(self, count: int = 1) -> None:
        """Deliver a few messages that wait, or let the next thing happen that is due."""
        for _ in range(count):
            if self.mail:
                sender, receiver, message = self.mail.popleft()
                self._obey(receiver, self.states[receiver].receive(sender, message, self.now_ns))
                continue
            due = min(self.states.values(), key=lambda state: state.next_ns())
            self.now_ns = max(self.now_ns, min(due.next_ns(), self.now_ns + SECOND))
            self._tick()

    def settle(self, seconds: float = 5.0) -> None:
        """Let this time pass, everything delivered."""
        end = self.now_ns + int(seconds * SECOND)
        while True:
            while self.mail:
                self.step()
            due = min(state.next_ns() for state in self.states.values())
            if due > end:
                self.now_ns = end
                return
            self.now_ns = max(self.now_ns, due)
            self._tick()

    def _tick(self) -> None:
        for name, state in self.states.items():
            if state.next_ns() <= self.now_ns:
                self._obey(name, state.tick(self.now_ns))

    # --- events

    def publish(
        self,
        node: str,
        topic: str,
        between: Callable[[], None] = lambda: None,
        *,
        reroute: bool = False,
        kind: str = "s",
    ) -> Journey:
        """Send one event, hop by hop; `between` is called before each hop.

        A hop over a link that is gone loses its copy, or with `reroute` the node before it finds another way.
        """
        journey = Journey(kind=kind)
        journey.visited[node] += 1
        outputs = self.forwarding[node].publish(kind, topic.encode())
        first = self._arrive(journey, node, topic, outputs)
        self._travel(journey, topic, first, between, reroute, [(node, outputs.rest)] if outputs.rest else [])
        return journey

    def inject(self, sender: str, receiver: str, source_route: bytes, topic: str) -> Journey:
        """A node gives its neighbour an event with a made up route; ProtocolError if it is refused at once."""
        journey = Journey()
        journey.visited[receiver] += 1
        first = self._arrive(
            journey, receiver, topic, self.forwarding[receiver].forward(sender, source_route, "s", topic.encode())
        )
        self._travel(journey, topic, first, lambda: None, False, [])
        return journey

    def _arrive(self, journey: Journey, at: str, topic: str, outputs: NextHops) -> list[tuple[str, str, bytes]]:
        """A node delivers an event once, and passes it on as often as it comes."""
        if journey.kind == "n":
            here = Wanted(topic.partition("@")[0] == str(self.addresses[at]))
        else:
            here = self.mine[at].wants(journey.kind, topic.encode())
        if outputs.local and at not in journey.delivered:
            journey.delivered[at] += here.plain
            groups = here.groups if outputs.groups is None else [g for g in here.groups if g in outputs.groups]
            journey.served.update(groups)
        journey.undeliverable += outputs.undeliverable
        journey.strayed |= any(decode(source_route).reroutes for _, source_route in outputs.branches)
        journey.parted |= any(b"@" in source_route for _, source_route in outputs.branches)
        return [(at, peer, source_route) for peer, source_route in outputs.branches]

    def _travel(
        self,
        journey: Journey,
        topic: str,
        first: list[tuple[str, str, bytes]],
        between: Callable[[], None],
        reroute: bool,
        undeliverable: list[tuple[str, bytes]],
    ) -> None:
        waiting = deque(first)
        while waiting or (reroute and undeliverable):
            if not waiting:  # what had no way is tried once more when the maps agree again
                self.settle(10)
                for at, source_route in undeliverable:
                    outputs = self.forwarding[at].reroute(source_route)
                    journey.undeliverable += outputs.undeliverable
                    waiting.extend((at, peer, other) for peer, other in outputs.branches)
                undeliverable = []
                continue
            between()
            sender, receiver, source_route = waiting.popleft()
            if frozenset((sender, receiver)) not in self.links:
                journey.lost.append((sender, receiver))
                if reroute:
                    journey.rerouted += 1
                    outputs = self.forwarding[sender].reroute(source_route)
                    if outputs.rest:
                        undeliverable.append((sender, outputs.rest))
                    waiting.extend((sender, peer, other) for peer, other in outputs.branches)
                continue
            journey.hops.append((sender, receiver))
            journey.visited[receiver] += 1
            outputs = self.forwarding[receiver].forward(sender, source_route, journey.kind, topic.encode())
            waiting.extend(self._arrive(journey, receiver, topic, outputs))
            if outputs.rest:
                undeliverable.append((receiver, outputs.rest))
