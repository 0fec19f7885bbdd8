"""Units that fell apart, reported when it lasts (MR-013)."""

from __future__ import annotations

from chappe.linkstate.changes import MapResult, Notice
from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import View
from chappe.linkstate.units import Address, VertexId


class _Broken:
    """One unit: since when, and what of it is where."""

    __slots__ = ("advertised", "lost", "parts", "since_ns")

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.advertised = False
        self.parts: tuple[VertexId, ...] = ()
        self.lost: tuple[VertexId, ...] = ()


class Partitions:
    """What a node says of partitions: parts that it reaches by other routes, and vertices that it cannot reach."""

    def __init__(self, me: Address, settings: Settings) -> None:
        self.me = me
        self.settings = settings
        self.next_ns = NEVER
        self._broken: dict[VertexId, _Broken] = {}

    def observe(self, view: View, now_ns: int, out: list[MapResult]) -> None:
        """Compare another map with what is known to be broken."""
        lost: dict[VertexId, list[VertexId]] = {}
        for vertex_id in view.lost:
            lost.setdefault(VertexId(vertex_id.level + 1, self.me.scope(vertex_id.level)), []).append(vertex_id)
        units = view.parts.keys() | lost.keys()
        for unit in sorted(units):
            broken = self._broken.setdefault(unit, _Broken(now_ns))
            broken.parts = view.parts.get(unit, ())
            broken.lost = tuple(lost.get(unit, ()))
        for unit in sorted(self._broken.keys() - units):
            broken = self._broken.pop(unit)
            whole = bool(broken.parts) or any(vertex_id in view.index for vertex_id in broken.lost)
            if broken.advertised and whole:  # else nobody advertises what was lost any more: it may be dead as well
                out.append(Notice("merged", unit, f"{unit.name or 'the mesh'} is one again"))
        self._plan()

    def tick(self, now_ns: int, out: list[MapResult]) -> None:
        """Tell of what has been broken for long enough."""
        if now_ns < self.next_ns:
            return
        for unit, broken in sorted(self._broken.items()):
            if not broken.advertised and now_ns >= broken.since_ns + self.settings.parted_ns:
                broken.advertised = True
                out.append(Notice("parted", unit, _reason(unit, broken)))
        self._plan()

    def _plan(self) -> None:
        waiting = (broken.since_ns for broken in self._broken.values() if not broken.advertised)
        self.next_ns = min(waiting, default=NEVER) + (self.settings.parted_ns if self._broken else 0)


def _reason(unit: VertexId, broken: _Broken) -> str:
    name = unit.name or "the mesh"
    if broken.parts:
        return f"{name} has fallen apart; it is still reached as {', '.join(part.name for part in broken.parts)}"
    some = ", ".join(vertex_id.name for vertex_id in broken.lost[:8])
    return f"{name} has fallen apart; {len(broken.lost)} of it cannot be reached: {some}"
