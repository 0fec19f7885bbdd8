"""`chappe ls`: what a node knows, as a table or JSON lines."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from chappe.cli._failures import say
from chappe.cli._tables import print_json, print_table
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
    paths = "paths"
    broker = "broker"
    functions = "functions"
    transports = "transports"
    publications = "publications"
    forwarding = "forwarding"
    accounts = "accounts"
    cells = "cells"
    cell_links = "cell_links"


@targeted
def ls(
    target: Target,
    what: Annotated[What, typer.Argument(help="What to list.", show_default=False)],
    limit: Annotated[int, typer.Option(min=1, max=5000, help="Rows at most.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """List what a node knows: variables, topics, publications (what is advertised in its mesh), publishers, types.

    The rest needs the right to administrate the node.
    """
    run(_ls(target, what.value, limit, as_json))


async def _ls(target: Target, what: str, limit: int, as_json: bool) -> None:
    async with target.connect("ls") as client:
        rows = await client.list(what, limit)
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, turned=what == "counters")
    if len(rows) == limit:
        say(f"{limit} rows are shown; --limit gives more")
    elif not rows:
        say(f"no {what}")
