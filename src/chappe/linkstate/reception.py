"""What messages of neighbours change: statements that are believed are stored, passed on and put into the map."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.errors import ProtocolError
from chappe.linkstate.acceptance import Acceptance
from chappe.linkstate.changes import InterestChanged, MapResult, Notice
from chappe.linkstate.current_map import CurrentMap
from chappe.linkstate.database import MS, Advert, Database, key_of
from chappe.linkstate.exchange import Exchange
from chappe.linkstate.expiry import Expiry
from chappe.linkstate.interests import Interests
from chappe.linkstate.link_statements import LinkStatements
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.origination import Originator, leads_to
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import difference
from chappe.linkstate.units import Address, VertexId
from chappe.wire.base import Message
from chappe.wire.mesh import Digest, LinkAdvert, Statement, StatementRequest


class Reception:
    """What cannot be believed changes nothing and gives a Notice. `decode` reads the body of a statement."""

    def __init__(
        self, me: Address, settings: Settings, database: Database, clock: MeshClock, originator: Originator,
        exchange: Exchange, interests: Interests, current: CurrentMap, acceptance: Acceptance, expiry: Expiry,
        decode: Callable[[bytes], Advert],
    ) -> None:  # fmt: skip
        self._me = me
        self._lifetime_ns = settings.lifetime_ns
        self._database = database
        self._clock = clock
        self._originator = originator
        self._exchange = exchange
        self._interests = interests
        self._current = current
        self._acceptance = acceptance
        self._expiry = expiry
        self._decode = decode
        self._links = LinkStatements(me, database, originator, current)

    def receive(self, peer: str, message: Message, now_ns: int, out: list[MapResult]) -> None:
        """A message of a neighbour."""
        known = self._exchange.peers.get(peer)
        if known is None:
            reason = f"{type(message).__name__} of {peer!r}, to whom there is no link"
            self._acceptance.refuse(out, peer, reason, now_ns)
        elif isinstance(message, Statement):
            self._statement(peer, known.level, message, now_ns, out)
        elif isinstance(message, Digest):
            self._exchange.compare(peer, known, message, now_ns, out)
        elif isinstance(message, StatementRequest):
            self._exchange.answer(peer, known, message, now_ns, out)
        else:
            reason = f"{type(message).__name__} is no message of the network map"
            self._acceptance.refuse(out, peer, reason, now_ns)

    def _statement(self, peer: str, level: int, statement: Statement, now_ns: int, out: list[MapResult]) -> None:
        acceptance, exchange = self._acceptance, self._exchange
        try:
            advert = self._decode(statement.body)
        except ProtocolError as error:
            acceptance.refuse(out, peer, str(error), now_ns)
            return
        key = key_of(advert)
        exchange.has(peer, key, advert.sequence)
        entry = self._database.entries.get(key)
        if entry is not None and advert.sequence <= entry.advert.sequence:
            acceptance.answer_outdated(peer, key, advert, entry.advert.sequence, now_ns, out)
            return
        before = entry.advert if entry is not None else None
        wrong = acceptance.problem(key, advert, statement, before, level, exchange.peers)
        if wrong:
            acceptance.refuse(out, peer, f"{type(advert).__name__} of {advert.origin[:64]!r}: {wrong}", now_ns)
            return
        if advert.originator == self._me.node:
            self._originator.renumber(key, advert.sequence, now_ns)
            exchange.originate(now_ns, out)
            return
        age_ns = statement.age_ms * MS
        held = before is not None
        if age_ns >= self._lifetime_ns or not acceptance.timely(peer, key, advert, statement, held, now_ns, out):
            return
        old = self._database.store(key, advert, statement, now_ns)
        links = old.links if isinstance(old, LinkAdvert) else ()
        relinked = isinstance(advert, LinkAdvert) and difference(links, advert.links) > 1
        exchange.pass_on(peer, key, advert.sequence, relinked, now_ns, out)
        self._expiry.stored(age_ns, now_ns)
        if isinstance(advert, LinkAdvert):
            self._links.apply(key[1:], advert, relinked and leads_to(links) != leads_to(advert.links), now_ns)
            exchange.originate(now_ns, out)
        elif self._interests.heard(old, advert, now_ns):
            self._current.units_changed = True
            out.append(InterestChanged())

    def correct_clock(self, now_ns: int, out: list[MapResult]) -> None:
        """If this node stood alone with its time: state everything anew, and look again at what was doubted."""
        if now_ns < self._clock.next_ns:
            return
        moved_ns = self._clock.correct(self._exchange.peers, now_ns)
        if not moved_ns:
            return
        reason = f"the clock of this node was {-moved_ns / 1e9:+.0f} s off that of its neighbours; theirs is used"
        out.append(Notice("clock", VertexId(0, self._me.node), reason))
        self._originator.restate(now_ns)
        for peer, statement, since_ns in self._acceptance.take_doubted():
            known, kept_ms = self._exchange.peers.get(peer), (now_ns - since_ns) // MS
            if known is not None:
                aged = msgspec.structs.replace(statement, age_ms=statement.age_ms + kept_ms)
                self._statement(peer, known.level, aged, now_ns, out)
