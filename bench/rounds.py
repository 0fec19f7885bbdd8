"""Interleaved rounds: every system takes its turn in each round, so that a slow minute hurts all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from rich.console import Console

from bench.progress import steps
from bench.report import CEILING_S, Report
from chappe.errors import ChappeError

Cell = TypeVar("Cell", bound=Hashable)
Value = TypeVar("Value")


class Ceiling:
    """The time a benchmark may take; rounds stop before it is over."""

    def __init__(self, seconds: float = CEILING_S * 0.95) -> None:
        self.start = time.monotonic()
        self.seconds = seconds

    @property
    def left_s(self) -> float:
        return self.seconds - (time.monotonic() - self.start)


class Rounds(Generic[Cell, Value]):
    """Values of each cell over the rounds; a cell that fails is reported and does not end the others."""

    def __init__(self, report: Report, console: Console, ceiling: Ceiling) -> None:
        self.report = report
        self.console = console
        self.ceiling = ceiling
        self.values: dict[Cell, list[Value]] = {}
        self.failures: dict[Cell, str] = {}
        self.done = 0

    def run(self, count: int, cells: Sequence[Cell], measure: Callable[[Cell], Value], title: str) -> None:
        """`count` rounds over all cells, fewer if the ceiling is near."""
        with steps(self.console, title, count * len(cells)) as step:
            longest = 0.0
            for turn in range(count):
                if turn and longest > self.ceiling.left_s:
                    break
                began = time.monotonic()
                # Every second round runs backwards: no system always follows the same one.
                for cell in cells if turn % 2 == 0 else reversed(cells):
                    step(str(cell))
                    self._measure(cell, measure)
                longest = max(longest, time.monotonic() - began)
                self.done += 1

    def _measure(self, cell: Cell, measure: Callable[[Cell], Value]) -> None:
        try:
            value = measure(cell)
            self.values.setdefault(cell, []).append(value)
        except ChappeError as error:
            self.failures[cell] = str(error)
            self.report.note(f"{cell} failed once or more: {error}")


def median(values: Sequence[float]) -> float:
    """NaN where nothing was measured, so that a target on it is missed and not skipped."""
    return statistics.median(values) if values else float("nan")


def spread(values: Sequence[float]) -> float:
    """Half the range, as a share of the median."""
    if len(values) < 2 or not median(values):
        return 0.0
    return (max(values) - min(values)) / 2 / median(values)


def ratio(above: float, below: float) -> float:
    return above / below if below else float("nan")
