"""The map as it is now: what is claimed of it, the view computed from that, and the routes over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chappe.linkstate.changes import InterestChanged, MapResult, RoutesChanged
from chappe.linkstate.choices import NEVER
from chappe.linkstate.claims import NOWHERE, Claims
from chappe.linkstate.interests import Interests
from chappe.linkstate.membership import membership
from chappe.linkstate.pacing import Pacing
from chappe.linkstate.partitions import Partitions
from chappe.linkstate.routes import Routes
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Facts, Location, View
from chappe.linkstate.units import Address, VertexId
from chappe.wire.mesh import Key


class CurrentMap:
    """Computed after changes, at a pace; what follows from it is in `deferred` until the next tick takes it.

    `joined(level, now_ns)` is called when vertices of a level have come.
    """

    def __init__(
        self, me: Address, settings: Settings, interests: Interests, joined: Callable[[int, int], None]
    ) -> None:
        self.now_ns = 0
        self.claims = Claims(me)
        self.deferred: list[MapResult] = []
        self.units_changed = False  # what is advertised for the units is to be looked at
        self.partitions = Partitions(me, settings)
        self._depth = me.depth
        self._interests = interests
        self._joined = joined
        self.computed = 0  # how often
        self._view: View = self.claims.view()
        self._topology_changed = False  # other links: the map is to be built anew
        self._remeasured_edges: set[int] = set()  # edges with other metrics
        self._pacing = Pacing(settings)
        self._changed_ns = NEVER
        self._changed_level = me.depth  # the lowest level at which something has changed
        self.routes = Routes(self._view, settings, self.bring_up_to_date)

    def begin(self, now_ns: int) -> None:
        """It is that time now."""
        if self._topology_changed or self._remeasured_edges:
            self._changed_ns = min(self._changed_ns, self.now_ns)  # it was the call before this one that changed it
        self.now_ns = max(self.now_ns, now_ns)

    # --- what is claimed

    def apply(
        self, location: Location, links: Facts, sequence: int, members: int, capabilities: tuple[str, ...]
    ) -> None:
        """An originator states these links."""
        reshaped, measured, outward = self.claims.update(location, links, sequence, members, capabilities)
        self.units_changed = self.units_changed or outward
        if reshaped != NOWHERE:
            self._changed_level = min(self._changed_level, reshaped)
            self._topology_changed = True
        elif measured:
            self._changed_level = min(self._changed_level, location[0])
            if not self._topology_changed:
                self._remeasured_edges.update(number for link in measured for number in self._view.ends.get(link, ()))

    def retire(self, locations: Iterable[Location]) -> None:
        """What was stated there counts no more."""
        for location in locations:
            if self.claims.forget(location):
                self.rebuild()

    def rebuild(self, *, units: bool = True) -> None:
        """Routes would lead astray: compute it without a pause. `units`: what units advertise may be another, too."""
        self._topology_changed, self._changed_level = True, 0
        self.units_changed = self.units_changed or units

    def drop(self, keys: Iterable[Key]) -> None:
        """These statements count no more."""
        for key in keys:
            if key[0] == "l":
                self.claims.forget(key[1:])
        self._interests.changed()
        self._topology_changed = self.units_changed = True
        self.deferred.append(InterestChanged())

    def hurry(self) -> None:
        """Whatever has changed is computed without a pause."""
        self._changed_level = 0

    # --- what follows

    @property
    def changed(self) -> bool:
        """Whether the view is not what is claimed."""
        return self._topology_changed or bool(self._remeasured_edges)

    @property
    def election_due(self) -> bool:
        """Whether what is advertised for the units can be looked at: not while routes lead astray."""
        return self.units_changed and not (self.changed and not self._changed_level)

    def tick(self, now_ns: int) -> None:
        """Compute it if that is due; else look at routes that were held down."""
        if self.changed and now_ns >= self._due_ns():
            self._compute()
        elif now_ns >= self.routes.next_ns:
            self.deferred += routes_changed(self.routes.update(set(), now_ns))

    def next_ns(self) -> int:
        """When `tick` has something to do."""
        due_ns = min(self.routes.next_ns, self.partitions.next_ns)
        return min(due_ns, self._due_ns()) if self.changed else due_ns

    def current_view(self) -> View:
        """The view, computed anew if it may be."""
        self.bring_up_to_date()
        return self._view

    @property
    def computed_view(self) -> View:
        """The view as it was computed last."""
        return self._view

    def bring_up_to_date(self) -> int:
        """Compute it if something has changed and the pace allows it; the time."""
        if self.changed and self.now_ns >= self._pacing.ready_ns(
            min(self._changed_ns, self.now_ns), self._changed_level
        ):
            self._compute()
        return self.now_ns

    def _due_ns(self) -> int:
        return self._pacing.due_ns(min(self._changed_ns, self.now_ns), self._changed_level)

    def _compute(self) -> None:
        now_ns = self.now_ns
        self.computed += 1
        self._pacing.done(now_ns, min(self._changed_ns, now_ns), self._changed_level)
        self._changed_ns, self._changed_level = NEVER, self._depth
        if self._topology_changed:
            old, self._topology_changed, self._remeasured_edges = self._view, False, set()
            self.units_changed = True
            view = self._view = self.claims.view()
            if view.vertices != old.vertices:
                self._interests.observe(old, view, now_ns)
                for level in {vertex_id.level for vertex_id in view.index.keys() - old.index.keys()}:
                    self._joined(level, now_ns)
                self.deferred += membership(old, view)
            self.partitions.observe(view, now_ns, self.deferred)
            self.deferred += routes_changed(self.routes.offer(view, now_ns))
        else:
            numbers, self._remeasured_edges = self._remeasured_edges, set()
            self.deferred += routes_changed(self.routes.update(numbers, now_ns))


def routes_changed(profiles: dict[str, frozenset[VertexId]]) -> list[MapResult]:
    """What is to be known of it, if anything."""
    return [RoutesChanged(profiles)] if profiles else []
