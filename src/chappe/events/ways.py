"""Where the events of a topic go from this node: asked once a topic and again when map or interest change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chappe.events.interest import Subscriptions

if TYPE_CHECKING:
    from chappe.netmap.units import Address, Thing


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a node does with the events of one topic that came by one way."""

    local: bool  # deliver to the subscribers of this node
    branches: tuple[tuple[str, bytes], ...] = ()  # (peer, way) of each copy that leaves
    hold_ns: int = 0  # how long the first events wait, so that they do not overtake those on the old way
    groups: tuple[str, ...] | None = None  # queue groups served here; None: all that have members here
    undeliverable: tuple[Thing, ...] = ()  # destinations that have no way now: counted, once for each event
    again: bool = False  # a rescue: pass on what this node has seen before, too, but do not deliver it twice


class Ways:
    """The ways of one node; `changed()` whenever the network map or the interest of others is another one."""

    def __init__(self, me: Address, state: Any, mine: Subscriptions | None = None, profile: str = "default") -> None:
        self.me = me
        self.mine = mine if mine is not None else Subscriptions()
        self.profile = profile

    def changed(self) -> None:
        """Ways may be others now; what was computed is forgotten, the last way of each topic is kept for comparison."""
        raise NotImplementedError

    def publish(self, kind: str, topic: bytes) -> Outputs:
        """Where events of this node's own clients go."""
        raise NotImplementedError

    def forward(self, peer: str, way: bytes, kind: str, topic: bytes) -> Outputs:
        """Where events go that came from a peer with this way; ProtocolError if the way makes no sense here."""
        raise NotImplementedError

    def rescue(self, way: bytes, kind: str, topic: bytes, lost: str) -> Outputs:
        """Where events go that were sent to the lost peer with this way and not confirmed."""
        raise NotImplementedError
