"""Who came and who went, between one map and the next."""

from __future__ import annotations

from chappe.linkstate.changes import InterestChanged, MapResult, Notice
from chappe.linkstate.topology import View
from chappe.linkstate.units import VertexId


def membership(old: View, new: View) -> list[MapResult]:
    """Who came and who went where vertices are others: or somebody else originates for a unit, who may want something
    else."""
    before, after = _whole(old), _whole(new)
    out: list[MapResult] = [
        Notice("joined", vertex_id, f"{vertex_id} can be reached") for vertex_id in sorted(after - before)
    ]
    out += [
        Notice("left", vertex_id, f"{vertex_id} cannot be reached any more") for vertex_id in sorted(before - after)
    ]
    out.append(InterestChanged())
    return out


def _whole(view: View) -> set[VertexId]:
    """Nodes and units of a map, whether a unit is in one piece or not, without the own ones."""
    found = {VertexId(vertex.level, vertex.origin) for vertex in view.vertices}
    return found - {VertexId(level, view.me.path(level)) for level in range(view.me.depth + 1)}
