"""The network map of one node: its links, those of others, and the routes over them (MR-010 to MR-018)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from chappe.errors import ProtocolError
from chappe.linkstate.checks import Checks
from chappe.linkstate.choices import NEVER
from chappe.linkstate.claims import NOWHERE, Claims
from chappe.linkstate.complaints import Complaints
from chappe.linkstate.covering import Covering, reach
from chappe.linkstate.database import MS, Advert, Database, key_of
from chappe.linkstate.election import Election
from chappe.linkstate.flooding import Flooding
from chappe.linkstate.interests import NOTHING, Interests, content
from chappe.linkstate.membership import membership
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.origination import Interest, Originator, leads_to
from chappe.linkstate.outputs import CostAdvertised, InterestChanged, Notice, Output, RoutesChanged, Send
from chappe.linkstate.ownlinks import Latest, OwnLink, OwnLinks
from chappe.linkstate.pacing import Pacing
from chappe.linkstate.partitions import Partitions
from chappe.linkstate.peers import Peer, unfit
from chappe.linkstate.purge import merged, replaced
from chappe.linkstate.resync import Asked, Resync
from chappe.linkstate.routes import Routes
from chappe.linkstate.rows import map_rows
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Facts, Location, View
from chappe.linkstate.units import Address, VertexId, level_between, visible
from chappe.measure.cost import Metrics
from chappe.wire.base import Message
from chappe.wire.mesh import Digest, Key, LinkAdvert, Statement, Wanted, decode_advert
from chappe.wire.patterns import Pattern

Sign = Callable[[bytes], bytes]  # the signature of this node under the body of a statement
Verify = Callable[[str, bytes, bytes], bool]  # whether the node of that name signed it: name, body, signature
Believe = Callable[[str, bytes], bool]  # whether who signed is still believed: name, signature
Object = Callable[[Advert], str]  # why an advertisement is refused for what this node's file says; empty if it is not


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
        self.refused: Counter[str] = Counter()  # by neighbour
        self.database = Database(settings.lifetime_ns, settings.tolerance_ns, settings.max_adverts)
        self.clock = MeshClock(settings, rng)
        self.stale: Counter[str] = Counter()  # statements that were too old or too new, by originator; "": others
        self._verify = verify
        self._objection = objection
        self._decode = decode
        self._wall = wall
        self._doubted: dict[Key, tuple[str, Statement, int]] = {}  # for their time: from whom, what, and when it came
        self._checks = Checks(me, settings)
        self._introduced: set[str] = set()  # neighbours that have said what they have
        self._own = OwnLinks(me, settings, latest)
        self._interest: Interest = NOTHING
        self._originator = Originator(me, settings, self.database, self.clock, rng, sign)
        self._election = Election(me, settings, self.database, self._originator)
        self._partitions = Partitions(me, settings)
        self._flooding = Flooding(settings, rng)
        self._covering = Covering(me.node, self.database)
        self._resync = Resync(settings)
        self._peers: dict[str, Peer] = {}
        self._audience: list[list[str]] = [[] for _ in range(me.depth + 1)]
        self._locations: dict[str, VertexId] = {}
        self._complaints = Complaints()
        self._now_ns = 0
        self._claims = Claims(me)
        self._view: View = self._claims.view()
        self._interests = Interests(me, settings, self.database)
        self._topology_changed = False  # other links: the map is to be built anew
        self._remeasured_edges: set[int] = set()  # edges with other metrics
        self._election_due = False  # what is advertised for the units is to be looked at
        self._pacing = Pacing(settings)
        self._changed_ns = NEVER
        self._changed_level = me.depth  # the lowest level at which something has changed
        self._forget_ns = NEVER
        self._deferred: list[Output] = []
        self.routes = Routes(self._view, settings, self._bring_up_to_date)

    # --- own links

    def up(self, peer: str, address: Address, link: bytes, kind: str, now_ns: int) -> list[Output]:
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

    def down(self, peer: str, link: bytes, now_ns: int) -> list[Output]:
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

    def suspect(self, link: bytes, on: bool, now_ns: int) -> list[Output]:
        """An own link is suspected of having failed (MR-021), or no longer."""
        out = self._begin(now_ns)
        own = self._own.links.get(link)
        if own is None or own.suspect == on:
            return out
        own.suspect = on
        self._own.changed()
        return self._own_links_changed(out)

    def measured(self, link: bytes, metrics: Metrics, now_ns: int, samples: int = 0) -> list[Output]:
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

    def want(self, patterns: Iterable[Pattern], publications: Iterable[Pattern], now_ns: int) -> list[Output]:
        """Interest and publications of this node, in place of those before."""
        out = self._begin(now_ns)
        interest = tuple(sorted(set(patterns))), tuple(sorted(set(publications)))
        if interest != self._interest:
            self._interest = interest
            self._originator.interest(0, interest, now_ns)
            self._election_due = True
            self._flush(out)
        return out

    def wanting(self, kind: str, topic: bytes) -> dict[VertexId, frozenset[str]]:
        """Things of every level that want events of a topic, without this node and its own units.

        They can be reached, or could a moment ago. With the queue groups that want it there; the empty name stands for
        plain subscribers.
        """
        self._bring_up_to_date()
        return self._interests.find(self._view, kind, topic)

    def publications(self) -> dict[VertexId, tuple[Pattern, ...]]:
        """What is advertised to be published, by vertex (MR-133)."""
        self._bring_up_to_date()
        return self._interests.publications(self._view, self._interest)

    # --- protocol

    def receive(self, peer: str, message: Message, now_ns: int) -> list[Output]:
        """A message of a neighbour; what cannot be believed changes nothing and gives a Notice."""
        out = self._begin(now_ns)
        known = self._peers.get(peer)
        if known is None:
            return self._refuse(out, peer, f"{type(message).__name__} of {peer!r}, to whom there is no link")
        if isinstance(message, Statement):
            self._receive_statement(peer, known, message, out)
        elif isinstance(message, Digest):
            self._compare(peer, known, message, out)
        elif isinstance(message, Wanted):
            for key in dict.fromkeys(message.keys[: self.settings.max_adverts]):
                statement = self.database.aged(key, now_ns, peer) if key[1] >= known.level else None
                if statement is not None:
                    out.append(Send(peer, statement))
        else:
            self._refuse(out, peer, f"{type(message).__name__} is no message of the network map")
        return out

    def _receive_statement(self, peer: str, known: Peer, statement: Statement, out: list[Output]) -> None:
        try:
            advert = self._decode(statement.body)
        except ProtocolError as error:
            self._refuse(out, peer, str(error))
            return
        key = key_of(advert)
        self._flooding.has(peer, key, advert.sequence)
        entry = self.database.entries.get(key)
        if entry is not None and advert.sequence <= entry.advert.sequence:
            self._answer_outdated(peer, key, advert, entry.advert.sequence, out)
            return
        before = entry.advert if entry is not None else None
        wrong = self._checks.advert(advert, statement.age_ms, known.level, before)
        wrong = wrong or (before is None and self._unwelcome(key)) or ""
        wrong = wrong or (self._objection(advert) if self._objection is not None else "")
        if not wrong and self._verify and not self._verify(advert.originator, statement.body, statement.signature):
            wrong = f"the signature is not that of {advert.originator!r}"
        if wrong:
            self._refuse(out, peer, f"{type(advert).__name__} of {advert.origin[:64]!r}: {wrong}")
            return
        if advert.originator == self.me.node:
            self._originator.renumber(key, advert.sequence, self._now_ns)
            self._flush(out)
            return
        age_ns = statement.age_ms * MS
        if age_ns >= self.settings.lifetime_ns or not self._timely(peer, key, advert, statement, before, out):
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
            self._election_due = True
            out.append(InterestChanged())

    def _answer_outdated(self, peer: str, key: Key, advert: Advert, sequence: int, out: list[Output]) -> None:
        """A node that restarted with a clock that was behind hears what it stated before, and goes on above it."""
        if peer == key[3] and advert.sequence < sequence:
            last = self.database.aged(key, self._now_ns, peer)
            if last is not None:
                out.append(Send(peer, last))

    def _timely(
        self, peer: str, key: Key, advert: Advert, statement: Statement, before: Advert | None, out: list[Output]
    ) -> bool:
        """Whether a statement is neither replayed nor from the future.

        One that its originator sent over its own connection cannot be replayed, whatever its clock says.
        """
        retired = self.database.retired.get(key)
        outdated = retired is not None and advert.sequence <= retired.advert.sequence
        if retired is not None and outdated and self.clock.plausible(retired.advert.time_ns, self._now_ns):
            self._answer_outdated(peer, key, advert, retired.advert.sequence, out)
            if peer != key[3]:
                self._count_stale(key[3])
                self._refuse(out, peer, f"a statement of {key[3]!r} that was forgotten is replayed")
            return False
        originator, age_ns = advert.originator, statement.age_ms * MS
        direct = peer == originator
        held = before is not None
        doubt = "" if direct else self.clock.doubt(originator, advert.time_ns, age_ns, self._now_ns, held)
        self.clock.observe(originator, advert.time_ns, age_ns, self._now_ns, not doubt)
        if direct:
            self.clock.compare(peer, self._now_ns)
        if doubt:
            self._count_stale(originator)
            if key in self._doubted or len(self._doubted) < self.settings.max_adverts:
                self._doubted[key] = peer, statement, self._now_ns
            self._refuse(out, peer, doubt)
        return not doubt

    def _count_stale(self, originator: str) -> None:
        """By name for so many originators as are kept; without certificates anybody can invent names."""
        known = originator in self.stale or len(self.stale) < self.settings.max_adverts
        self.stale[originator if known else ""] += 1

    def restate(self, now_ns: int) -> list[Output]:
        """Advertise everything again, as after a new certificate: others hold it before the old one expires."""
        out = self._begin(now_ns)
        self._originator.restate(now_ns)
        self._flush(out)
        return out

    def revalidate(self, believed: Believe, now_ns: int) -> list[Output]:
        """Drop what was signed by those who are not believed any more: other authorities, or revoked certificates."""
        out = self._begin(now_ns)
        withdrawn = [
            key for key, entry in self.database.entries.items()
            if key[3] != self.me.node and not believed(key[3], entry.statement.signature)
        ]  # fmt: skip
        for key in withdrawn:
            self.database.drop(key)
        if withdrawn:
            self._changed_level = 0
        self._dropped(withdrawn)
        return out

    def _correct_clock(self, out: list[Output]) -> None:
        """This node stood alone with its time: state everything anew, and look again at what was doubted."""
        if self._now_ns < self.clock.next_ns:
            return
        moved_ns = self.clock.correct(self._peers, self._now_ns)
        if not moved_ns:
            return
        reason = f"the clock of this node was {-moved_ns / 1e9:+.0f} s off that of its neighbours; theirs is used"
        out.append(Notice("clock", VertexId(0, self.me.node), reason))
        self._originator.restate(self._now_ns)
        doubted, self._doubted = self._doubted, {}
        for peer, statement, since_ns in doubted.values():
            known, kept_ms = self._peers.get(peer), (self._now_ns - since_ns) // MS
            if known is not None:
                aged = msgspec.structs.replace(statement, age_ms=statement.age_ms + kept_ms)
                self._receive_statement(peer, known, aged, out)

    def _receive_links(self, location: Location, advert: LinkAdvert, old: Facts) -> None:
        """Of several originators of a unit those count that none has withdrawn; one that lives on says so."""
        level, origin, _ = location
        around = (location, *((level, origin, name) for name, _ in advert.withdrawn))
        self._retire(other for other in around if replaced(self.database, other))
        if not replaced(self.database, location):
            able = self._claims.capabilities(location)
            moved = leads_to(advert.links) != leads_to(old) or not self._claims.known(location)
            self._apply_links(location, advert.links, advert.sequence, advert.members, advert.capabilities)
            if (level and moved) or advert.capabilities != able:
                self._topology_changed = True
                self._changed_level = 0  # a unit lies elsewhere or has another originator: routes would lead astray
        own = (level, self.me.path(level), self.me.node)
        if own in around[1:] and self._originator.originates("l", level) and replaced(self.database, own):
            self._originator.renumber(("l", *own), advert.sequence, self._now_ns)

    def _retire(self, locations: Iterable[Location]) -> None:
        for location in locations:
            if self._claims.forget(location):
                self._topology_changed, self._election_due, self._changed_level = True, True, 0

    def _apply_links(
        self, location: Location, links: Facts, sequence: int, members: int, capabilities: tuple[str, ...]
    ) -> None:
        reshaped, measured = self._claims.update(location, links, sequence, members, capabilities)
        self._election_due = True
        self._changed_level = min(
            self._changed_level, reshaped if reshaped != NOWHERE else location[0] if measured else self._changed_level
        )
        if reshaped != NOWHERE:
            self._topology_changed = True
        elif measured and not self._topology_changed:
            self._remeasured_edges.update(number for link in measured for number in self._view.ends.get(link, ()))

    def synchronised(self, peers: Iterable[str]) -> bool:
        """Whether this node has what these neighbours had when they met, and a map of it."""
        return self._introduced.issuperset(peers) and not self._resync.busy and not self._changed

    def _compare(self, peer: str, known: Peer, digest: Digest, out: list[Output]) -> None:
        self._introduced.add(peer)
        lacking = []
        for key, sequence in digest.adverts[: self.settings.max_adverts]:
            if key[1] >= known.level and key[0] in ("l", "i"):
                self._flooding.has(peer, key, sequence)
                if sequence > self.database.sequence(key):
                    lacking.append((key, sequence))
        keys = self._resync.offer(peer, lacking, self._now_ns)
        if keys:
            out.append(Send(peer, Wanted(keys=tuple(keys))))

    def tick(self, now_ns: int) -> list[Output]:
        """Do what is due: compute the map anew, tell, refresh, forget."""
        out = self._begin(now_ns)
        if now_ns >= self._forget_ns:
            self._forget()
        if self._changed and now_ns >= self._due_ns():
            self._compute()
        elif now_ns >= self.routes.next_ns:
            self._deferred += _routes_changed(self.routes.update(set(), now_ns))
        if (self._election_due and not (self._changed and not self._changed_level)) or now_ns >= self._election.next_ns:
            self._election_due = False
            self._election.update(self._view, self._interest, now_ns)
            self._retire(self._election.withdrawn)
        self._partitions.tick(now_ns, self._deferred)
        if self._interests.expire(now_ns):
            self._deferred.append(InterestChanged())
        self._correct_clock(out)
        self._refresh(out)
        self._flush(out)
        self._flood(out)
        _ask(self._resync.late(now_ns), out)
        out += self._deferred
        self._deferred = []
        return out

    def next_ns(self) -> int:
        """When `tick` has something to do at the latest."""
        if self._deferred:
            return self._now_ns
        due = min(
            self._forget_ns,
            self.clock.next_ns,
            self._flooding.next_ns,
            self._resync.next_ns,
            self._election.next_ns,
            self._originator.next_ns(),
            self._partitions.next_ns,
            self._interests.next_ns,
            self.routes.next_ns,
        )
        if self._changed:
            due = min(due, self._due_ns())
        if self._election_due and not (self._changed and not self._changed_level):
            due = self._now_ns
        return max(due, self._now_ns)

    def perform(self, on: bool, now_ns: int) -> list[Output]:
        """Route by measured costs, or by static ones (MR-117)."""
        out = self._begin(now_ns)
        self._bring_up_to_date()
        if on != self.routes.performance:
            out += _routes_changed(self.routes.perform(on, now_ns))
        return out

    # --- the map

    def vertex_ids(self) -> list[VertexId]:
        """All that can be reached, without this node and its own units."""
        self._bring_up_to_date()
        return [vertex.vertex_id for vertex in self._view.vertices if vertex.vertex_id != VertexId(0, self.me.node)]

    def resolve(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """The vertices in this map that a name stands for: itself, the parts of a unit that fell apart, or none."""
        self._bring_up_to_date()
        return self._view.resolve(vertex_id)

    def lacking(self, needs: Collection[str]) -> frozenset[VertexId]:
        """Things of the map that do not have all of these capabilities."""
        self._bring_up_to_date()
        able = {vertex.vertex_id: vertex.capabilities for vertex in self._view.vertices}
        return frozenset(vertex_id for vertex_id, words in able.items() if not set(needs) <= set(words))

    def merged(self, vertex_id: VertexId) -> bool:
        """Whether a vertex was another part of an own unit, and is one with this part now."""
        self._bring_up_to_date()
        return merged(self.database, self._view, vertex_id, self._interests.missed())

    def members(self) -> list[str]:
        """Nodes of the own cluster that can be reached, this one included."""
        self._bring_up_to_date()
        return [vertex.origin for vertex in self._view.vertices if not vertex.level]

    def controller(self, level: int) -> str:
        """The node that originates for the own unit of level 1 (the cluster) to depth; one more is the whole mesh."""
        self._bring_up_to_date()
        return self._view.controllers[level]

    @property
    def parted(self) -> tuple[VertexId, ...]:
        """Parts of broken units in this map, and vertices that cannot be reached though they advertise one another."""
        self._bring_up_to_date()
        return tuple(sorted({*self._view.lost, *(part for parts in self._view.parts.values() for part in parts)}))

    def map_rows(self) -> list[dict[str, Any]]:
        """One row a link of the map; those that are suspected are on no route."""
        self._bring_up_to_date()
        return map_rows(self._view, self.routes.costs("default"))

    def link_rows(self) -> list[dict[str, Any]]:
        """One row an own link."""
        self._own.renew()
        return [self._own.links[link].row() for link in sorted(self._own.links)]

    def advertised(self, link: bytes) -> tuple[list[tuple[float, float]], Metrics]:
        """The advertised cost of an own link by each profile, how far from it is no change, and its metrics."""
        return self._own.links[link].quiet(self.settings) if link in self._own.links else ([], Metrics())

    # --- how

    @property
    def _changed(self) -> bool:
        return self._topology_changed or bool(self._remeasured_edges)

    def _due_ns(self) -> int:
        """When the map is computed that has changed."""
        return self._pacing.due_ns(min(self._changed_ns, self._now_ns), self._changed_level)

    def _begin(self, now_ns: int) -> list[Output]:
        if self._changed:
            self._changed_ns = min(self._changed_ns, self._now_ns)  # it was the call before this one that changed it
        self._now_ns = max(self._now_ns, now_ns)
        self.clock.start(self._wall(), self._now_ns)
        return []

    def _refuse(self, out: list[Output], peer: str, reason: str) -> list[Output]:
        """Say so, but not again and again."""
        self.refused[peer] += 1
        if self._complaints.new(peer, reason, self._now_ns):
            out.append(Notice("refused", VertexId(0, peer), reason))
        return out

    def _unwelcome(self, key: Key) -> str:
        """Why the first advertisement of a key is not taken: its originator is of another unit, or there is no room."""
        peer = self._peers.get(key[3])
        wrong = self._checks.first(key, self.database, peer.address if peer is not None else None)
        originators = self.database.originators(*key[:3])
        if wrong or len(originators) < self.settings.max_originators:
            return wrong
        for originator, entry in originators.items():
            if originator != self.me.node and not getattr(entry.advert, "links", ()) and not any(content(entry.advert)):
                self.database.drop((*key[:3], originator))
                self._claims.forget((*key[1:3], originator))
                return ""
        return f"{len(originators)} nodes speak for it already"

    def _find_audience(self) -> None:
        """Which neighbours an advertisement is sent to: those inside its scope."""
        self._audience = [
            [name for name, peer in self._peers.items() if peer.level <= level] for level in range(self.me.depth + 1)
        ]
        self._locations = {name: visible(self.me, peer.address) for name, peer in self._peers.items()}
        self._covering.changed()

    def _own_links_changed(self, out: list[Output]) -> list[Output]:
        """The own links are others."""
        self._topology_changed, self._election_due, self._changed_level = True, True, 0
        self._claims.update((0, self.me.node, self.me.node), self._own.facts(), capabilities=self.settings.capabilities)
        self._originator.links(0, self._own.facts(), 1, self._now_ns, (), self.settings.capabilities)
        self._flush(out)
        return out

    def _remeasured(self) -> None:
        """What is advertised of the own links has changed."""
        self._own.changed()
        self._originator.links(0, self._own.facts(), 1, self._now_ns, (), self.settings.capabilities)
        self._election_due = True
        here = (0, self.me.node, self.me.node)
        self._apply_links(here, self._own.facts(), 0, 1, self.settings.capabilities)

    def _advertise_cost(self, own: OwnLink, out: list[Output]) -> None:
        cost = own.update(self.settings)
        out.append(CostAdvertised(own.id, cost, own.advertised, own.scope, own.sequence, self._now_ns))

    def _refresh(self, out: list[Output]) -> None:
        """Costs are advertised again from time to time, for those who came late."""
        if self._originator.refreshes(self._now_ns):
            self._own.renew()
            for own in self._own.links.values():
                if not math.isnan(own.metrics.latency_ms):
                    self._advertise_cost(own, out)
            self._remeasured()

    def _flush(self, out: list[Output]) -> None:
        for level, statement in self._originator.flush(self._now_ns):
            out.extend(Send(peer, statement) for peer in self._audience[level])

    def _flood(self, out: list[Output]) -> None:
        """Pass on what is due, as it was heard: the moment it waited here adds nothing to its age."""
        for peer, key in self._flooding.take(self._now_ns):
            entry = self.database.entries.get(key)
            if entry is not None:
                out.append(Send(peer, entry.statement))
        for peer, keys in self._flooding.offered(self._now_ns).items():
            out.append(Send(peer, Digest(adverts=tuple((key, self.database.sequence(key)) for key in keys))))

    def _forget(self) -> None:
        self._dropped(self.database.forget(self._now_ns, self._originator.keys()))
        oldest_ns = self._now_ns - self.settings.lifetime_ns
        for key in [key for key, (_, _, since_ns) in self._doubted.items() if since_ns <= oldest_ns]:
            del self._doubted[key]
        oldest = min((entry.born_ns for entry in self.database.entries.values()), default=NEVER)
        self._forget_ns = max(oldest + self.settings.lifetime_ns, self._now_ns + self.settings.lifetime_ns // 100)

    def _dropped(self, withdrawn: list[Key]) -> None:
        """These statements count no more."""
        for key in withdrawn:
            if key[0] == "l":
                self._claims.forget(key[1:])
        self.clock.forget({key[3] for key in withdrawn if not self.database.originates(key[3])})
        if withdrawn:
            self._covering.changed()
            self._interests.changed()
            self._topology_changed, self._election_due = True, True
            self._deferred.append(InterestChanged())

    def _bring_up_to_date(self) -> int:
        if self._changed and self._now_ns >= self._pacing.ready_ns(
            min(self._changed_ns, self._now_ns), self._changed_level
        ):
            self._compute()
        return self._now_ns

    def _compute(self) -> None:
        """Bring map and routes up to date; what follows from it is put out by the next tick."""
        now_ns = self._now_ns
        self._pacing.done(now_ns, min(self._changed_ns, now_ns), self._changed_level)
        self._changed_ns, self._changed_level = NEVER, self.me.depth
        if self._topology_changed:
            old, self._topology_changed, self._remeasured_edges = self._view, False, set()
            view = self._view = self._claims.view()
            self._interests.observe(old, view, now_ns)
            for level in {vertex_id.level for vertex_id in view.index.keys() - old.index.keys()}:
                self._election.joined(level, now_ns)
            self._deferred += membership(old, view)
            self._partitions.observe(view, now_ns, self._deferred)
            self._deferred += _routes_changed(self.routes.offer(view, now_ns))
        else:
            numbers, self._remeasured_edges = self._remeasured_edges, set()
            self._deferred += _routes_changed(self.routes.update(numbers, now_ns))


def _ask(asked: Asked, out: list[Output]) -> None:
    out.extend(Send(peer, Wanted(keys=tuple(keys))) for peer, keys in asked.items())


def _routes_changed(profiles: dict[str, frozenset[VertexId]]) -> list[Output]:
    return [RoutesChanged(profiles)] if profiles else []
