"""`chappe bench cells`: what a flow over many paths carries, how it is shared, and what happens when parts fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.cells import diamond, local, source
from bench.progress import followed
from bench.registry import CellsOptions
from bench.report import Options, Report
from chappe.errors import ChappeError


@dataclass(frozen=True)
class Case:
    """One experiment."""

    line: str
    run: Callable[[Options, Report], None]


CASES = {
    "b1": Case("the source's eight cells at three sites, beside the direct connection", source.run),
    "local": Case("two clients and two cells without limits, beside a plain stream through two relays", local.run),
    "shares": Case("bytes by path against the probabilities, before and after a step of capacity", diamond.shares),
    "kill": Case("cells on the way killed while a gibibyte passes", diamond.kill),
    "nat": Case("two neighbours that cannot connect, with and without a cell in common", diamond.nat),
    "beside": Case("events on a link that a flow saturates", diamond.beside),
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
        CASES[name].run(options, report)
        options.console.print(f"  {time.monotonic() - began:.0f} s")
    return report
