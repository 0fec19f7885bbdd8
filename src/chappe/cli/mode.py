"""`chappe mode`: the operating mode of brokers and everything below them."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.cli._failures import say
from chappe.cli._operator import Operator, root_of
from chappe.cli._tables import print_json, print_table
from chappe.cli._target import run, targeted

app = typer.Typer(help="Show or change the operating mode.", no_args_is_help=True)


@app.command(epilog="Example:\n\n  [bold]chappe mode show -d grid.toml[/bold]")
@targeted
def show(
    operator: Operator,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a broker.")] = False,
) -> None:
    """Print the mode of a broker, or of each broker of a deployment; `next` is there while it changes."""
    run(_show(operator, as_json))


@app.command(
    "set",
    epilog="Examples:\n\n  [bold]chappe mode set 3 -d grid.toml[/bold]   everywhere\n\n"
    "  [bold]chappe mode set 3 -d grid.toml --broker north[/bold]   in one cloud",
)
@targeted
def set_(
    operator: Operator,
    mode: Annotated[int, typer.Argument(min=0, max=15, help="The mode, 0 to 15.", show_default=False)],
) -> None:
    """Change the mode of a broker and everything below it; without --broker of the root.

    Ends when the change is over. A mode that was set higher up can only be changed there: exit code 4.
    """
    run(_set(operator, mode))


async def _show(operator: Operator, as_json: bool) -> None:
    found = await operator.gathered("modes")
    if as_json:
        print_json(found)
    else:
        print_table([{name: row.get(name) for name in ("broker", "mode", "next")} for row in found], everything=True)


async def _set(operator: Operator, mode: int) -> None:
    from chappe.wire.management import ChangeMode

    name, urls = operator.one(root_of)
    await operator.ask(urls, lambda client: client.operate(ChangeMode(id=0, mode=mode)))
    say(f"{name or urls[0]}: mode {mode}")
