"""What every benchmark ends with: figures against their targets, as a table for people and JSON for scripts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from chappe.bench.environment import environment

CEILING_S = 600  # no benchmark takes longer


@dataclass(frozen=True)
class Options:
    """How a benchmark is run; the same for all."""

    quick: bool = False
    json: Path | None = None
    check: bool = False
    rounds: int = 5
    charts: Path = Path("bench/out")
    console: Console = field(default_factory=Console)

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
            "environment": {**environment(), "versions": self.versions, "notes": self.notes},
            "results": [asdict(result) for result in self.results],
        }

    def table(self) -> Table:
        table = Table(title=f"chappe bench {self.bench}", title_justify="left")
        table.add_column("figure")
        table.add_column("value", justify="right")
        table.add_column("unit")
        table.add_column("target", justify="right")
        table.add_column("")
        for result in self.results:
            target = "" if result.target is None else f"{result.relation} {number(result.target)}"
            verdict = {None: "", True: "[green]met[/]", False: "[red bold]missed[/]"}[result.met]
            table.add_row(result.name, number(result.value), result.unit, target, verdict)
        return table

    def finish(self, options: Options) -> int:
        """Print and write the report; the exit code of the command."""
        for text in self.notes:
            options.console.print(f"note: {text}", highlight=False)
        options.console.print(self.table())
        for chart in self.charts:
            options.console.print(f"chart: {chart}", highlight=False)
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        return 1 if options.check and not self.met else 0


def number(value: float) -> str:
    """Three significant digits or all before the point."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
