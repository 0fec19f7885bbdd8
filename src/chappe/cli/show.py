"""`chappe show`: what brokers know."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from chappe.cli._failures import say
from chappe.cli._operator import ROWS, Operator
from chappe.cli._tables import Row, print_json, print_table
from chappe.cli._target import run, targeted
from chappe.errors import RefusedError

EXAMPLES = (
    "chappe show -d grid.toml",
    "chappe show routers -d grid.toml --broker north",
    "chappe show subscriptions --url tcp://127.0.0.1:7501 --json",
)
COUNTED = ("routers", "channels", "publications", "subscriptions", "floods", "functions")


class What(StrEnum):
    """What a broker lists."""

    brokers = "brokers"
    routers = "routers"
    channels = "channels"
    publications = "publications"
    subscriptions = "subscriptions"
    entities = "entities"
    floods = "floods"
    functions = "functions"
    modes = "modes"
    loads = "loads"
    children = "children"
    clouds = "clouds"


@targeted
def show(
    operator: Operator,
    what: Annotated[What, typer.Argument(help="What to list.")] = What.brokers,
    limit: Annotated[int, typer.Option(min=1, max=ROWS, help="Rows of one broker at most.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """List what a broker knows, or with --deployment and without --broker what each of them knows.

    `brokers` is an overview: mode, and how many there are of each thing. A leaf knows its cloud, an inner broker the
    channels between clouds and the subscriptions that cross them. Needs the right to administrate.
    """
    run(_show(operator, what.value, limit, as_json))


async def _show(operator: Operator, what: str, limit: int, as_json: bool) -> None:
    if what == "brokers":
        found = [await _overview(operator, name, urls) for name, urls in operator.all()]
    else:
        found = await operator.gathered(what, limit)
    if as_json:
        print_json(found)
    elif found:
        print_table(found, everything=what in ("brokers", "modes"))
    else:
        say(f"no {what}")


async def _overview(operator: Operator, name: str, urls: tuple[str, ...]) -> Row:
    mode = (await operator.rows(urls, "modes"))[0]
    row: Row = {"broker": mode.get("broker") or name, "mode": mode["mode"], "next": mode.get("next")}
    for what in COUNTED:
        try:
            rows = await operator.rows(urls, what)
        except RefusedError as error:
            if error.code != "invalid":
                raise
            row[what] = None  # this kind of broker has none
            continue
        row[what] = len(rows)
        if what in ("routers", "channels"):
            row[f"{what} up"] = sum(bool(each["up"]) for each in rows)
    return row
