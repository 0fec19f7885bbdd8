"""Which statements are believed: their form, their place, their signature and their time.

What is refused is counted by neighbour, and complained about, but not again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from chappe.linkstate.changes import MapResult, Notice
from chappe.linkstate.checks import Checks
from chappe.linkstate.claims import Claims
from chappe.linkstate.complaints import Complaints
from chappe.linkstate.database import MS, Advert, Database
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.origination import content
from chappe.linkstate.peers import Peer
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address, VertexId
from chappe.machine import Send
from chappe.wire.mesh import Key, Statement

Verify = Callable[[str, bytes, bytes], bool]  # whether the node of that name signed it: name, body, signature
Object = Callable[[Advert], str]  # why an advertisement is refused for what this node's file says; empty if it is not


class Acceptance:
    """Asked about every statement of a neighbour that is newer than what is known."""

    def __init__(
        self, me: Address, settings: Settings, database: Database, clock: MeshClock, claims: Claims,
        verify: Verify | None, objection: Object | None,
    ) -> None:  # fmt: skip
        self.refused: Counter[str] = Counter()  # by neighbour
        self.stale: Counter[str] = Counter()  # statements that were too old or too new, by originator; "": others
        self._me = me
        self._settings = settings
        self._database = database
        self._clock = clock
        self._claims = claims
        self._verify = verify
        self._objection = objection
        self._checks = Checks(me, settings)
        self._complaints = Complaints()
        self._doubted: dict[Key, tuple[str, Statement, int]] = {}  # for their time: from whom, what, and when it came

    def refuse(self, out: list[MapResult], peer: str, reason: str, now_ns: int) -> list[MapResult]:
        """Something of a neighbour is not believed."""
        self.refused[peer] += 1
        if self._complaints.new(peer, reason, now_ns):
            out.append(Notice("refused", VertexId(0, peer), reason))
        return out

    def problem(
        self, key: Key, advert: Advert, statement: Statement, before: Advert | None, level: int, peers: dict[str, Peer]
    ) -> str:
        """Why a statement is not taken, whatever its time; empty if it is. `level`: of the link that it came by."""
        wrong = self._checks.advert(advert, statement.age_ms, level, before)
        wrong = wrong or (before is None and self._unwelcome(key, peers)) or ""
        wrong = wrong or (self._objection(advert) if self._objection is not None else "")
        if not wrong and self._verify and not self._verify(advert.originator, statement.body, statement.signature):
            wrong = f"the signature is not that of {advert.originator!r}"
        return wrong

    def _unwelcome(self, key: Key, peers: dict[str, Peer]) -> str:
        """Why the first advertisement of a key is not taken: its originator is of another unit, or there is no room."""
        peer = peers.get(key[3])
        wrong = self._checks.first(key, self._database, peer.address if peer is not None else None)
        originators = self._database.originators(*key[:3])
        if wrong or len(originators) < self._settings.max_originators:
            return wrong
        for originator, entry in originators.items():
            if originator != self._me.node and not getattr(entry.advert, "links", ()) and not any(
                content(entry.advert)
            ):  # fmt: skip
                self._database.drop((*key[:3], originator))
                self._claims.forget((*key[1:3], originator))
                return ""
        return f"{len(originators)} nodes originate it already"

    def timely(
        self, peer: str, key: Key, advert: Advert, statement: Statement, held: bool, now_ns: int, out: list[MapResult]
    ) -> bool:
        """Whether a statement is neither replayed nor from the future; `held`: one of its key is known.

        One that its originator sent over its own connection cannot be replayed, whatever its clock says.
        """
        retired = self._database.retired.get(key)
        outdated = retired is not None and advert.sequence <= retired.advert.sequence
        if retired is not None and outdated and self._clock.plausible(retired.advert.time_ns, now_ns):
            self.answer_outdated(peer, key, advert, retired.advert.sequence, now_ns, out)
            if peer != key[3]:
                self._count_stale(key[3])
                self.refuse(out, peer, f"a statement of {key[3]!r} that was forgotten is replayed", now_ns)
            return False
        originator, age_ns = advert.originator, statement.age_ms * MS
        direct = peer == originator
        doubt = "" if direct else self._clock.doubt(originator, advert.time_ns, age_ns, now_ns, held)
        self._clock.observe(originator, advert.time_ns, age_ns, now_ns, not doubt)
        if direct:
            self._clock.compare(peer, now_ns)
        if doubt:
            self._count_stale(originator)
            if key in self._doubted or len(self._doubted) < self._settings.max_adverts:
                self._doubted[key] = peer, statement, now_ns
            self.refuse(out, peer, doubt, now_ns)
        return not doubt

    def answer_outdated(
        self, peer: str, key: Key, advert: Advert, sequence: int, now_ns: int, out: list[MapResult]
    ) -> None:
        """A node that restarted with a clock that was behind hears what it stated before, and goes on above it."""
        if peer == key[3] and advert.sequence < sequence:
            last = self._database.aged(key, now_ns, peer)
            if last is not None:
                out.append(Send(peer, last))

    def take_doubted(self) -> list[tuple[str, Statement, int]]:
        """What was doubted for its time, to be looked at again: from whom, what, and when it came."""
        doubted, self._doubted = self._doubted, {}
        return list(doubted.values())

    def forget(self, oldest_ns: int) -> None:
        """Doubts that are older than this."""
        for key in [key for key, (_, _, since_ns) in self._doubted.items() if since_ns <= oldest_ns]:
            del self._doubted[key]

    def _count_stale(self, originator: str) -> None:
        """By name for so many originators as are kept; without certificates anybody can invent names."""
        known = originator in self.stale or len(self.stale) < self._settings.max_adverts
        self.stale[originator if known else ""] += 1
