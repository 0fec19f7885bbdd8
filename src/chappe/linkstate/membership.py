"""Who came and who went, between one map and the next."""

from __future__ import annotations

from chappe.linkstate.outputs import InterestChanged, Notice, Output
from chappe.linkstate.topology import View
from chappe.linkstate.units import Thing


def membership(old: View, new: View) -> list[Output]:
    """Who came, who went, and whether somebody else speaks for a unit, who may want something else."""
    if set(old.vertices) == set(new.vertices):
        return []
    before, after = _whole(old), _whole(new)
    out: list[Output] = [Notice("joined", thing, f"{thing} can be reached") for thing in sorted(after - before)]
    out += [Notice("left", thing, f"{thing} cannot be reached any more") for thing in sorted(before - after)]
    out.append(InterestChanged())
    return out


def _whole(view: View) -> set[Thing]:
    """Nodes and units of a map, whether a unit is in one piece or not, without the own ones."""
    found = {Thing(vertex.level, vertex.origin) for vertex in view.vertices}
    return found - {Thing(level, view.me.path(level)) for level in range(view.me.depth + 1)}
