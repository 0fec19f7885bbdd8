"""The network map of one node: its links, those of others, and the routes over them (MR-010 to MR-018)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from chappe.errors import ProtocolError
from chappe.linkstate.acceptance import Acceptance, Object, Verify
from chappe.linkstate.changes import CostAdvertised, InterestChanged, MapResult, Notice
from chappe.linkstate.choices import NEVER
from chappe.linkstate.covering import Covering, reach
from chappe.linkstate.current_map import CurrentMap, routes_changed
from chappe.linkstate.database import MS, Advert, Database, key_of
from chappe.linkstate.election import Election
from chappe.linkstate.flooding import Flooding
from chappe.linkstate.interests import NOTHING, Interests
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.origination import Interest, Originator, leads_to
from chappe.linkstate.ownlinks import Latest, OwnLink, OwnLinks
from chappe.linkstate.peers import Peer, unfit
from chappe.linkstate.purge import merged, replaced
from chappe.linkstate.resync import Asked, Resync
from chappe.linkstate.rows import map_rows
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Facts, Location
from chappe.linkstate.units import Address, VertexId, level_between, visible
from chappe.machine import Send
from chappe.measure.cost import Metrics
from chappe.wire.base import Message
from chappe.wire.mesh import Digest, Key, LinkAdvert, Statement, StatementRequest, decode_advert
from chappe.wire.patterns import Pattern

Sign = Callable[[bytes], bytes]  # the signature of this node under the body of a statement
Believe = Callable[[str, bytes], bool]  # whether who signed is still believed: name, signature


class LinkState:
    """One member's part of the link-state protocol, without clock and socket: every call returns what is to be done."""

    def __init__(
        self, me: Address, settings: Settings, rng: random.Random,
        sign: Sign | None = None, verify: Verify | None = None, latest: Latest | None = None,
        wall: Callable[[], int] = lambda: 0, objection: Object | None = None,
        decode: Callable[[bytes], Advert] = decode_advert,
    ) -> None:  # fmt: skip
        """`wall`: the wall clock, read once; `decode`: what reads the body of a statement."""
        self.me = me
        self.settings = settings
        self.database = Database(settings.lifetime_ns, settings.tolerance_ns, settings.max_adverts)
        self.clock = MeshClock(settings, rng)
        self._decode = decode
        self._wall = wall
        self._introduced: set[str] = set()  # neighbours that have said what they have
        self._own = OwnLinks(me, settings, latest)
        self._interest: Interest = NOTHING
        self._originator = Originator(me, settings, self.database, self.clock, rng, sign)
        self._election = Election(me, settings, self.database, self._originator)
        self._flooding = Flooding(settings, rng)
        self._covering = Covering(me.node, self.database)
        self._resync = Resync(settings)
        self._peers: dict[str, Peer] = {}
        self._audience: list[list[str]] = [[] for _ in range(me.depth + 1)]
        self._locations: dict[str, VertexId] = {}
        self._now_ns = 0
        self._interests = Interests(me, settings, self.database)
        self._map = CurrentMap(me, settings, self._interests, self._election.joined)
        self._acceptance = Acceptance(me, settings, self.database, self.clock, self._map.claims, verify, objection)
        self._forget_ns = NEVER
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
        out = self._begin(now_ns)
        wrong = unfit(self.me, peer, address, link, self._own.links)
        if wrong:
            return self._refuse(out, peer, wrong)
        self._own.add(OwnLink(self.me, peer, address, link, kind))
        known = self._peers.get(peer)
        if known is None:
            known = self._peers[peer] = Peer(address, level_between(self.me, address))
            self._find_audience()
            self._election.joined(0, now_ns)
            out.append(Send(peer, Digest(adverts=self.database.digest(known.level, peer))))
        known.links.add(link)
        return self._own_links_changed(out)

    def down(self, peer: str, link: bytes, now_ns: int) -> list[MapResult]:
        """It is gone; one that is not known is no error."""
        out = self._begin(now_ns)
        withdrawn = self._own.remove(link)
        if withdrawn is None:
            return out
        known = self._peers[withdrawn.peer]
        known.links.discard(link)
        if not known.links:
            del self._peers[withdrawn.peer]
            self._introduced.discard(withdrawn.peer)
            self._find_audience()
            self._flooding.lost(withdrawn.peer)
            _ask(self._resync.lost(withdrawn.peer, now_ns), out)
        if withdrawn.sequence:
            out.append(CostAdvertised(link, math.inf, Metrics(), withdrawn.scope, withdrawn.sequence + 1, now_ns))
        return self._own_links_changed(out)

    def suspect(self, link: bytes, on: bool, now_ns: int) -> list[MapResult]:
        """An own link is suspected of having failed (MR-021), or no longer."""
        out = self._begin(now_ns)
        own = self._own.links.get(link)
        if own is None or own.suspect == on:
            return out
        own.suspect = on
        self._own.changed()
        return self._own_links_changed(out)

    def measured(self, link: bytes, metrics: Metrics, now_ns: int, samples: int = 0) -> list[MapResult]:
        """An own link has new metrics; advertised if they moved enough (MR-112), beyond the noise of samples."""
        out = self._begin(now_ns)
        own = self._own.links.get(link)
        if own is None:
            return out
        own.metrics = metrics
        if own.moved(self.settings, samples):
            self._advertise_cost(own, out)
            self._remeasured()
            self._flush(out)
        return out

    def peer(self, link: bytes) -> str | None:
        """The neighbour at the other end of an own link."""
        own = self._own.links.get(link)
        return own.peer if own is not None else None

    def neighbours(self, level: int) -> list[str]:
        """Those that lie in the own unit of a level, too (1: the cluster)."""
        return sorted(name for name, peer in self._peers.items() if peer.level < level)

    # --- interest

    def want(self, patterns: Iterable[Pattern], publications: Iterable[Pattern], now_ns: int) -> list[MapResult]:
        """Interest and publications of this node, in place of those before."""
        out = self._begin(now_ns)
        interest = tuple(sorted(set(patterns))), tuple(sorted(set(publications)))
        if interest != self._interest:
            self._interest = interest
            self._originator.interest(0, interest, now_ns)
            self._map.units_changed = True
            self._flush(out)
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

    # --- protocol

    def receive(self, peer: str, message: Message, now_ns: int) -> list[MapResult]:
        """A message of a neighbour; what cannot be believed changes nothing and gives a Notice."""
        out = self._begin(now_ns)
        known = self._peers.get(peer)
        if known is None:
            return self._refuse(out, peer, f"{type(message).__name__} of {peer!r}, to whom there is no link")
        if isinstance(message, Statement):
            self._receive_statement(peer, known, message, out)
        elif isinstance(message, Digest):
            self._compare(peer, known, message, out)
        elif isinstance(message, StatementRequest):
            for key in dict.fromkeys(message.keys[: self.settings.max_adverts]):
                statement = self.database.aged(key, now_ns, peer) if key[1] >= known.level else None
                if statement is not None:
                    out.append(Send(peer, statement))
        else:
            self._refuse(out, peer, f"{type(message).__name__} is no message of the network map")
        return out

    def _receive_statement(self, peer: str, known: Peer, statement: Statement, out: list[MapResult]) -> None:
        try:
            advert = self._decode(statement.body)
        except ProtocolError as error:
            self._refuse(out, peer, str(error))
            return
        key = key_of(advert)
        self._flooding.has(peer, key, advert.sequence)
        entry = self.database.entries.get(key)
        if entry is not None and advert.sequence <= entry.advert.sequence:
            self._acceptance.answer_outdated(peer, key, advert, entry.advert.sequence, self._now_ns, out)
            return
        before = entry.advert if entry is not None else None
        wrong = self._acceptance.problem(key, advert, statement, before, known.level, self._peers)
        if wrong:
            self._refuse(out, peer, f"{type(advert).__name__} of {advert.origin[:64]!r}: {wrong}")
            return
        if advert.originator == self.me.node:
            self._originator.renumber(key, advert.sequence, self._now_ns)
            self._flush(out)
            return
        age_ns = statement.age_ms * MS
        held = before is not None
        if age_ns >= self.settings.lifetime_ns or not self._acceptance.timely(
            peer, key, advert, statement, held, self._now_ns, out
        ):
            return
        old = self.database.store(key, advert, statement, self._now_ns)
        self._resync.has(key, advert.sequence)
        if key[:2] == ("l", 0) and reach(advert) != reach(old):
            self._covering.changed()
        now, later = self._covering.split(peer, key[1], self._audience[key[1]], self._locations)
        self._flooding.add(key, advert.sequence, now, self._now_ns)
        self._flooding.offer(key, advert.sequence, later, self._now_ns)
        self._flood(out)
        self._forget_ns = min(self._forget_ns, self._now_ns + self.settings.lifetime_ns - age_ns)
        if isinstance(advert, LinkAdvert):
            self._receive_links(key[1:], advert, getattr(old, "links", ()))
            self._flush(out)
        elif self._interests.heard(old, advert, self._now_ns):
            self._map.units_changed = True
            out.append(InterestChanged())

    def restate(self, now_ns: int) -> list[MapResult]:
        """Advertise everything again, as after a new certificate: others hold it before the old one expires."""
        out = self._begin(now_ns)
        self._originator.restate(now_ns)
        self._flush(out)
        return out

    def revalidate(self, believed: Believe, now_ns: int) -> list[MapResult]:
        """Drop what was signed by those who are not believed any more: other authorities, or revoked certificates."""
        out = self._begin(now_ns)
        withdrawn = [
            key for key, entry in self.database.entries.items()
            if key[3] != self.me.node and not believed(key[3], entry.statement.signature)
        ]  # fmt: skip
        for key in withdrawn:
            self.database.drop(key)
        if withdrawn:
            self._map.hurry()
        self._dropped(withdrawn)
        return out

    def _correct_clock(self, out: list[MapResult]) -> None:
        """This node stood alone with its time: state everything anew, and look again at what was doubted."""
        if self._now_ns < self.clock.next_ns:
            return
        moved_ns = self.clock.correct(self._peers, self._now_ns)
        if not moved_ns:
            return
        reason = f"the clock of this node was {-moved_ns / 1e9:+.0f} s off that of its neighbours; theirs is used"
        out.append(Notice("clock", VertexId(0, self.me.node), reason))
        self._originator.restate(self._now_ns)
        for peer, statement, since_ns in self._acceptance.take_doubted():
            known, kept_ms = self._peers.get(peer), (self._now_ns - since_ns) // MS
            if known is not None:
                aged = msgspec.structs.replace(statement, age_ms=statement.age_ms + kept_ms)
                self._receive_statement(peer, known, aged, out)

    def _receive_links(self, location: Location, advert: LinkAdvert, old: Facts) -> None:
        """Of several originators of a unit those count that none has withdrawn; one that lives on says so."""
        level, origin, _ = location
        around = (location, *((level, origin, name) for name, _ in advert.withdrawn))
        self._map.retire(other for other in around if replaced(self.database, other))
        if not replaced(self.database, location):
            claims = self._map.claims
            able = claims.capabilities(location)
            moved = leads_to(advert.links) != leads_to(old) or not claims.known(location)
            self._map.apply(location, advert.links, advert.sequence, advert.members, advert.capabilities)
            if (level and moved) or advert.capabilities != able:  # it lies elsewhere, or has another originator
                self._map.rebuild(units=False)
        own = (level, self.me.path(level), self.me.node)
        if own in around[1:] and self._originator.originates("l", level) and replaced(self.database, own):
            self._originator.renumber(("l", *own), advert.sequence, self._now_ns)

    def synchronised(self, peers: Iterable[str]) -> bool:
        """Whether this node has what these neighbours had when they met, and a map of it."""
        return self._introduced.issuperset(peers) and not self._resync.busy and not self._map.changed

    def _compare(self, peer: str, known: Peer, digest: Digest, out: list[MapResult]) -> None:
        self._introduced.add(peer)
        lacking = []
        for key, sequence in digest.adverts[: self.settings.max_adverts]:
            if key[1] >= known.level and key[0] in ("l", "i"):
                self._flooding.has(peer, key, sequence)
                if sequence > self.database.sequence(key):
                    lacking.append((key, sequence))
        keys = self._resync.offer(peer, lacking, self._now_ns)
        if keys:
            out.append(Send(peer, StatementRequest(keys=tuple(keys))))

    def tick(self, now_ns: int) -> list[MapResult]:
        """Do what is due: compute the map anew, advertise, refresh, forget."""
        out = self._begin(now_ns)
        current = self._map
        if now_ns >= self._forget_ns:
            self._forget()
        current.tick(now_ns)
        if current.election_due or now_ns >= self._election.next_ns:
            current.units_changed = False
            self._election.update(current.computed_view, self._interest, now_ns)
            current.retire(self._election.withdrawn)
        current.partitions.tick(now_ns, current.deferred)
        if self._interests.expire(now_ns):
            current.deferred.append(InterestChanged())
        self._correct_clock(out)
        self._refresh(out)
        self._flush(out)
        self._flood(out)
        _ask(self._resync.late(now_ns), out)
        out += current.deferred
        current.deferred = []
        return out

    def next_ns(self) -> int:
        """When `tick` has something to do at the latest."""
        current = self._map
        if current.deferred or current.election_due:
            return self._now_ns
        due_ns = min(
            self._forget_ns, self.clock.next_ns, self._flooding.next_ns, self._resync.next_ns, self._election.next_ns,
            self._originator.next_ns(), self._interests.next_ns, current.next_ns(),
        )  # fmt: skip
        return max(due_ns, self._now_ns)

    def perform(self, on: bool, now_ns: int) -> list[MapResult]:
        """Route by measured costs, or by static ones (MR-117)."""
        out = self._begin(now_ns)
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
    def parted(self) -> tuple[VertexId, ...]:
        """Parts of broken units in this map, and vertices that cannot be reached though they advertise one another."""
        view = self._map.current_view()
        return tuple(sorted({*view.lost, *(part for parts in view.parts.values() for part in parts)}))

    def map_rows(self) -> list[dict[str, Any]]:
        """One row a link of the map; those that are suspected are on no route."""
        return map_rows(self._map.current_view(), self.routes.costs("default"))

    def link_rows(self) -> list[dict[str, Any]]:
        """One row an own link."""
        self._own.renew()
        return [self._own.links[link].row() for link in sorted(self._own.links)]

    def advertised(self, link: bytes) -> tuple[list[tuple[float, float]], Metrics]:
        """The advertised cost of an own link by each profile, how far from it is no change, and its metrics."""
        return self._own.links[link].quiet(self.settings) if link in self._own.links else ([], Metrics())

    # --- how

    def _begin(self, now_ns: int) -> list[MapResult]:
        self._map.begin(now_ns)
        self._now_ns = self._map.now_ns
        if not self._started:
            self._started = True
            self.clock.start(self._wall(), self._now_ns)
        return []

    def _refuse(self, out: list[MapResult], peer: str, reason: str) -> list[MapResult]:
        return self._acceptance.refuse(out, peer, reason, self._now_ns)

    def _find_audience(self) -> None:
        """Which neighbours an advertisement is sent to: those inside its scope."""
        self._audience = [
            [name for name, peer in self._peers.items() if peer.level <= level] for level in range(self.me.depth + 1)
        ]
        self._locations = {name: visible(self.me, peer.address) for name, peer in self._peers.items()}
        self._covering.changed()

    def _own_links_changed(self, out: list[MapResult]) -> list[MapResult]:
        """The own links are others."""
        here = (0, self.me.node, self.me.node)
        self._map.rebuild()
        self._map.claims.update(here, self._own.facts(), capabilities=self.settings.capabilities)
        self._originator.links(0, self._own.facts(), 1, self._now_ns, (), self.settings.capabilities)
        self._flush(out)
        return out

    def _remeasured(self) -> None:
        """What is advertised of the own links has changed."""
        self._own.changed()
        self._originator.links(0, self._own.facts(), 1, self._now_ns, (), self.settings.capabilities)
        here = (0, self.me.node, self.me.node)
        self._map.apply(here, self._own.facts(), 0, 1, self.settings.capabilities)

    def _advertise_cost(self, own: OwnLink, out: list[MapResult]) -> None:
        cost = own.update(self.settings)
        out.append(CostAdvertised(own.id, cost, own.advertised, own.scope, own.sequence, self._now_ns))

    def _refresh(self, out: list[MapResult]) -> None:
        """Costs are advertised again from time to time, for those who came late."""
        if self._originator.refreshes(self._now_ns):
            self._own.renew()
            for own in self._own.links.values():
                if not math.isnan(own.metrics.latency_ms):
                    self._advertise_cost(own, out)
            self._remeasured()

    def _flush(self, out: list[MapResult]) -> None:
        for level, statement in self._originator.flush(self._now_ns):
            out.extend(Send(peer, statement) for peer in self._audience[level])

    def _flood(self, out: list[MapResult]) -> None:
        """Pass on what is due, as it was heard: the moment it waited here adds nothing to its age."""
        for peer, key in self._flooding.take(self._now_ns):
            entry = self.database.entries.get(key)
            if entry is not None:
                out.append(Send(peer, entry.statement))
        for peer, keys in self._flooding.offered(self._now_ns).items():
            out.append(Send(peer, Digest(adverts=tuple((key, self.database.sequence(key)) for key in keys))))

    def _forget(self) -> None:
        self._dropped(self.database.forget(self._now_ns, self._originator.keys()))
        self._acceptance.forget(self._now_ns - self.settings.lifetime_ns)
        oldest = min((entry.born_ns for entry in self.database.entries.values()), default=NEVER)
        self._forget_ns = max(oldest + self.settings.lifetime_ns, self._now_ns + self.settings.lifetime_ns // 100)

    def _dropped(self, withdrawn: list[Key]) -> None:
        """These statements count no more."""
        self.clock.forget({key[3] for key in withdrawn if not self.database.originates(key[3])})
        if withdrawn:
            self._covering.changed()
            self._map.drop(withdrawn)


def _ask(asked: Asked, out: list[MapResult]) -> None:
    out.extend(Send(peer, StatementRequest(keys=tuple(keys))) for peer, keys in asked.items())
