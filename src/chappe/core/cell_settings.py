"""The settings of a cell from `[cells]` of a node's file."""

from __future__ import annotations

from chappe.cells.settings import SECOND, CellSettings
from chappe.core.sections import Cells


def settings_of(section: Cells) -> CellSettings:
    """How the cell behaves."""
    return CellSettings(
        neighbours=section.neighbours, random=section.random, far=section.far, radius=section.radius,
        paths=section.paths, names=section.names, slack=section.slack, update_ns=round(section.update_s * SECOND),
        reachable=section.reachable, names_per_identity=section.names_per_identity,
    )  # fmt: skip
