"""`chappe route`: the route of events from one node to another, and why it is that one."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say_error
from chappe.cli._tables import print_json
from chappe.cli._target import Target, run, targeted

EXAMPLES = (
    "chappe route west north",
    "chappe route west north --profile media",
    "chappe route west east/plant-3 --json      # to a unit that is seen from there as one",
)


@targeted
def route(
    target: Target,
    origin: Annotated[str, typer.Argument(metavar="FROM", help="Node where events begin.", show_default=False)],
    to: Annotated[str, typer.Argument(metavar="TO", help="Node or unit where they go.", show_default=False)],
    profile: Annotated[str, typer.Option(help="Profile of costs: default, interactive, media, bulk.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a route.")] = False,
) -> None:
    """Explain the route of events from one node to another: the one in use, the next best, the static one, and why.

    The node at --url is asked. If it is not FROM itself, the answer is what its map says: FROM must be a node of the
    same cluster. Exit code 1 if there is no route.
    """
    run(_route(target, origin, to, profile, as_json))


async def _route(target: Target, origin: str, to: str, profile: str, as_json: bool) -> int:
    async with target.connect("route") as client:
        rows = await client.list("route", of=origin, to=to, profile=profile)
    if as_json:
        print_json(rows)
    elif not rows:
        say_error(f"there is no route from {origin} to {to}")
    else:
        from rich.console import Console

        from chappe.cli._mesh import route as shown

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 200
        console.print(shown(rows))
    return DONE if rows else FAILED
