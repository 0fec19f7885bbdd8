"""An archive whose rows are numbers, for tests that count what arrives where."""

from __future__ import annotations

from pathlib import Path

from chappe.archive.segments import Segments
from chappe.archive.writer import Limits, Writer
from tests.support.archives import START_NS, readings


class Written:
    """An archive with counters whose values are 0, 1, 2 and so on."""

    def __init__(self, folder: Path, name: str = "archive") -> None:
        self.path, self.log, self.name = folder / "segments", folder / f"log-{name}", name
        self.writer = Writer(Segments(self.path, name), self.log, Limits(age_ns=1 << 62))
        self.rows = 0

    def write(self, rows: int, close: bool = False) -> None:
        self.writer.append("counters", readings(range(self.rows, self.rows + rows)), START_NS)
        self.rows += rows
        self.writer.sync()
        if close:
            self.writer.close()
            self.writer = Writer(Segments(self.path, self.name), self.log, Limits(age_ns=1 << 62))

    def leave(self) -> None:
        """Close its files as they are."""
        for each in self.writer._logs.values():
            each.close()

    def options(self, **more: object) -> dict[str, str]:
        given = {"path": self.path, "log": f"{self.name}={self.log}", "dataset": "counters", **more}
        return {name: str(value) for name, value in given.items()}
