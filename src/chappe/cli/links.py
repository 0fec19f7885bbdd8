"""`chappe links`: what a node measured of its links (MR-073, MR-074)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._tables import print_json
from chappe.cli._target import Target, run, targeted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chappe.client.client import Client

EXAMPLES = (
    "chappe links",
    "chappe links --watch --url tcp://127.0.0.1:7402",
    "chappe links --history west            # round trips of one link",
    "chappe links --json | jq 'select(.loss > 0)'",
)


@targeted
def links(
    target: Target,
    history: Annotated[str, typer.Option(metavar="LINK", help="Round trips of the link to that node or client.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between tables.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a link.")] = False,
) -> None:
    """Show the links of a node: mean latency, deviation, jitter, loss, bandwidth and cost of each.

    The node measures if its file has [mesh] or [measure]. Needs the right to administrate the node.
    """
    run(_links(target, history, watch, interval, as_json), endless=watch)


async def _links(target: Target, of: str, watch: bool, interval: float, as_json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    async with target.connect("links") as client:
        if not watch:
            await _once(client, of, as_json, console.width, console.print)
            return
        if as_json or not console.is_terminal:
            while True:
                await _once(client, of, as_json, console.width, console.print)
                await asyncio.sleep(interval)
        with Live(await _shown(client, of, console.width), console=console, auto_refresh=False, screen=True) as live:
            while True:
                await asyncio.sleep(interval)
                live.update(await _shown(client, of, console.width), refresh=True)


async def _once(client: Client, of: str, as_json: bool, width: int, show: object) -> None:
    if as_json:
        print_json(await client.list("history" if of else "measured", 100_000, of=of))
    else:
        assert callable(show)
        show(await _shown(client, of, width))


async def _shown(client: Client, of: str, width: int) -> RenderableType:
    from chappe.cli import _mesh

    if of:
        return _mesh.history(of, await client.list("history", 100_000, of=of), width)
    node = client.node.name if client.node else ""
    return _mesh.links(await client.list("measured", 100_000), f"links of {node}")
