"""Flooding from an inner broker: what is in force below it, and every child that has to know (GS-100, GS-101).

Flooding belongs to the name of a variable: one that is published anew under that name, with another id, is flooded too.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.status.flooding.floods import Floods
from chappe.status.inner.calls import Calls
from chappe.status.inner.claims import Claims
from chappe.status.inner.netview import NetView
from chappe.status.leaf.state import Item
from chappe.status.machine import PARENT, Address
from chappe.status.modes.machines import left_behind
from chappe.status.outbox import Outbox
from chappe.wire.base import Done, Failed, Message, Request, Variable
from chappe.wire.constants import ALL_MODES, MODES
from chappe.wire.management import ClearFlood, Describe, Described, SetFlood

ANSWER_NS = 5_000_000_000


class FloodItem(Item):
    """A flooded variable: by mode the level and the rank of the broker that said so."""

    variable: Variable
    levels: tuple[int, ...]
    ranks: tuple[int, ...]


class UnfloodItem(Item):
    """A removal that a child has not confirmed."""

    child: str
    publisher: str
    variable: str
    modes: int
    rank: int

    @property
    def key(self) -> str:
        return f"{self.child}/{self.publisher}/{self.variable}"


class TreeFloods:
    """The list of this broker. What is set reaches a child when it joins, what was removed meanwhile too."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, claims: Claims, has_parent: bool) -> None:
        self._out = out
        self._calls = calls
        self._view = view
        self._claims = claims
        self._has_parent = has_parent
        self._removals: dict[str, UnfloodItem] = {}
        self.floods = Floods()

    def restore(self, item: FloodItem | UnfloodItem) -> None:
        if isinstance(item, UnfloodItem):
            self._removals[item.key] = item
        else:
            for mode, (level, rank) in enumerate(zip(item.levels, item.ranks, strict=True)):
                if level:
                    self.floods.set(item.variable, level, 1 << mode, rank)

    # --- requests --------------------------------------------------------------------------------------------------

    def set(self, source: Address, request: SetFlood, now_ns: int) -> None:
        """From the parent as it is; from an operator with this broker's rank, after the variable was described."""
        if source == PARENT and request.described is not None:
            self._set(source, request, request.described, request.level, request.rank, now_ns)
            return
        height = self._view.height
        level = request.level or height
        cloud = self._claims.cloud(request.publisher)
        child = self._view.reached(cloud) if cloud else ""
        if not 1 <= level <= height or not 0 < request.modes < 1 << MODES:
            reason = (
                f"level {request.level} in modes {request.modes:#x}: {self._view.role} floods to levels 1 to {height}, "
                "in at least one of 16 modes"
            )
            self._out.send(source, Failed(id=request.id, reason=reason, code="invalid"))
        elif not cloud:
            reason = f"nobody below {self._view.role} publishes under the name {request.publisher}"
            self._out.send(source, Failed(id=request.id, reason=reason, code="unknown"))
        elif not child:
            reason = f"the broker {cloud} of the publisher {request.publisher} is not connected"
            self._out.send(source, Failed(id=request.id, reason=reason, code="unavailable"))
        else:
            describe = Describe(id=0, publisher=request.publisher, variable=request.variable, cloud=cloud)
            self._calls.call(
                f"child/{child}", describe, self._described(source, request, level, height), now_ns, ANSWER_NS
            )

    def _described(self, source: Address, request: SetFlood, level: int, rank: int) -> Callable[[Message, int], None]:
        def answer(message: Message, now_ns: int) -> None:
            if isinstance(message, Described):
                held = self.floods.overruled(message.variable.variable_id, request.modes, rank)
                if not held:
                    self._set(source, request, message.variable, level, rank, now_ns)
                    return
                message = _overruled(request.publisher, request.variable, held)
            if isinstance(message, Failed):
                message.id = request.id
                self._out.send(source, message)

        return answer

    def _set(self, source: Address, request: SetFlood, variable: Variable, level: int, rank: int, now_ns: int) -> None:
        self._supersede(variable)
        self.floods.set(variable, level, request.modes, rank)
        self._persist(variable.variable_id)
        for item in list(self._removals.values()):
            if (item.publisher, item.variable) == (variable.publisher, variable.variable):
                self._removed(item, request.modes)
        self._send_all(source, request.id, self._set_requests(variable, level, rank, request.modes), now_ns)

    def renewed(self, source: Address, request: SetFlood, now_ns: int) -> None:
        """A child reports that a name has a new variable: every broker that floods it does so with that one."""
        known = self.floods.find(request.publisher, request.variable)
        if request.described is not None:
            if known is not None and known.variable_id != request.described.variable_id:
                groups = self.floods.groups(known.variable_id)
                self._supersede(request.described)
                for level, rank, modes in groups:
                    self.floods.set(request.described, level, modes, rank)
                    request_for = self._set_requests(request.described, level, rank, modes)
                    self._send_all("", 0, request_for, now_ns)
                self._persist(request.described.variable_id)
            if self._has_parent:
                self._calls.call(PARENT, msgspec.structs.replace(request), _ignore, now_ns, kept=True)
        self._out.send(source, Done(id=request.id))

    def _supersede(self, variable: Variable) -> None:
        """Another id had this name before."""
        known = self.floods.find(variable.publisher, variable.variable)
        if known is not None and known.variable_id != variable.variable_id:
            self.floods.drop(known.variable_id)
            self._persist(known.variable_id)

    def clear(self, source: Address, request: ClearFlood, now_ns: int) -> None:
        """A removal also ends what children have set: nothing of a lower rank stays."""
        known = self.floods.find(request.publisher, request.variable)
        if source != PARENT:
            request.rank = self._view.height
        if known is not None:
            held = self.floods.overruled(known.variable_id, request.modes, request.rank)
            if held:
                failed = _overruled(request.publisher, request.variable, held)
                failed.id = request.id
                self._out.send(source, failed)
                return
            self.floods.clear(known.variable_id, request.modes, request.rank)
            self._persist(known.variable_id)
        for child in self._view.children:
            item = UnfloodItem(child=child, publisher=request.publisher, variable=request.variable,
                               modes=request.modes, rank=request.rank)  # fmt: skip
            before = self._removals.get(item.key)
            if before is not None:
                item.modes |= before.modes
                item.rank = max(item.rank, before.rank)
            self._removals[item.key] = item
            self._out.put("unflood", item.key, item)
        self._send_all(source, request.id, lambda child: self._removal(child, request), now_ns)

    # --- children ---------------------------------------------------------------------------------------------------

    def joined(self, child: str, now_ns: int) -> None:
        """Everything in force, and what was removed while it was away."""
        for item in list(self._removals.values()):
            if item.child == child:
                self._calls.call(f"child/{child}", _request(item), self._confirmed(item), now_ns, ANSWER_NS)
        for variable in self.floods.variables():
            for level, rank, modes in self.floods.groups(variable.variable_id):
                request = self._set_requests(variable, level, rank, modes)(child)
                self._calls.call(f"child/{child}", request, _ignore, now_ns, ANSWER_NS)

    def forget(self, child: str) -> None:
        """It is no child any more."""
        for item in list(self._removals.values()):
            if item.child == child:
                self._removed(item, ALL_MODES)

    def _send_all(self, source: Address, number: int, request_for: Callable[[str], Request], now_ns: int) -> None:
        """Send to every child and answer when all have confirmed or cannot."""
        waiting = {child.role for child in self._view.children.values() if child.up}
        reasons = {child.role: "away" for child in self._view.children.values() if not child.up}

        def conclude() -> None:
            if source and not waiting:
                self._out.send(source, Done(id=number, note=left_behind(reasons)))

        def send(child: str) -> None:
            request = request_for(child)
            item = self._removals.get(f"{child}/{request.publisher}/{request.variable}") \
                if isinstance(request, ClearFlood) else None  # fmt: skip

            def answer(message: Message, now_ns: int) -> None:
                waiting.discard(child)
                if isinstance(message, Failed):
                    reasons[child] = message.reason
                else:
                    if item is not None:
                        self._confirmed(item)(message, now_ns)
                    if isinstance(message, Done) and message.note:
                        reasons[child] = message.note
                conclude()

            self._calls.call(f"child/{child}", request, answer, now_ns, ANSWER_NS)

        for child in sorted(waiting):
            send(child)
        conclude()

    def _set_requests(self, variable: Variable, level: int, rank: int, modes: int) -> Callable[[str], Request]:
        def request_for(child: str) -> Request:
            return SetFlood(id=0, publisher=variable.publisher, variable=variable.variable, modes=modes, level=level,
                            rank=rank, described=variable)  # fmt: skip

        return request_for

    def _removal(self, child: str, request: ClearFlood) -> ClearFlood:
        return _request(self._removals[f"{child}/{request.publisher}/{request.variable}"])

    def _confirmed(self, item: UnfloodItem) -> Callable[[Message, int], None]:
        def answer(message: Message, now_ns: int) -> None:
            if isinstance(message, Done) and self._removals.get(item.key) is item:
                self._removed(item, ALL_MODES)

        return answer

    def _removed(self, item: UnfloodItem, modes: int) -> None:
        item.modes &= ~modes
        if item.modes:
            self._out.put("unflood", item.key, item)
        else:
            del self._removals[item.key]
            self._out.drop("unflood", item.key)

    def _persist(self, variable_id: int) -> None:
        variable = self.floods.variable(variable_id)
        if variable is None:
            self._out.drop("flood", str(variable_id))
        else:
            levels, ranks = self.floods.levels(variable_id), self.floods.ranks(variable_id)
            self._out.put("flood", str(variable_id), FloodItem(variable=variable, levels=levels, ranks=ranks))


def _request(item: UnfloodItem) -> ClearFlood:
    return ClearFlood(id=0, publisher=item.publisher, variable=item.variable, modes=item.modes, rank=item.rank)


def _overruled(publisher: str, variable: str, modes: int) -> Failed:
    reason = f"a broker above floods {publisher}/{variable} in modes {modes:#x}; ask there"
    return Failed(id=0, reason=reason, code="denied")


def _ignore(message: Message, now_ns: int) -> None:
    """Nothing depends on it: a child that misses it gets it when it joins."""
