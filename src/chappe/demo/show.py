"""The demo for people: a live table on a terminal, a line every few seconds elsewhere, and the summary."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from chappe.demo.phasors import RATE, SPEEDS, VARIABLES
from chappe.demo.state import State, drops

LINE_S = 2.0


class Screen:
    """Writes to one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._line_s = 0.0
        self._seconds: float | None = None

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def live(self, state: State, seconds: float | None) -> Iterator[None]:
        """While it lasts, `show` replaces the table (or adds a line now and then)."""
        self._seconds = seconds
        if not self._console.is_terminal:
            self._line_s = time.monotonic()
            yield
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield
        self._live = None

    def show(self, state: State) -> None:
        if self._live is not None:
            self._live.update(Group(self._head(state), subscribers(state), nodes(state)), refresh=True)
        elif time.monotonic() - self._line_s >= LINE_S:
            self._line_s = time.monotonic()
            self.say(line(state))

    def _head(self, state: State) -> Text:
        until = f"of {self._seconds:g} s" if self._seconds else "s, Ctrl-C ends it"
        published = state.published.rate("rounds") * VARIABLES
        late = state.publisher.get("late_ms", 0.0)
        return Text(f"{state.elapsed_s:.0f} {until}   published {published:,.0f} values/s, {late:.1f} ms late at most")

    def summary(self, state: State, found: list[str]) -> None:
        """What was sent, what came, and what was wrong."""
        sent = state.publisher
        self.say(f"published {sent['values']:,} values of {VARIABLES:,} variables and {2 * sent['events']:,} events")
        table = Table("subscriber", *map(_right, ("expected", "received", "filtered", "p50 ms", "p99 ms", "dropped")))
        for name, row in state.results.items():
            filtered = f"{state.filtered(name):,}" if name in SPEEDS else ""
            table.add_row(
                name, f"{row['expected']:,}", f"{row['received']:,}", filtered, f"{row['p50_ms']:.1f}",
                f"{row['p99_ms']:.1f}", f"{row['dropped']:,}",
            )  # fmt: skip
        self._console.print(table)
        for problem in found:
            self._console.print(f"wrong: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
        if not found:
            self._console.print("nothing lost, nothing repeated, nothing filtered wrongly", style="green")


def subscribers(state: State) -> Table:
    """Rates and latencies of each subscriber."""
    table = Table("subscriber", *map(_right, ("rate/s", "due/s", "p50 ms", "p99 ms", "filtered", "dropped", "wrong")))
    for name, sample in state.subscribers.items():
        row = sample.row
        due = f"{float(VARIABLES * RATE / SPEEDS[name]):,.0f}" if name in SPEEDS else ""
        filtered = f"{state.filtered(name):,}" if name in SPEEDS else ""
        table.add_row(
            name, f"{sample.rate('received'):,.0f}", due, f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}", filtered,
            f"{row['dropped']:,}", f"{row['problems']:,}",
        )  # fmt: skip
    return table


def nodes(state: State) -> Table:
    """Rates and drops of each node."""
    table = Table("node", *map(_right, ("values in/s", "values out/s", "events/s", "filtered/s", "queued B", "drops")))
    for name, sample in state.nodes.items():
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in drops(sample.row).items())
        table.add_row(
            name, f"{sample.rate('status_in'):,.0f}", f"{sample.rate('status_out'):,.0f}",
            f"{sample.rate('events_in'):,.0f}", f"{sample.rate('filtered'):,.0f}", f"{state.queued_bytes(name):,}",
            dropped or "0",
        )  # fmt: skip
    return table


def line(state: State) -> str:
    """The same in one line."""
    parts = [
        f"{name} {sample.rate('received'):,.0f}/s p99 {sample.row['p99_ms']:.1f} ms"
        for name, sample in state.subscribers.items()
    ]
    dropped = sum(sum(drops(sample.row).values()) for sample in state.nodes.values())
    wrong = sum(sample.row["problems"] for sample in state.subscribers.values())
    return f"{state.elapsed_s:5.0f} s  {'  '.join(parts)}  drops {dropped}  wrong {wrong}"


def _right(title: str) -> Column:
    return Column(title, justify="right")
