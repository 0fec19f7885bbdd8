"""Figures of the source's experiments, for the tables and charts beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import charts

Points = Sequence[tuple[float, float]]

# Mean latency in us (a bucket's lower edge counted, so 50 us low) by delivered events a second, one router.
LOAD: Points = ((4_869, 654), (9_427, 697), (17_767, 672), (31_273, 672), (41_038, 672), (49_886, 672), (60_048, 700))
# Mean latency in us by routers on the way, at about 50,000 events a second.
HOPS: Points = ((1, 696), (2, 1_235), (3, 1_754), (4, 2_273), (5, 2_730), (6, 3_476), (7, 3_890))


@dataclass(frozen=True)
class Table:
    """Our points and the source's on the same axes."""

    title: str
    across: str
    up: str
    ours: Points
    theirs: Points


def chart(folder: Path, table: Table) -> Path:
    """One chart a table."""
    name = "gridstat-" + "-".join(table.title.replace(",", "").replace("/", " a ").split()) + ".png"
    return charts.curves(
        folder / name, table.title, table.across, table.up, {"chappe": table.ours, "source": table.theirs}
    )
