"""The exchange of statements with neighbours: who gets which, and whom to ask for those that this node lacks."""

from __future__ import annotations

import random
from collections.abc import Iterable

from chappe.linkstate.changes import MapResult
from chappe.linkstate.covering import Covering
from chappe.linkstate.database import Database
from chappe.linkstate.flooding import Flooding
from chappe.linkstate.origination import Originator
from chappe.linkstate.peers import Peer
from chappe.linkstate.resync import Asked, Resync
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address, VertexId, level_between, visible
from chappe.machine import Send
from chappe.wire.mesh import Digest, Key, StatementRequest


class Exchange:
    """Keeps the databases of this node and its neighbours alike; messages are appended to the `out` of a call."""

    def __init__(
        self, me: Address, settings: Settings, database: Database, originator: Originator, rng: random.Random
    ) -> None:
        self.peers: dict[str, Peer] = {}
        self._me = me
        self._settings = settings
        self._database = database
        self._originator = originator
        self._flooding = Flooding(settings, rng)
        self._covering = Covering(me.node, database)
        self._resync = Resync(settings)
        self._introduced: set[str] = set()  # neighbours that have said what they have
        self._audience: list[list[str]] = [[] for _ in range(me.depth + 1)]
        self._locations: dict[str, VertexId] = {}

    # --- neighbours

    def link_up(self, peer: str, address: Address, link: bytes, out: list[MapResult]) -> bool:
        """A link leads to a neighbour; whether it is a new one, which then hears what this node has."""
        known = self.peers.get(peer)
        new = known is None
        if known is None:
            known = self.peers[peer] = Peer(address, level_between(self._me, address))
            self._find_audience()
            out.append(Send(peer, Digest(adverts=self._database.digest(known.level, peer))))
        known.links.add(link)
        return new

    def link_down(self, peer: str, link: bytes, now_ns: int, out: list[MapResult]) -> None:
        """It leads there no more; after the last one others are asked for what the neighbour was."""
        known = self.peers[peer]
        known.links.discard(link)
        if not known.links:
            del self.peers[peer]
            self._introduced.discard(peer)
            self._find_audience()
            self._flooding.lost(peer)
            _ask(self._resync.lost(peer, now_ns), out)

    def synchronised(self, peers: Iterable[str]) -> bool:
        """Whether this node has what these neighbours had when they met."""
        return self._introduced.issuperset(peers) and not self._resync.busy

    def _find_audience(self) -> None:
        """Which neighbours an advertisement is sent to: those inside its scope."""
        self._audience = [
            [name for name, peer in self.peers.items() if peer.level <= level] for level in range(self._me.depth + 1)
        ]
        self._locations = {name: visible(self._me, peer.address) for name, peer in self.peers.items()}
        self._covering.changed()

    # --- what they have

    def compare(self, peer: str, known: Peer, digest: Digest, now_ns: int, out: list[MapResult]) -> None:
        """A neighbour says what it has: it is asked for what this node lacks, and nobody else is."""
        self._introduced.add(peer)
        lacking = []
        for key, sequence in digest.adverts[: self._settings.max_adverts]:
            if key[1] >= known.level and key[0] in ("l", "i"):
                self._flooding.has(peer, key, sequence)
                if sequence > self._database.sequence(key):
                    lacking.append((key, sequence))
        keys = self._resync.offer(peer, lacking, now_ns)
        if keys:
            out.append(Send(peer, StatementRequest(keys=tuple(keys))))

    def answer(self, peer: str, known: Peer, request: StatementRequest, now_ns: int, out: list[MapResult]) -> None:
        """A neighbour lacks these."""
        for key in dict.fromkeys(request.keys[: self._settings.max_adverts]):
            statement = self._database.aged(key, now_ns, peer) if key[1] >= known.level else None
            if statement is not None:
                out.append(Send(peer, statement))

    def has(self, peer: str, key: Key, sequence: int) -> None:
        """A neighbour has sent it: it needs not get it."""
        self._flooding.has(peer, key, sequence)

    # --- what they get

    def originate(self, now_ns: int, out: list[MapResult]) -> None:
        """Send the own statements that are due."""
        for level, statement in self._originator.flush(now_ns):
            if not level:
                self._covering.relinked(self._me.node)
            out.extend(Send(peer, statement) for peer in self._audience[level])

    def pass_on(self, peer: str, key: Key, sequence: int, relinked: bool, now_ns: int, out: list[MapResult]) -> None:
        """A statement of a neighbour was stored: others are to hear of it. `relinked`: it has other links."""
        self._resync.has(key, sequence)
        if relinked and not key[1]:
            self._covering.relinked(key[3])
        now, later = self._covering.split(peer, key[1], self._audience[key[1]], self._locations)
        self._flooding.add(key, sequence, now, now_ns)
        self._flooding.offer(key, sequence, later, now_ns)
        self._flood(now_ns, out)

    def dropped(self) -> None:
        """Statements count no more: links of the cluster may be others."""
        self._covering.changed()

    def tick(self, now_ns: int, out: list[MapResult]) -> None:
        """Pass on what is due, and ask others instead of neighbours that did not answer."""
        self._flood(now_ns, out)
        _ask(self._resync.late(now_ns), out)

    def next_ns(self) -> int:
        """When `tick` has something to do."""
        return min(self._flooding.next_ns, self._resync.next_ns)

    def _flood(self, now_ns: int, out: list[MapResult]) -> None:
        """Pass on what is due, as it was heard: the moment it waited here adds nothing to its age."""
        if now_ns < self._flooding.next_ns:
            return
        for peer, key in self._flooding.take(now_ns):
            entry = self._database.entries.get(key)
            if entry is not None:
                out.append(Send(peer, entry.statement))
        for peer, keys in self._flooding.offered(now_ns).items():
            out.append(Send(peer, Digest(adverts=tuple((key, self._database.sequence(key)) for key in keys))))


def _ask(asked: Asked, out: list[MapResult]) -> None:
    out.extend(Send(peer, StatementRequest(keys=tuple(keys))) for peer, keys in asked.items())
