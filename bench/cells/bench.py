"""`chappe bench cells`: what a flow over many paths carries, how it is shared, and what happens when parts fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.cells import diamond, local, scale, source
from bench.progress import followed
from bench.registry import CellsOptions
from bench.report import Options, Report
from chappe.errors import ChappeError


@dataclass(frozen=True)
class Case:
    """One experiment."""

    line: str
    run: Callable[[Options, CellsOptions, Report], None]


def _fixed(run: Callable[[Options, Report], None]) -> Callable[[Options, CellsOptions, Report], None]:
    """A case without options of its own."""
    return lambda options, own, report: run(options, report)


CASES = {
    "b1": Case("the source's eight cells at three sites, beside the direct connection", _fixed(source.run)),
    "local": Case(
        "two clients and two cells without limits, beside a plain stream through two relays", _fixed(local.run)
    ),
    "shares": Case(
        "bytes by path against the probabilities, before and after a step of capacity", _fixed(diamond.shares)
    ),
    "kill": Case("cells on the way killed while a gibibyte passes", _fixed(diamond.kill)),
    "nat": Case("two neighbours that cannot connect, with and without a cell in common", _fixed(diamond.nat)),
    "beside": Case("events on a link that a flow saturates", _fixed(diamond.beside)),
    "scale": Case("simulated cells that one in a hundred leaves each second: unicasts, multicasts, state", scale.run),
}


def run(options: Options, own: CellsOptions) -> Report:
    """All cases, or those named."""
    report = Report("cells")
    unknown = [name for name in own.case if name not in CASES]
    if unknown:
        raise ChappeError(f"--case {unknown[0]}: there is no such case; choose from {', '.join(CASES)}")
    for name in followed(options.console, "cells", own.case or list(CASES)):
        options.console.print(f"[bold]{name}[/]: {CASES[name].line}")
        began = time.monotonic()
        CASES[name].run(options, own, report)
        options.console.print(f"  {time.monotonic() - began:.0f} s")
    return report
