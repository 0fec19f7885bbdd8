"""Units that fell apart, told when it lasts (MR-013)."""

from __future__ import annotations

from chappe.linkstate.choices import NEVER
from chappe.linkstate.outputs import Notice, Output
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import View
from chappe.linkstate.units import Address, Thing


class _Broken:
    """One unit: since when, and what of it is where."""

    __slots__ = ("lost", "parts", "since_ns", "told")

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.told = False
        self.parts: tuple[Thing, ...] = ()
        self.lost: tuple[Thing, ...] = ()


class Partitions:
    """What a node says of partitions: parts that it still reaches by other ways, and things that it cannot reach."""

    def __init__(self, me: Address, settings: Settings) -> None:
        self.me = me
        self.settings = settings
        self.next_ns = NEVER
        self._broken: dict[Thing, _Broken] = {}

    def observe(self, view: View, now_ns: int, out: list[Output]) -> None:
        """Compare another map with what is known to be broken."""
        lost: dict[Thing, list[Thing]] = {}
        for thing in view.lost:
            lost.setdefault(Thing(thing.level + 1, self.me.scope(thing.level)), []).append(thing)
        units = view.parts.keys() | lost.keys()
        for unit in sorted(units):
            broken = self._broken.setdefault(unit, _Broken(now_ns))
            broken.parts = view.parts.get(unit, ())
            broken.lost = tuple(lost.get(unit, ()))
        for unit in sorted(self._broken.keys() - units):
            broken = self._broken.pop(unit)
            whole = bool(broken.parts) or any(thing in view.index for thing in broken.lost)
            if broken.told and whole:  # else nobody tells of what was lost any more: it may be dead as well
                out.append(Notice("merged", unit, f"{unit.name or 'the mesh'} is one again"))
        self._plan()

    def tick(self, now_ns: int, out: list[Output]) -> None:
        """Tell of what has been broken for long enough."""
        if now_ns < self.next_ns:
            return
        for unit, broken in sorted(self._broken.items()):
            if not broken.told and now_ns >= broken.since_ns + self.settings.parted_ns:
                broken.told = True
                out.append(Notice("parted", unit, _reason(unit, broken)))
        self._plan()

    def _plan(self) -> None:
        waiting = (broken.since_ns for broken in self._broken.values() if not broken.told)
        self.next_ns = min(waiting, default=NEVER) + (self.settings.parted_ns if self._broken else 0)


def _reason(unit: Thing, broken: _Broken) -> str:
    name = unit.name or "the mesh"
    if broken.parts:
        return f"{name} has fallen apart; it is still reached as {', '.join(part.name for part in broken.parts)}"
    some = ", ".join(thing.name for thing in broken.lost[:8])
    return f"{name} has fallen apart; {len(broken.lost)} of it cannot be reached: {some}"
