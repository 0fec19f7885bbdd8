"""The parts of the link-state protocol of one node, put together."""

from __future__ import annotations

import random
from collections.abc import Callable

from chappe.linkstate.acceptance import Acceptance, Object, Verify
from chappe.linkstate.current_map import CurrentMap
from chappe.linkstate.database import Advert, Database
from chappe.linkstate.election import Election
from chappe.linkstate.exchange import Exchange
from chappe.linkstate.expiry import Expiry
from chappe.linkstate.interests import Interests
from chappe.linkstate.link_origination import LinkOrigination
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.origination import Originator, Sign
from chappe.linkstate.ownlinks import Latest, OwnLinks
from chappe.linkstate.reception import Reception
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address
from chappe.wire.mesh import decode_advert


class Parts:
    """Each is given the ones before it that it needs."""

    def __init__(
        self, me: Address, settings: Settings, rng: random.Random,
        sign: Sign | None = None, verify: Verify | None = None, latest: Latest | None = None,
        wall: Callable[[], int] = lambda: 0, objection: Object | None = None,
        decode: Callable[[bytes], Advert] = decode_advert,
    ) -> None:  # fmt: skip
        """`wall`: the wall clock, read once; `decode`: what reads the body of a statement."""
        self.me = me
        self.settings = settings
        self.wall = wall
        self.database = Database(settings.lifetime_ns, settings.tolerance_ns, settings.max_adverts)
        self.clock = MeshClock(settings, rng)
        self.originator = Originator(me, settings, self.database, self.clock, rng, sign)
        self.election = Election(me, settings, self.database, self.originator)
        self.exchange = Exchange(me, settings, self.database, self.originator, rng)
        self.interests = Interests(me, settings, self.database)
        self.current = CurrentMap(me, settings, self.interests, self.election.joined)
        self.links = LinkOrigination(me, settings, OwnLinks(me, settings, latest), self.originator, self.current)
        self.acceptance = Acceptance(me, settings, self.database, self.clock, self.current.claims, verify, objection)
        self.expiry = Expiry(
            me, settings, self.database, self.clock, self.originator, self.exchange, self.current, self.acceptance
        )
        self.reception = Reception(
            me, settings, self.database, self.clock, self.originator, self.exchange, self.interests, self.current,
            self.acceptance, self.expiry, decode,
        )  # fmt: skip
