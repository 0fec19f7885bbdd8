"""What statements about links change in the map, where several nodes may originate for one unit."""

from __future__ import annotations

from chappe.linkstate.current_map import CurrentMap
from chappe.linkstate.database import Database
from chappe.linkstate.origination import Originator
from chappe.linkstate.purge import replaced
from chappe.linkstate.topology import Location
from chappe.linkstate.units import Address
from chappe.wire.mesh import LinkAdvert


class LinkStatements:
    """Of several originators of a unit those count that none has withdrawn; one that lives on says so."""

    def __init__(self, me: Address, database: Database, originator: Originator, current: CurrentMap) -> None:
        self._me = me
        self._database = database
        self._originator = originator
        self._current = current

    def apply(self, location: Location, advert: LinkAdvert, moved: bool, now_ns: int) -> None:
        """An originator states these links. `moved`: they lead to other units than those before."""
        level, origin, _ = location
        database, current = self._database, self._current
        withdrawn = [(level, origin, name) for name, _ in advert.withdrawn]
        counts = not replaced(database, location)
        current.retire(other for other in withdrawn if replaced(database, other))
        if counts:
            claims = current.claims
            able = claims.capabilities(location)
            elsewhere = level and (moved or not claims.known(location))
            current.apply(location, advert.links, advert.sequence, advert.members, advert.capabilities)
            if elsewhere or advert.capabilities != able:  # or it has another originator
                current.rebuild(units=False)
        else:
            current.retire((location,))
        if not withdrawn:
            return
        current.units_changed = True
        own = (level, self._me.path(level), self._me.node)
        if own in withdrawn and self._originator.originates("l", level) and replaced(database, own):
            self._originator.renumber(("l", *own), advert.sequence, now_ns)
