"""`chappe ls`: what a node knows, as a table or JSON lines."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from chappe.cli._failures import say
from chappe.cli._target import Target, run, targeted

EXAMPLES = ("chappe ls variables", "chappe ls topics --json", "chappe ls links --url tcp://127.0.0.1:7402")


class What(StrEnum):
    """What can be listed."""

    variables = "variables"
    topics = "topics"
    publishers = "publishers"
    types = "types"
    links = "links"
    clients = "clients"
    counters = "counters"
    drops = "drops"


@targeted
def ls(
    target: Target,
    what: Annotated[What, typer.Argument(help="What to list.", show_default=False)],
    limit: Annotated[int, typer.Option(min=1, max=5000, help="Rows at most.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """List what a node knows: variables, topics, publishers, types; with the right to administrate also the rest."""
    run(_ls(target, what.value, limit, as_json))


async def _ls(target: Target, what: str, limit: int, as_json: bool) -> None:
    async with target.connect("ls") as client:
        rows = await client.list(what, limit)
    if as_json:
        sys.stdout.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    elif rows:
        _print(rows, turned=what == "counters")
    if len(rows) == limit:
        say(f"{limit} rows are shown; --limit gives more")
    elif not rows:
        say(f"no {what}")


def _print(rows: list[dict[str, Any]], turned: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if turned:
        rows = [{"name": name, "value": value} for row in rows for name, value in row.items()]
    # A column in which every row says nothing is left out: the counters of a link are many.
    shown = [name for name in rows[0] if turned or any(row[name] not in (0, "", [], None) for row in rows)]
    table = Table(*shown)
    for row in rows:
        table.add_row(*(Text(_cell(row[name])) for name in shown))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(table, crop=False)


def _cell(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case list() | tuple():
            return " ".join(map(str, value))
    text = str(value)
    return text if text.isprintable() else json.dumps(text)
