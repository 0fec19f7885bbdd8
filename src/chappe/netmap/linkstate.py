"""The network map of one node: its own links, what others tell of theirs, and the ways over them (MR-010 to MR-018)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from chappe.measure.cost import Metrics
from chappe.netmap.outputs import Output
from chappe.netmap.routes import Routes
from chappe.netmap.settings import Settings
from chappe.netmap.units import Address, Thing
from chappe.wire.base import Message
from chappe.wire.patterns import Pattern

Sign = Callable[[bytes], bytes]  # what this node says of a text
Verify = Callable[[str, bytes, bytes], bool]  # whether the node of that name said so: name, text, signature


class LinkState:
    """One member's part of the link-state protocol. It has no clock and no socket; every call returns what is to be done."""

    def __init__(
        self,
        me: Address,
        settings: Settings,
        rng: random.Random,
        sign: Sign | None = None,
        verify: Verify | None = None,
    ) -> None:
        self.me = me
        self.settings = settings
        self.routes = Routes()

    # --- own links

    def up(self, peer: str, address: Address, link: bytes, kind: str, now_ns: int) -> list[Output]:
        """A link to a neighbour is there."""
        raise NotImplementedError

    def down(self, peer: str, link: bytes, now_ns: int) -> list[Output]:
        """It is gone; one that is not known is no error."""
        raise NotImplementedError

    def suspect(self, link: bytes, on: bool, now_ns: int) -> list[Output]:
        """An own link is suspected of having failed (MR-021), or no longer."""
        raise NotImplementedError

    def measured(self, link: bytes, metrics: Metrics, now_ns: int) -> list[Output]:
        """An own link has new metrics; they are told if they moved far enough (MR-112)."""
        raise NotImplementedError

    def peer(self, link: bytes) -> str | None:
        """The neighbour at the other end of an own link."""
        raise NotImplementedError

    # --- interest

    def want(self, patterns: Iterable[Pattern], publications: Iterable[Pattern], now_ns: int) -> list[Output]:
        """What is wanted and what is published at this node, in place of what was told before."""
        raise NotImplementedError

    def interested(self, kind: str, topic: bytes) -> list[Thing]:
        """Things of every level that want events of a topic and can be reached, without this node and its own units."""
        raise NotImplementedError

    def wanting(self, kind: str, topic: bytes) -> dict[Thing, frozenset[str]]:
        """The same with the queue groups that want it there; the empty name stands for plain subscribers."""
        raise NotImplementedError

    def publications(self) -> dict[Thing, tuple[Pattern, ...]]:
        """What is advertised to be published, by thing (MR-133)."""
        raise NotImplementedError

    # --- protocol

    def receive(self, peer: str, message: Message, now_ns: int) -> list[Output]:
        """A message of a neighbour; what cannot be believed changes nothing and gives a Notice."""
        raise NotImplementedError

    def tick(self, now_ns: int) -> list[Output]:
        """Do what is due: compute the map anew, tell, refresh, forget."""
        raise NotImplementedError

    def next_ns(self) -> int:
        """When `tick` has something to do at the latest."""
        raise NotImplementedError

    def perform(self, on: bool, now_ns: int) -> list[Output]:
        """Route by measured costs, or by static ones (MR-117)."""
        raise NotImplementedError

    # --- the map

    def things(self) -> list[Thing]:
        """All that can be reached, without this node and its own units."""
        raise NotImplementedError

    def resolve(self, thing: Thing) -> tuple[Thing, ...]:
        """The things in this map that a name stands for: itself, the parts of a unit that fell apart, or none."""
        raise NotImplementedError

    def members(self) -> list[str]:
        """Nodes of the own cluster that can be reached, this one included."""
        raise NotImplementedError

    def controller(self, level: int) -> str:
        """The node that speaks for the own unit of level 1 (the cluster) to depth."""
        raise NotImplementedError

    @property
    def parted(self) -> tuple[Thing, ...]:
        """Parts of broken units in this map, and things that cannot be reached though they tell of one another."""
        raise NotImplementedError

    def map_rows(self) -> list[dict[str, Any]]:
        """One row a usable link of the map."""
        raise NotImplementedError

    def link_rows(self) -> list[dict[str, Any]]:
        """One row an own link."""
        raise NotImplementedError
