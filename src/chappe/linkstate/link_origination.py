"""The own links in the map and in the advertisements of this node: which there are, and what they cost (MR-112)."""

from __future__ import annotations

import math

from chappe.linkstate.changes import CostAdvertised, MapResult
from chappe.linkstate.current_map import CurrentMap
from chappe.linkstate.origination import Originator
from chappe.linkstate.ownlinks import OwnLink, OwnLinks
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address
from chappe.measure.cost import Metrics


class LinkOrigination:
    """Follows each change of the own links; what is advertised is sent with what the originator has due."""

    def __init__(
        self, me: Address, settings: Settings, own: OwnLinks, originator: Originator, current: CurrentMap
    ) -> None:
        self.own = own
        self._me = me
        self._settings = settings
        self._here = (0, me.node, me.node)
        self._originator = originator
        self._current = current

    def up(self, peer: str, address: Address, link: bytes, kind: str, now_ns: int) -> None:
        """A link to a neighbour is there."""
        self.own.add(OwnLink(self._me, peer, address, link, kind))
        self._changed(now_ns)

    def down(self, link: bytes, now_ns: int) -> tuple[str, list[MapResult]] | None:
        """It is gone: the neighbour it led to, and what follows; None if it was not known."""
        withdrawn = self.own.remove(link)
        if withdrawn is None:
            return None
        self._changed(now_ns)
        if not withdrawn.sequence:
            return withdrawn.peer, []
        sequence = withdrawn.sequence + 1
        return withdrawn.peer, [CostAdvertised(link, math.inf, Metrics(), withdrawn.scope, sequence, now_ns)]

    def suspect(self, link: bytes, on: bool, now_ns: int) -> bool:
        """It is suspected of having failed, or no longer (MR-021); whether that is new."""
        own = self.own.links.get(link)
        if own is None or own.suspect == on:
            return False
        own.suspect = on
        self.own.changed()
        self._changed(now_ns)
        return True

    def measured(self, link: bytes, metrics: Metrics, samples: int, now_ns: int, out: list[MapResult]) -> bool:
        """It has new metrics; whether they moved enough to be advertised, beyond the noise of samples."""
        own = self.own.links.get(link)
        if own is None:
            return False
        own.metrics = metrics
        if not own.moved(self._settings, samples):
            return False
        self._advertise_cost(own, now_ns, out)
        self._remeasured(now_ns)
        return True

    def refresh(self, now_ns: int, out: list[MapResult]) -> None:
        """Costs are advertised again from time to time, for those who came late."""
        if self._originator.refreshes(now_ns):
            self.own.renew()
            for own in self.own.links.values():
                if not math.isnan(own.metrics.latency_ms):
                    self._advertise_cost(own, now_ns, out)
            self._remeasured(now_ns)

    def _advertise_cost(self, own: OwnLink, now_ns: int, out: list[MapResult]) -> None:
        cost = own.update(self._settings)
        out.append(CostAdvertised(own.id, cost, own.advertised, own.scope, own.sequence, now_ns))

    def _changed(self, now_ns: int) -> None:
        """The own links are others."""
        self._current.rebuild()
        self._current.claims.update(self._here, self.own.facts(), capabilities=self._settings.capabilities)
        self._originate(now_ns)

    def _remeasured(self, now_ns: int) -> None:
        """What is advertised of the own links has changed."""
        self.own.changed()
        self._originate(now_ns)
        self._current.apply(self._here, self.own.facts(), 0, 1, self._settings.capabilities)

    def _originate(self, now_ns: int) -> None:
        self._originator.links(0, self.own.facts(), 1, now_ns, (), self._settings.capabilities)
