"""`chappe flood`: variables that go everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.cli._failures import say
from chappe.cli._operator import Operator, mask, root_of, split_name
from chappe.cli._tables import print_json, print_table
from chappe.cli._target import run, targeted

app = typer.Typer(help="Flood variables through clouds, and stop it.", no_args_is_help=True)
Variable = Annotated[str, typer.Argument(metavar="PUBLISHER/VARIABLE", help="The variable.", show_default=False)]
Modes = Annotated[str, typer.Option(help="In these modes: 3, or 0-3,5, or all.")]


@app.command(
    "set",
    epilog="Examples:\n\n  [bold]chappe flood set grid/blackout -d grid.toml[/bold]   everywhere\n\n"
    "  [bold]chappe flood set grid/blackout -d grid.toml --broker north --modes 2-3[/bold]   in one cloud",
)
@targeted
def set_(
    operator: Operator,
    variable: Variable,
    level: Annotated[
        int, typer.Option(min=0, max=255, help="As far as channels of this level; 0: all below the broker.")
    ] = 0,
    modes: Modes = "all",
) -> None:
    """Send every event of a variable to all routers below a broker; without --broker below the root.

    Level 1 stays in the publisher's cloud, level 2 also takes channels between clouds with one parent, and so on.
    """
    run(_set(operator, variable, level, modes))


@app.command(epilog="Example:\n\n  [bold]chappe flood clear grid/blackout -d grid.toml[/bold]")
@targeted
def clear(operator: Operator, variable: Variable, modes: Modes = "all") -> None:
    """Stop the flooding of a variable. What a higher broker has set can only be cleared there."""
    run(_clear(operator, variable, modes))


@app.command("list", epilog="Example:\n\n  [bold]chappe flood list -d grid.toml --json[/bold]")
@targeted
def list_(
    operator: Operator,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """Print the flooded variables, with their levels by mode; without --broker those of every broker."""
    run(_list(operator, as_json))


async def _set(operator: Operator, variable: str, level: int, modes: str) -> None:
    from chappe.wire.management import SetFlood

    publisher, name = split_name(variable)
    request = SetFlood(id=0, publisher=publisher, variable=name, level=level, modes=mask(modes))
    where, urls = operator.one(root_of)
    await operator.ask(urls, lambda client: client.operate(request))
    say(f"{where or urls[0]}: {variable} is flooded")


async def _clear(operator: Operator, variable: str, modes: str) -> None:
    from chappe.wire.management import ClearFlood

    publisher, name = split_name(variable)
    request = ClearFlood(id=0, publisher=publisher, variable=name, modes=mask(modes))
    where, urls = operator.one(root_of)
    await operator.ask(urls, lambda client: client.operate(request))
    say(f"{where or urls[0]}: {variable} is flooded no more")


async def _list(operator: Operator, as_json: bool) -> None:
    found = await operator.gathered("floods")
    if as_json:
        print_json(found)
    elif found:
        print_table(found)
    else:
        say("no floods")
