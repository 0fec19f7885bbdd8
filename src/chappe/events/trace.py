"""Units that an event has left: what may still be entered, and what is added on the way out (MR-020)."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.events.source_route import MAX_TRACE
from chappe.linkstate.units import Address


def related(a: str, b: str) -> bool:
    """Whether two names of units mean the same one or one inside the other; parts of a broken unit are apart.

    So are a part and the whole: who names a part knows that the unit fell apart, who names the whole does not yet.
    """
    path_a, _, part_a = a.partition("@")
    path_b, _, part_b = b.partition("@")
    if path_a == path_b:
        return part_a == part_b
    if len(path_a) > len(path_b):
        path_a, part_a, path_b = path_b, part_b, path_a
    return not part_a and path_b.startswith(path_a + "/")


def visited(name: str, trace: Iterable[str]) -> bool:
    """Whether a unit is one that was left, holds one or lies in one."""
    return any(related(name, unit) for unit in trace)


def returns(own: Iterable[str], trace: Iterable[str]) -> str:
    """The one of the own units that was left, so that the event must not be here; empty if there is none."""
    names = set(own)
    return next((unit for unit in trace if unit in names), "")


def without_own(me: Address, trace: Iterable[str]) -> tuple[str, ...]:
    """The trace without the units that this node is in."""
    own = {me.path(level) for level in range(1, me.depth + 1)}
    return tuple(unit for unit in trace if unit.partition("@")[0] not in own)


def crossed(me: Address, level: int, own: str, trace: Iterable[str]) -> tuple[str, ...]:
    """The trace of an event that goes from here into another unit of that level: the own one is left for good.

    Empty if it has been through too many units.
    """
    path = me.path(level)
    kept = [
        unit
        for unit in trace
        if not unit.startswith(path + "/") and not (unit.partition("@")[0] == path and related(unit, own))
    ]
    return (*kept, own) if len(kept) < MAX_TRACE else ()
