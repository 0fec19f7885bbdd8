"""The network map of one node: its links, those of others, and the routes over them (MR-010 to MR-018)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from chappe.linkstate.changes import InterestChanged, MapResult
from chappe.linkstate.current_map import routes_changed
from chappe.linkstate.expiry import Believe
from chappe.linkstate.origination import NOTHING, Interest
from chappe.linkstate.parts import Parts
from chappe.linkstate.peers import unfit
from chappe.linkstate.purge import merged
from chappe.linkstate.rows import map_rows
from chappe.linkstate.units import Address, VertexId
from chappe.measure.cost import Metrics
from chappe.wire.base import Message
from chappe.wire.patterns import Pattern


class LinkState:
    """One member's part of the link-state protocol, without clock and socket: every call returns what is to be done."""

    def __init__(self, parts: Parts) -> None:
        self.me = parts.me
        self.settings = parts.settings
        self.database = parts.database
        self.clock = parts.clock
        self._wall = parts.wall
        self._interest = NOTHING
        self._originator = parts.originator
        self._election = parts.election
        self._exchange = parts.exchange
        self._interests = parts.interests
        self._map = parts.current
        self._links = parts.links
        self._acceptance = parts.acceptance
        self._expiry = parts.expiry
        self._reception = parts.reception
        self._started = False  # the clock of the mesh
        self.routes = self._map.routes

    @property
    def refused(self) -> Counter[str]:
        """What was not believed, by neighbour."""
        return self._acceptance.refused

    @property
    def stale(self) -> Counter[str]:
        """Statements that were too old or too new, by originator."""
        return self._acceptance.stale

    # --- own links

    def up(self, peer: str, address: Address, link: bytes, kind: str, now_ns: int) -> list[MapResult]:
        """A link to a neighbour is there."""
        now_ns, out = self._begin(now_ns)
        wrong = unfit(self.me, peer, address, link, self._links.own.links)
        if wrong:
            return self._acceptance.refuse(out, peer, wrong, now_ns)
        if self._exchange.link_up(peer, address, link, out):
            self._election.joined(0, now_ns)
        self._links.up(peer, address, link, kind, now_ns)
        self._exchange.originate(now_ns, out)
        return out

    def down(self, peer: str, link: bytes, now_ns: int) -> list[MapResult]:
        """It is gone; one that is not known is no error."""
        now_ns, out = self._begin(now_ns)
        lost = self._links.down(link, now_ns)
        if lost is not None:
            neighbour, results = lost
            self._exchange.link_down(neighbour, link, now_ns, out)
            out += results
            self._exchange.originate(now_ns, out)
        return out

    def suspect(self, link: bytes, on: bool, now_ns: int) -> list[MapResult]:
        """An own link is suspected of having failed (MR-021), or no longer."""
        now_ns, out = self._begin(now_ns)
        if self._links.suspect(link, on, now_ns):
            self._exchange.originate(now_ns, out)
        return out

    def measured(self, link: bytes, metrics: Metrics, now_ns: int, samples: int = 0) -> list[MapResult]:
        """An own link has new metrics; advertised if they moved enough (MR-112), beyond the noise of samples."""
        now_ns, out = self._begin(now_ns)
        if self._links.measured(link, metrics, samples, now_ns, out):
            self._exchange.originate(now_ns, out)
        return out

    def peer(self, link: bytes) -> str | None:
        """The neighbour at the other end of an own link."""
        own = self._links.own.links.get(link)
        return own.peer if own is not None else None

    def neighbours(self, level: int) -> list[str]:
        """Those that lie in the own unit of a level, too (1: the cluster)."""
        return sorted(name for name, peer in self._exchange.peers.items() if peer.level < level)

    # --- interest

    def want(
        self, patterns: Iterable[Pattern], publications: Iterable[Pattern], now_ns: int,
        variables: Iterable[Pattern] = (),
    ) -> list[MapResult]:  # fmt: skip
        """Interest and publications of this node, in place of those before; `variables`: that it is the source of."""
        now_ns, out = self._begin(now_ns)
        interest = Interest(*(tuple(sorted(set(each))) for each in (patterns, publications, variables)))
        if interest != self._interest:
            self._interest = interest
            self._originator.interest(0, interest, now_ns)
            self._map.units_changed = True
            self._exchange.originate(now_ns, out)
        return out

    def wanting(self, kind: str, topic: bytes) -> dict[VertexId, frozenset[str]]:
        """Vertices of every level with interest in a topic, without this node and its own units.

        They can be reached, or could a moment ago. With the queue groups that subscribed there; the empty name stands
        for plain subscribers.
        """
        return self._interests.find(self._map.current_view(), kind, topic)

    def publications(self) -> dict[VertexId, tuple[Pattern, ...]]:
        """What is advertised to be published, by vertex (MR-133)."""
        return self._interests.publications(self._map.current_view(), self._interest)

    def variables(self) -> dict[VertexId, tuple[Pattern, ...]]:
        """What variables are published at other vertices, as patterns over publisher/variable."""
        return self._interests.variables(self._map.current_view())

    # --- protocol

    def receive(self, peer: str, message: Message, now_ns: int) -> list[MapResult]:
        """A message of a neighbour; what cannot be believed changes nothing and gives a Notice."""
        now_ns, out = self._begin(now_ns)
        self._reception.receive(peer, message, now_ns, out)
        return out

    def restate(self, now_ns: int) -> list[MapResult]:
        """Advertise everything again, as after a new certificate: others hold it before the old one expires."""
        now_ns, out = self._begin(now_ns)
        self._originator.restate(now_ns)
        self._exchange.originate(now_ns, out)
        return out

    def revalidate(self, believed: Believe, now_ns: int) -> list[MapResult]:
        """Drop what was signed by those who are not believed any more: other authorities, or revoked certificates."""
        now_ns, out = self._begin(now_ns)
        self._expiry.revalidate(believed)
        return out

    def synchronised(self, peers: Iterable[str]) -> bool:
        """Whether this node has what these neighbours had when they met, and a map of it."""
        return self._exchange.synchronised(peers) and not self._map.changed

    def tick(self, now_ns: int) -> list[MapResult]:
        """Do what is due: compute the map anew, advertise, refresh, forget."""
        now_ns, out = self._begin(now_ns)
        current = self._map
        self._expiry.tick(now_ns)
        current.tick(now_ns)
        if current.election_due or now_ns >= self._election.next_ns:
            current.units_changed = False
            self._election.update(current.computed_view, self._interest, now_ns)
            current.retire(self._election.withdrawn)
        current.partitions.tick(now_ns, current.deferred)
        if self._interests.expire(now_ns):
            current.deferred.append(InterestChanged())
        self._reception.correct_clock(now_ns, out)
        self._links.refresh(now_ns, out)
        self._exchange.originate(now_ns, out)
        self._exchange.tick(now_ns, out)
        out += current.deferred
        current.deferred = []
        return out

    def next_ns(self) -> int:
        """When `tick` has something to do at the latest."""
        current = self._map
        if current.deferred or current.election_due:
            return current.now_ns
        due_ns = min(
            self._expiry.next_ns, self.clock.next_ns, self._exchange.next_ns(), self._election.next_ns,
            self._originator.next_ns(), self._interests.next_ns, current.next_ns(),
        )  # fmt: skip
        return max(due_ns, current.now_ns)

    def perform(self, on: bool, now_ns: int) -> list[MapResult]:
        """Route by measured costs, or by static ones (MR-117)."""
        now_ns, out = self._begin(now_ns)
        self._map.bring_up_to_date()
        if on != self.routes.performance:
            out += routes_changed(self.routes.perform(on, now_ns))
        return out

    # --- the map

    def vertex_ids(self) -> list[VertexId]:
        """All that can be reached, without this node and its own units."""
        here = VertexId(0, self.me.node)
        return [vertex.vertex_id for vertex in self._map.current_view().vertices if vertex.vertex_id != here]

    def resolve(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """The vertices in this map that a name stands for: itself, the parts of a unit that fell apart, or none."""
        return self._map.current_view().resolve(vertex_id)

    def lacking(self, needs: Collection[str]) -> frozenset[VertexId]:
        """Vertices of the map that do not have all of these capabilities."""
        able = {vertex.vertex_id: vertex.capabilities for vertex in self._map.current_view().vertices}
        return frozenset(vertex_id for vertex_id, words in able.items() if not set(needs) <= set(words))

    def merged(self, vertex_id: VertexId) -> bool:
        """Whether a vertex was another part of an own unit, and is one with this part now."""
        return merged(self.database, self._map.current_view(), vertex_id, self._interests.missed())

    def members(self) -> list[str]:
        """Nodes of the own cluster that can be reached, this one included."""
        return [vertex.origin for vertex in self._map.current_view().vertices if not vertex.level]

    def controller(self, level: int) -> str:
        """The node that originates for the own unit of level 1 (the cluster) to depth; one more is the whole mesh."""
        return self._map.current_view().controllers[level]

    @property
    def stamp(self) -> int:
        """Changes whenever the map does, what its links cost, or what variables are advertised."""
        return self._map.computed + self._interests.variables_changed

    @property
    def parted(self) -> tuple[VertexId, ...]:
        """Parts of broken units in this map, and vertices that cannot be reached though they advertise one another."""
        view = self._map.current_view()
        return tuple(sorted({*view.lost, *(part for parts in view.parts.values() for part in parts)}))

    def map_rows(self) -> list[dict[str, Any]]:
        """One row a link of the map; those that are suspected are on no route."""
        return map_rows(self._map.current_view(), self.routes.costs("default"))

    def link_rows(self) -> list[dict[str, Any]]:
        """One row an own link."""
        self._links.own.renew()
        return [self._links.own.links[link].row() for link in sorted(self._links.own.links)]

    def advertised(self, link: bytes) -> tuple[list[tuple[float, float]], Metrics]:
        """The advertised cost of an own link by each profile, how far from it is no change, and its metrics."""
        return self._links.own.links[link].quiet(self.settings) if link in self._links.own.links else ([], Metrics())

    # --- how

    def _begin(self, now_ns: int) -> tuple[int, list[MapResult]]:
        """The time, which never goes back, and where the results of a call are gathered."""
        self._map.begin(now_ns)
        if not self._started:
            self._started = True
            self.clock.start(self._wall(), self._map.now_ns)
        return self._map.now_ns, []
