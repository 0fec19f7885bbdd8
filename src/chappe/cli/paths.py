"""`chappe paths`: the way of a variable to each of its subscribers."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say_error
from chappe.cli._operator import Operator, split_name
from chappe.cli._tables import Row, by_mode, cell, modes, print_json
from chappe.cli._target import run, targeted
from chappe.wire.constants import ALL_MODES

EXAMPLES = (
    "chappe paths pmu/bus-17 -d grid.toml",
    "chappe paths pmu/bus-17 --url tcp://127.0.0.1:7501 --json",
)
PROTECTION = {1: "   authentic", 2: "   encrypted"}  # by what every channel of a path has


@targeted
def paths(
    operator: Operator,
    variable: Annotated[str, typer.Argument(metavar="PUBLISHER/VARIABLE", help="The variable.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a path.")] = False,
) -> None:
    """Print all paths of all subscriptions to a variable: routers in the order of the events, intervals by mode.

    One broker alone shows the piece of a path inside its cloud, with the neighbours in others; with --deployment every
    broker is asked and paths between clouds are shown whole. Exit code 1 if there is none.
    """
    run(_paths(operator, variable, as_json))


async def _paths(operator: Operator, variable: str, as_json: bool) -> int:
    split_name(variable)
    rows: list[Row] = []
    for name, urls in operator.all():
        rows += [{"broker": name, **row} for row in await operator.rows(urls, "paths", variable)]
    found = whole(rows)
    if as_json:
        print_json(found)
    elif not found:
        say_error(f"{variable}: no broker that was asked has a path for it")
    else:
        typer.echo("\n".join(lines(variable, found)))
    return DONE if found else FAILED


def whole(rows: list[Row]) -> list[Row]:
    """Without the pieces of paths that are there as a whole."""
    complete = {row["key"] for row in rows if not _piece(row)}
    kept = [row for row in rows if not _piece(row) or row["key"] not in complete]
    return sorted(kept, key=lambda row: (row["subscriber"], row["key"], row["redundant"], row["broker"]))


def _piece(row: Row) -> bool:
    return bool(row.get("before") or row.get("after"))


def lines(variable: str, rows: list[Row]) -> list[str]:
    """For people: a line for each subscription, and one for each of its paths."""
    found, key = [cell(variable)], None
    for row in rows:
        if row["key"] != key:
            key = row["key"]
            found.append(f"  to {cell(row['subscriber'])}, every {by_mode(row['intervals_ms'], ' ms')}")
        way = " -> ".join(row["routers"])
        if row.get("before"):
            way = f"({row['before']}) -> {way}"
        if row.get("after"):
            way = f"{way} -> ({row['after']})"
        valid = "" if row["modes"] == ALL_MODES else f"   in modes {modes(row['modes'])}"
        protected = PROTECTION.get(row.get("security") or 0, "")
        found.append(f"    {row['redundant'] + 1}: {way}{protected}{valid}")
    return found
