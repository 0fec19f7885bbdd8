"""Flooding in one cloud: every router gets it, routers that come later too (GS-100, GS-101)."""

from __future__ import annotations

from chappe.status.flooding.floods import Floods
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.pending_removals import PendingRemovals
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.routers import FLOOD, FloodedVariable
from chappe.status.leaf.state import FLOOD as KIND
from chappe.status.machine import PARENT, Address
from chappe.wire.base import Variable
from chappe.wire.constants import MODES
from chappe.wire.management import ClearFlood, SetFlood

HEIGHT = 1  # of a leaf: the level and the rank of what is decided here


class LeafFlooding:
    """The flooded variables of this cloud; a name stays flooded when it is published anew."""

    def __init__(self, cloud: Cloud, registry: Registry, parent: ParentLink) -> None:
        self._cloud = cloud
        self._registry = registry
        self._parent = parent
        self.floods = Floods()
        self.pending_removals = PendingRemovals(cloud, "unflood", FLOOD)

    def restore(self, items: dict[str, bytes]) -> None:
        for value in items.values():
            self.floods.load(value)
        for variable in self.floods.variables():
            self._cloud.refer(variable.variable_id)
            self._install(variable)  # a router may have missed it; to get it twice changes nothing

    def set(self, address: Address, request: SetFlood) -> None:
        rank = request.rank if address == PARENT else HEIGHT
        level = request.level or HEIGHT
        name = f"{request.publisher}/{request.variable}"
        if address != PARENT and level > HEIGHT:
            self._cloud.fail(address, request.id, "invalid", f"flooding of {name}: level {level} is above this broker; "
                             f"ask one of height {level}")  # fmt: skip
            return
        if not 0 < request.modes < 1 << MODES:
            self._cloud.fail(address, request.id, "invalid", f"flooding of {name}: mask {request.modes:#x} has no mode")
            return
        publication = self._registry.by_name.get((request.publisher, request.variable))
        described = request.described if address == PARENT else None  # an operator makes up no variable
        variable = publication.variable if publication is not None else described
        if variable is None:
            self._cloud.fail(address, request.id, "unknown", f"flooding of {name}: nobody publishes it in this cloud")
            return
        overruled = self.floods.overruled(variable.variable_id, request.modes, rank)
        if address != PARENT and overruled == request.modes:
            self._overruled(address, request)
            return
        self._supersede(variable)
        before = any(self.floods.levels(variable.variable_id))
        if self.floods.set(variable, level, request.modes, rank):
            self._changed(variable, before)
        self._persist(variable.variable_id)
        self._cloud.done(address, request.id)

    def clear(self, address: Address, request: ClearFlood) -> None:
        rank = request.rank if address == PARENT else HEIGHT
        variable = self.floods.find(request.publisher, request.variable)
        if variable is not None:
            before = any(self.floods.levels(variable.variable_id))
            held = self.floods.overruled(variable.variable_id, request.modes, rank)
            if self.floods.clear(variable.variable_id, request.modes, rank):
                self._changed(variable, before)
            elif held and address != PARENT:
                self._overruled(address, request)
                return
            self._persist(variable.variable_id)
        self._cloud.done(address, request.id)

    def _overruled(self, address: Address, request: SetFlood | ClearFlood) -> None:
        name = f"{request.publisher}/{request.variable}"
        self._cloud.fail(address, request.id, "denied", f"flooding of {name} is decided by a broker above; ask there")

    def published(self, variable: Variable) -> None:
        """A name that is flooded has a new variable."""
        known = self.floods.find(variable.publisher, variable.variable)
        if known is None or known.variable_id == variable.variable_id:
            return
        groups = self.floods.groups(known.variable_id)
        self._supersede(variable)
        for level, rank, modes in groups:
            self.floods.set(variable, level, modes, rank)
        self._changed(variable, False)
        self._persist(variable.variable_id)
        self._renew(variable)

    def rate_changed(self, variable: Variable) -> None:
        """A variable has another rate: routers to which it is flooded learn it with the flooding too."""
        known = self.floods.find(variable.publisher, variable.variable)
        if known is None or known.variable_id != variable.variable_id or known == variable:
            return
        for level, rank, modes in self.floods.groups(variable.variable_id):
            self.floods.set(variable, level, modes, rank)
        self._install(variable)
        self._persist(variable.variable_id)

    def led(self) -> None:
        """There is a parent, perhaps a new one: it may not know which variable has a flooded name now."""
        for variable in self.floods.variables():
            if (variable.publisher, variable.variable) in self._registry.by_name:
                self._renew(variable)

    def _renew(self, variable: Variable) -> None:
        """Brokers above that flood this name do so with this variable; they know themselves whether they do."""
        if max(self.floods.ranks(variable.variable_id)) > HEIGHT:
            self._parent.ask(SetFlood, lambda answer: None, publisher=variable.publisher, variable=variable.variable,
                             described=variable)  # fmt: skip

    def joins(self, router: str) -> None:
        """A router that is new in the cloud gets all of them."""
        for variable in self.floods.variables():
            self._install(variable, router)

    def _supersede(self, variable: Variable) -> None:
        """Another id had this name before: nothing of it is flooded any more."""
        known = self.floods.find(variable.publisher, variable.variable)
        if known is not None and known.variable_id != variable.variable_id:
            self.floods.drop(known.variable_id)
            self._changed(known, True)
            self._persist(known.variable_id)

    def _changed(self, variable: Variable, before: bool) -> None:
        now = any(self.floods.levels(variable.variable_id))
        if now:
            self.pending_removals.forget(variable.variable_id)
            if not before:
                self._cloud.refer(variable.variable_id)
            self._install(variable)
        elif before:
            self.pending_removals.remove(variable, self._cloud.routers.all)
            self._cloud.forget(variable.variable_id)

    def _install(self, variable: Variable, router: str = "") -> None:
        flooding = FloodedVariable(variable, self.floods.levels(variable.variable_id))
        for name in (router,) if router else self._cloud.routers.all:
            self._cloud.routers.set(name, (variable.variable_id, FLOOD), flooding)

    def _persist(self, variable_id: int) -> None:
        value = self.floods.dump(variable_id)
        if value is None:
            self._cloud.outbox.drop(KIND, str(variable_id))
        else:
            self._cloud.outbox.put(KIND, str(variable_id), value)
