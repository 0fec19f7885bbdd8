"""`chappe map`: the picture that brokers have of their routers and channels (GS-172)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._operator import Operator
from chappe.cli._target import run, targeted
from chappe.errors import ChappeError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chappe.cli._picture import Picture

EXAMPLES = (
    "chappe map -d grid.toml",
    "chappe map -d grid.toml --broker north --watch",
    "chappe map --url tcp://127.0.0.1:7501 --channels 0   # routers alone",
)


@targeted
def map_(
    operator: Operator,
    watch: Annotated[bool, typer.Option("--watch", help="Draw it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between pictures.")] = 1.0,
    channels: Annotated[
        int, typer.Option(min=0, help="Fullest channels to list; those that are down come first.")
    ] = 12,
) -> None:
    """Draw routers where their coordinates say, with state and load, and the fullest channels with bars.

    A router has the colour of its cloud and a mark for its load: . idle, o in use, O above half, ! above 90 %; X is
    down. With --deployment and without --broker every broker is asked.
    """
    run(_map(operator, watch, interval, channels), endless=watch)


async def _map(operator: Operator, watch: bool, interval: float, channels: int) -> None:
    from rich.console import Console
    from rich.live import Live

    from chappe.cli._picture import drawn

    console = Console(highlight=False)
    picture = await _taken(operator)
    if not watch:
        console.print(drawn(picture, console.width, channels))
        return
    if not console.is_terminal:
        while True:
            console.print(drawn(picture, console.width, channels))
            await asyncio.sleep(interval)
            picture = await _taken(operator)
    with Live(drawn(picture, console.width, channels), console=console, auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(interval)
            live.update(await _next(operator, console.width, channels), refresh=True)


async def _next(operator: Operator, width: int, channels: int) -> RenderableType:
    """The next picture; while no broker answers, why."""
    from rich.text import Text

    from chappe.cli._picture import drawn

    try:
        return drawn(await _taken(operator), width, channels)
    except ChappeError as error:
        return Text(f"no picture: {error}", style="red")


async def _taken(operator: Operator) -> Picture:
    from chappe.cli._picture import Picture

    picture = Picture()
    for what, rows in (("modes", picture.modes), ("routers", picture.routers), ("channels", picture.channels)):
        rows += await operator.gathered(what)
    return picture
