"""Links, maps and routes of a measuring mesh as tables and trees: what `chappe links`, `map` and `route` print."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from chappe.cli._tables import Row, cell

SPARKS = "▁▂▃▄▅▆▇█"
NUMBERS = (
    ("mean_ms", "mean ms"), ("deviation_ms", "deviation ms"), ("jitter_ms", "jitter ms"), ("loss", "loss"),
    ("bandwidth_bps", "Mbit/s"), ("cost", "cost"), ("interval_s", "every s"),
)  # fmt: skip


def links(rows: Sequence[Row], title: str = "") -> RenderableType:
    """The live table of a node: name, mean, deviation, jitter, loss (MR-073)."""
    table = Table("link", "", "kind", "state", *(Column(name, justify="right") for _, name in NUMBERS), title=title)
    for row in rows:
        state = str(row.get("status") or "")
        style = "" if state in ("up", "alive", "connected", "ok", "normal", "") else "red"
        table.add_row(
            Text(cell(row["name"])), str(row.get("role") or ""), str(row.get("kind") or ""), Text(state, style=style),
            *(number(row, key) for key, _ in NUMBERS),
        )  # fmt: skip
    return table


def number(row: Row, key: str) -> str:
    """A figure of a link in the unit of its column; a dash for what was not measured."""
    value = row.get(key)
    if not isinstance(value, int | float) or value != value:
        return "–"
    match key:
        case "loss":
            return f"{value:.1%}"
        case "bandwidth_bps":
            return f"{value * 8e-6:,.2f}"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.1f}"


def history(name: str, rows: Sequence[Row], width: int) -> RenderableType:
    """The last round trips of a link as a line of blocks, oldest first (MR-074)."""
    found = [row["rtt_ms"] for row in rows if isinstance(row.get("rtt_ms"), int | float)]
    if not found:
        return Text(f"{cell(name)}: nothing was measured yet")
    shown = found[-max(1, width - 2) :]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    line = "".join(SPARKS[min(len(SPARKS) - 1, int((value - low) / span * len(SPARKS)))] for value in shown)
    lost = sum(row.get("rtt_ms") is None for row in rows)
    return Group(
        Text(f"{cell(name)}: {len(found)} round trips, {low:.3f} to {high:.3f} ms, {lost} without an answer"),
        Text(line, style="cyan"),
    )


def network(
    node: str, rows: Sequence[Row], routes: Sequence[Row], members: Sequence[Row], published: Sequence[Row] = ()
) -> RenderableType:
    """A node's map: its unit, its tree of routes, every link that it knows with its cost, what is advertised."""
    parts: list[RenderableType] = [_heading(node, members), _tree(node, routes)]
    table = Table(
        "from", "to", "level", "kind", Column("latency ms", justify="right"), Column("jitter", justify="right"),
        Column("loss", justify="right"), Column("cost", justify="right"), "state",
    )  # fmt: skip
    for row in sorted(rows, key=lambda each: (int(each.get("level") or 0), str(each["from"]), str(each["to"]))):
        state = "suspected" if row.get("suspect") else "" if row.get("up", True) else "one end only"
        table.add_row(
            Text(cell(row["from"])), Text(cell(row["to"])), str(row.get("level", "")), str(row.get("kind") or ""),
            number(row, "latency_ms"), number(row, "jitter"), number(row, "loss"), number(row, "cost"),
            Text(state, style="red"),
        )  # fmt: skip
    parts.append(table)
    if published:
        advertised = Table("advertised topic", "at", Column("clients", justify="right"))
        for row in published:
            clients = "" if row.get("clients") is None else str(row["clients"])
            advertised.add_row(Text(cell(row["topic"])), Text(cell(row["at"])), clients)
        parts.append(advertised)
    return Group(*parts)


def _heading(node: str, members: Sequence[Row]) -> Text:
    units = [row for row in members if row.get("controller")]
    text = Text(f"{node} sees {len(members)} nodes and units", style="bold")
    for row in units:
        text.append(f"\n{cell(row['thing'])}: controller {cell(row['controller'])}", style="dim")
        if row.get("parted"):
            text.append("  fallen apart", style="bold red")
    return text


def _tree(node: str, routes: Sequence[Row]) -> RenderableType:
    """Each destination below the one before it on its route."""
    root = Tree(Text(node, style="bold"))
    branches: dict[tuple[str, ...], Tree] = {(): root}
    for row in sorted(routes, key=lambda each: len(each["way"])):
        steps = tuple(str(step) for step in row["way"])
        above = next((branches[steps[:at]] for at in range(len(steps) - 1, -1, -1) if steps[:at] in branches), root)
        label = Text.assemble(cell(steps[-1]) if steps else "", (f"  {number(row, 'cost')}", "cyan"))
        branches[steps] = above.add(label)
    return root


def route(rows: Sequence[Row]) -> RenderableType:
    """The route in use, the next best and the static one, each with what it costs and why it is or is not taken."""
    table = Table("", "route", Column("hops", justify="right"), Column("cost", justify="right"),
                  Column("latency ms", justify="right"), "why")  # fmt: skip
    for row in rows:
        chosen = str(row.get("what", ""))
        table.add_row(
            Text(chosen, style="bold green" if row.get("used") else ""), Text(" -> ".join(map(cell, row["way"]))),
            str(row.get("hops", "")), number(row, "cost"), number(row, "latency_ms"), Text(cell(row.get("why", ""))),
        )  # fmt: skip
    return table
