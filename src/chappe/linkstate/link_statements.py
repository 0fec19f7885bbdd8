"""What statements about links change in the map, where several nodes may originate for one unit."""

from __future__ import annotations

from chappe.linkstate.current_map import CurrentMap
from chappe.linkstate.database import Database
from chappe.linkstate.origination import Originator, leads_to
from chappe.linkstate.purge import replaced
from chappe.linkstate.topology import Facts, Location
from chappe.linkstate.units import Address
from chappe.wire.mesh import LinkAdvert


class LinkStatements:
    """Of several originators of a unit those count that none has withdrawn; one that lives on says so."""

    def __init__(self, me: Address, database: Database, originator: Originator, current: CurrentMap) -> None:
        self._me = me
        self._database = database
        self._originator = originator
        self._current = current

    def apply(self, location: Location, advert: LinkAdvert, old: Facts, now_ns: int) -> None:
        """An originator states these links in place of its `old` ones."""
        level, origin, _ = location
        database, current = self._database, self._current
        around = (location, *((level, origin, name) for name, _ in advert.withdrawn))
        current.retire(other for other in around if replaced(database, other))
        if not replaced(database, location):
            claims = current.claims
            able = claims.capabilities(location)
            moved = leads_to(advert.links) != leads_to(old) or not claims.known(location)
            current.apply(location, advert.links, advert.sequence, advert.members, advert.capabilities)
            if (level and moved) or advert.capabilities != able:  # it lies elsewhere, or has another originator
                current.rebuild(units=False)
        own = (level, self._me.path(level), self._me.node)
        if own in around[1:] and self._originator.originates("l", level) and replaced(database, own):
            self._originator.renumber(("l", *own), advert.sequence, now_ns)
