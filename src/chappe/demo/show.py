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
from chappe.demo.verdict import not_shown

LINE_S = 2.0
TOLD = 6  # events of the story in the live table


class Screen:
    """Writes to one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._line_s = 0.0
        self._told = 0
        self._seconds: float | None = None

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    @contextmanager
    def live(self, seconds: float | None) -> Iterator[None]:
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
            story = [Text(event, style="bold") for event in state.events[-TOLD:]]
            self._live.update(Group(self._head(state), *story, subscribers(state), routers(state)), refresh=True)
            return
        for event in state.events[self._told :]:
            self.say(event)
        self._told = len(state.events)
        if time.monotonic() - self._line_s >= LINE_S:
            self._line_s = time.monotonic()
            self.say(line(state))

    def _head(self, state: State) -> Text:
        until = f"of {self._seconds:g} s" if self._seconds else "s, Ctrl-C ends it"
        published = state.published.rate("rounds") * VARIABLES
        late = state.publisher.get("late_ms", 0.0)
        return Text(
            f"{state.elapsed_s:.0f} {until}   mode {state.mode}   published {published:,.0f} values/s, "
            f"{late:.1f} ms late at most   {alerts(state)}"
        )

    def summary(self, state: State, found: list[str]) -> None:
        """What was sent, what came, and what was wrong."""
        sent = state.publisher
        self.say(
            f"published {sent['values']:,} values of {VARIABLES:,} variables and {sent['alerts']:,} alerts; "
            f"{state.changes} changes of mode, {state.floods} floods"
        )
        titles = ("due", "received", "extra", "filtered", "p50 ms", "p99 ms", "dropped")
        table = Table("watcher", *map(_right, titles))
        for name, row in state.results.items():
            table.add_row(
                name, f"{row['expected']:,}", f"{row['received']:,}", f"{row['extra']:,}", f"{state.filtered(name):,}",
                f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}", f"{row['dropped']:,}",
            )  # fmt: skip
        heard = state.heard
        table.add_row(
            "alerts", f"{heard['expected']:,}", f"{heard['received']:,}", f"{heard['extra']:,}", "", "", "",
            f"{heard['dropped']:,}",
        )  # fmt: skip
        self._console.print(table)
        for problem in found:
            self._console.print(f"wrong: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
        for what in not_shown(state):
            self.say(f"there was no time for {what}: let it run for 20 seconds")
        if not found:
            self._console.print("nothing lost, nothing repeated, nothing filtered wrongly", style="green")


def subscribers(state: State) -> Table:
    """Rates and latencies of each subscriber."""
    table = Table("subscriber", *map(_right, ("rate/s", "due/s", "p50 ms", "p99 ms", "filtered", "dropped", "wrong")))
    for name, sample in state.subscribers.items():
        row = sample.row
        table.add_row(
            name, f"{sample.rate('received'):,.0f}", _due(name, state.mode), f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}", f"{state.filtered(name):,}", f"{row['dropped']:,}", f"{row['problems']:,}",
        )  # fmt: skip
    return table


def _due(name: str, mode: int) -> str:
    if name not in SPEEDS:
        return f"{float(RATE):,.0f}"
    every = SPEEDS[name].every(mode)
    return f"{float(VARIABLES * RATE / every):,.0f}" if every else "0"


def routers(state: State) -> Table:
    """Rates and drops of each router."""
    table = Table(
        "router", *map(_right, ("values in/s", "values out/s", "filtered/s", "second copies/s", "queued B", "drops"))
    )
    for name, sample in state.routers.items():
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in drops(sample.row).items())
        table.add_row(
            name, f"{sample.rate('status_in'):,.0f}", f"{sample.rate('status_out'):,.0f}",
            f"{sample.rate('filtered'):,.0f}", f"{sample.rate('drop_duplicate'):,.0f}",
            f"{state.queued_bytes(name):,}", dropped or "0",
        )  # fmt: skip
    return table


def alerts(state: State) -> str:
    """How many alerts each listener got, in one word if all got the same."""
    counts = state.alerts.get("received", {})
    same = len({*counts.values()}) == 1
    heard = f"{next(iter(counts.values()))} each" if same else " ".join(f"{at} {got}" for at, got in counts.items())
    return f"alerts {state.publisher.get('alerts', 0)}, unasked at the routers: {heard or 0}"


def line(state: State) -> str:
    """The same in one line."""
    parts = [f"{name} {sample.rate('received'):,.0f}/s" for name, sample in state.subscribers.items()]
    dropped = sum(sum(drops(sample.row).values()) for sample in state.routers.values())
    wrong = sum(sample.row["problems"] for sample in state.subscribers.values()) + state.alerts.get("problems", 0)
    return (
        f"{state.elapsed_s:5.1f} s  mode {state.mode}  {'  '.join(parts)}  {alerts(state)}  "
        f"drops {dropped}  wrong {wrong}"
    )


def _right(title: str) -> Column:
    return Column(title, justify="right")
