"""`chappe map`: the picture that brokers have of their routers and channels (GS-172), or a node of its mesh."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import say
from chappe.cli._operator import Operator
from chappe.cli._tables import print_json, print_table
from chappe.cli._target import run, targeted
from chappe.errors import ChappeError, RefusedError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chappe.cli._picture import Picture

EXAMPLES = (
    "chappe map -d grid.toml",
    "chappe map -d grid.toml --broker north --watch",
    "chappe map --url tcp://127.0.0.1:7501 --channels 0   # routers alone",
    "chappe map --url tcp://127.0.0.1:7400 --watch        # of a node with [mesh]",
    "chappe map --url tcp://127.0.0.1:7400 --tree         # the links to copy something to every node by",
)
Draw = Callable[[], Awaitable["RenderableType"]]


@targeted
def map_(
    operator: Operator,
    watch: Annotated[bool, typer.Option("--watch", help="Draw it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between pictures.")] = 1.0,
    channels: Annotated[
        int, typer.Option(min=0, help="Fullest channels to list; those that are down come first.")
    ] = 12,
    tree: Annotated[
        bool, typer.Option("--tree", help="Of a node: the links of least cost that connect everything it sees.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Of --tree, for scripts: one JSON object a link.")] = False,
) -> None:
    """Draw routers where their coordinates say, with state and load, and the fullest channels with bars.

    A router has the colour of its cloud and a mark for its load: . idle, o in use, O above half, ! above 90 %; X is
    down. With --deployment and without --broker every broker is asked. A node with [mesh] at --url draws its own map:
    the tree of its routes, and every link it knows with its cost.
    """
    if tree:
        run(_spanning(operator, as_json))
        return
    if as_json:
        raise typer.BadParameter("--json belongs to --tree")
    run(_map(operator, watch, interval, channels), endless=watch)


async def _spanning(operator: Operator, as_json: bool) -> None:
    """The minimum spanning tree of a node's map: each link once, and what all of them cost together (MR-132)."""
    if not operator.url:
        raise typer.BadParameter("--tree is of a node with [mesh]: name it by --url")
    async with operator.at(operator.url) as client:
        rows = await client.list("tree", 100_000)
    if as_json:
        print_json(rows)
    elif rows:
        print_table([{key: row[key] for key in ("from", "to", "level", "kind", "latency_ms", "cost")} for row in rows])
        say(f"{len(rows)} links, together {sum(row['cost'] for row in rows):,.3f}")
    else:
        say("no links")


async def _map(operator: Operator, watch: bool, interval: float, channels: int) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    draw = await _drawer(operator, channels, console.width)
    picture = await draw()
    if not watch:
        console.print(picture)
        return
    if not console.is_terminal:
        while True:
            console.print(picture)
            await asyncio.sleep(interval)
            picture = await draw()
    with Live(picture, console=console, auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(interval)
            live.update(await _next(draw), refresh=True)


async def _drawer(operator: Operator, channels: int, width: int) -> Draw:
    """What draws: the map of a node if there is one at --url that has it, else the picture of brokers."""
    from chappe.cli._picture import draw

    async def of_brokers() -> RenderableType:
        return draw(await _take_picture(operator), width, channels)

    async def of_node() -> RenderableType:
        from chappe.cli._mesh import network

        async with operator.at(operator.url) as client:
            rows, routes, members = [await client.list(what, 100_000) for what in ("map", "routes", "members")]
            published = await client.publications()
            return network(client.node.name if client.node else "", rows, routes, members, published)

    if operator.deployment is None and operator.url and not operator.broker:
        try:
            await of_node()
        except RefusedError as error:
            if error.code == "denied":
                raise
        else:
            return of_node
    return of_brokers


async def _next(draw: Draw) -> RenderableType:
    """The next picture; while nobody answers, why."""
    from rich.text import Text

    try:
        return await draw()
    except ChappeError as error:
        return Text(f"no picture: {error}", style="red")


async def _take_picture(operator: Operator) -> Picture:
    from chappe.cli._picture import Picture

    picture = Picture()
    for what, rows in (("modes", picture.modes), ("routers", picture.routers), ("channels", picture.channels)):
        rows += await operator.gathered(what)
    return picture
