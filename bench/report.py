"""What every benchmark ends with: figures against their targets, as a table for people and JSON for scripts."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from typer import Option

from bench.environment import environment, stolen_s

CEILING_S = 600  # no benchmark takes longer


@dataclass(frozen=True)
class Options:
    """How a benchmark is run: the options that all of them have."""

    quick: Annotated[bool, Option("--quick", help="One short round: shows that it runs, not how fast.")] = False
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="Write environment and results there; of all: a folder.")
    ] = None
    check: Annotated[bool, Option("--check", help="Exit with 1 if a target is missed.")] = False
    rounds: Annotated[int, Option("--rounds", min=1, max=20, help="Interleaved rounds; medians count.")] = 5
    charts: Annotated[Path, Option("--charts", metavar="FOLDER", help="Where PNG charts go.")] = Path("bench/out")
    console: Console = field(default_factory=lambda: wide_console())

    @property
    def repeats(self) -> int:
        return 1 if self.quick else self.rounds


@dataclass(frozen=True)
class Result:
    """A figure; without a target it is shown only."""

    name: str
    value: float
    unit: str
    relation: str | None = None  # >=, <=, <, ==
    target: float | None = None
    met: bool | None = None


@dataclass
class Report:
    """The results of one benchmark."""

    bench: str
    versions: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    charts: list[Path] = field(default_factory=list)
    began: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), stolen_s()))

    @property
    def stolen(self) -> float:
        """The share of this machine's CPU that went to others since the benchmark began: it blurs every latency."""
        began, before_s = self.began
        return (stolen_s() - before_s) / max(time.monotonic() - began, 0.01) / len(os.sched_getaffinity(0))

    def show(self, name: str, value: float, unit: str) -> None:
        """A figure without a target."""
        self.results.append(Result(name, float(value), unit))

    def compare(self, name: str, value: float, unit: str, relation: str, target: float) -> None:
        """A figure with a target; a value that could not be measured (NaN) misses it."""
        met = {">=": value >= target, "<=": value <= target, "<": value < target, "==": value == target}[relation]
        self.results.append(Result(name, float(value), unit, relation, float(target), met))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def met(self) -> bool:
        """No target was missed, and there was one."""
        judged = [result.met for result in self.results if result.met is not None]
        return bool(judged) and all(judged)

    def as_dict(self) -> dict[str, Any]:
        """The common shape of all benchmarks."""
        return {
            "bench": self.bench,
            "environment": {
                **environment(),
                "stolen_cpu": round(self.stolen, 4),
                "versions": self.versions,
                "notes": self.notes,
            },
            "results": [asdict(result) for result in self.results],
        }

    def shown(self) -> Table:
        """Figures without a target."""
        table = _table("figure", "value", "unit")
        for result in self.results:
            if result.target is None:
                table.add_row(result.name, number(result.value), result.unit)
        return table

    def judged(self) -> Table:
        """Figures against their targets."""
        table = _table("figure", "value", "unit", "target", "")
        table.title = f"chappe bench {self.bench}"
        for result in self.results:
            if result.target is not None:
                target = f"{result.relation} {number(result.target)}"
                verdict = "[green]met[/]" if result.met else "[red bold]missed[/]"
                table.add_row(result.name, number(result.value), result.unit, target, verdict)
        return table

    def finish(self, options: Options) -> int:
        """Print and write the report; the exit code of the command."""
        options.console.print(self.shown())
        for text in (*self.notes, *(f"chart: {chart}" for chart in self.charts)):
            options.console.print(text, highlight=False)
        options.console.print(self.judged())
        if self.stolen > 0.01:
            options.console.print(f"{self.stolen:.0%} of this machine's CPU went to others: latencies are blurred")
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        return 1 if options.check and not self.met else 0


def _table(*headings: str) -> Table:
    table = Table(title_justify="left")
    for heading in headings:
        table.add_column(
            heading, justify="right" if heading in ("value", "target") else "left", no_wrap=heading != "figure"
        )
    return table


def wide_console() -> Console:
    """As wide as the terminal; a file or a pipe gets whole lines."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def number(value: float) -> str:
    """Three significant digits or all before the point."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
