"""Forwarding decisions as the engine takes them: ports for neighbours, without those that rules deny the events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from chappe.engine._engine import Engine
from chappe.engine.routes import ForwardingDecision
from chappe.events.forwarding import ForwardingTable, NextHops
from chappe.events.member_links import Links
from chappe.wire.addresses import KIND

Withheld = Callable[[str, bytes, Callable[[], Iterable[str]]], frozenset[str]]
"""Nodes among these that rules deny the events of a topic (kind, topic); they are asked for if there is such a rule."""

NOWHERE, HERE = NextHops(False), NextHops(True)


class Decisions:
    """What the engine is answered; it asks at the first event of a topic after `apply`."""

    def __init__(self, engine: Engine, forwarding: ForwardingTable, links: Links, withheld: Withheld) -> None:
        self.changed = False  # map, interest or rules are others: `apply` is due
        self._engine = engine
        self._forwarding = forwarding
        self._links = links
        self._withheld = withheld
        self._applied_ns = 0

    def apply(self) -> None:
        """Plan routes anew."""
        self.changed = False
        self._applied_ns = self._engine.mono_ns
        self._forwarding.changed()
        self._engine.topics.forwarding_changed()

    def plan_route(self, kind: str, topic: bytes) -> ForwardingDecision:
        """Where events of clients of this node go."""
        hops = self._forwarding.publish(kind, topic)
        if kind == KIND and hops == NOWHERE and self._engine.topics.match(topic.decode(), kind)[0]:
            hops = HERE  # a neighbour that is in no mesh
        # The engine asks at the first event after a change: older ones left before it, and are that much ahead.
        ahead_ns = self._engine.mono_ns - self._applied_ns
        if hops.hold_ns:
            hops = replace(hops, hold_ns=max(0, hops.hold_ns - ahead_ns))
        return self.decide(hops, kind, topic)

    def forward_route(self, port: int, source_route: bytes, kind: str, topic: bytes) -> ForwardingDecision:
        """Where events that came with that route go."""
        link = self._links.by_port.get(port)
        peer = link.name if link is not None else ""
        return self.decide(self._forwarding.forward(peer, source_route, kind, topic), kind, topic)

    def decide(self, hops: NextHops, kind: str, topic: bytes) -> ForwardingDecision:
        """As the engine takes it, without neighbours that may not have it: a route may name one that others trust."""
        ports = self._links.ports
        refused = self._withheld(kind, topic, lambda: [peer for peer, _ in hops.branches])
        next_hops = [
            (ports[peer], source_route) for peer, source_route in hops.branches if peer in ports and peer not in refused
        ]
        denied = hops.denied + sum(peer in refused for peer, _ in hops.branches)
        return ForwardingDecision(
            hops.local, next_hops, hops.hold_ns, hops.groups, hops.rest, hops.back, denied,
            hops.incapable,
        )  # fmt: skip
