"""`chappe links`: what a node measured of its links (MR-073, MR-074)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say
from chappe.cli._tables import print_json, print_table
from chappe.cli._target import Target, run, targeted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chappe.client.client import Client

EXAMPLES = (
    "chappe links",
    "chappe links --watch --url tcp://127.0.0.1:7402",
    "chappe links --history west            # round trips of one link",
    "chappe links --now --link west         # a probe at once",
    "chappe links --every 5 --link west     # as often as this from now on; 0: never; usual: as before",
    "chappe links --factors west            # type, value and description of all that is measured",
    "chappe links --factors west --factor jitter_ms",
    "chappe links --open west --for bulk --seconds 600   # the best link that both have for bulk data",
    "chappe links --open west --kind ws",
    "chappe links --json | jq 'select(.loss > 0)'",
)
USUAL = "usual"


@targeted
def links(
    target: Target,
    history: Annotated[str, typer.Option(metavar="LINK", help="Round trips of the link to that node or client.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between tables.")] = 1.0,
    now: Annotated[bool, typer.Option("--now", help="Measure before showing, whatever the interval.")] = False,
    every: Annotated[str, typer.Option(metavar="SECONDS", help="Measure that often from now on; 0, or usual.")] = "",
    link: Annotated[str, typer.Option(metavar="LINK", help="Of --now and --every: only the link to that one.")] = "",
    factors: Annotated[str, typer.Option(metavar="LINK", help="What is measured of the link to that one.")] = "",
    factor: Annotated[str, typer.Option(metavar="TYPE", help="Of --factors: this one alone.")] = "",
    open_to: Annotated[str, typer.Option("--open", metavar="NODE", help="Open another link to that node.")] = "",
    data: Annotated[str, typer.Option("--for", metavar="DATA", help="Of --open: control, status or bulk.")] = "",
    kind: Annotated[str, typer.Option(metavar="KIND", help="Of --open: this kind of transport.")] = "",
    seconds: Annotated[float, typer.Option(min=0, help="Of --open: as before after so long; 0: never.")] = 0.0,
    far: Annotated[bool, typer.Option("--far", help="Of --every: ask the other end to do the same.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a link.")] = False,
) -> None:
    """Show the links of a node: mean latency, deviation, jitter, loss, bandwidth and cost of each.

    The node measures if its file has [mesh] or [measure]. Needs the right to administrate the node; --now, --every and
    --open that to control it. What --every says of a link ends with it.
    """
    if open_to:
        run(_open(target, open_to, kind, data, seconds, as_json))
        return
    if data or kind or seconds:
        raise typer.BadParameter("--for, --kind and --seconds belong to --open")
    if factors:
        run(_factors(target, factors, factor, as_json))
        return
    if factor:
        raise typer.BadParameter("--factor belongs to --factors")
    if now or every:
        if history or watch or (now and every):
            raise typer.BadParameter("--now, --every, --history and --watch exclude each other")
        run(_measure(target, link, _seconds(every), every == USUAL, far, as_json))
        return
    if link or far:
        raise typer.BadParameter("--link and --far belong to --now and --every")
    run(_links(target, history, watch, interval, as_json), endless=watch)


async def _open(target: Target, peer: str, kind: str, data: str, seconds: float, as_json: bool) -> None:
    async with target.connect("links") as client:
        row = await client.open_link(peer, kind=kind, data=data, lifetime_s=seconds)
    if as_json:
        print_json([row])
    else:
        print_table([row])


async def _factors(target: Target, link: str, factor: str, as_json: bool) -> None:
    async with target.connect("links") as client:
        rows = await client.list("factors", 100_000, of=link, to=factor)
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


async def _measure(target: Target, link: str, every: float | None, usual: bool, far: bool, as_json: bool) -> int:
    from rich.console import Console

    from chappe.cli import _mesh

    async with target.connect("links") as client:
        rows = await client.measure(link, every=every, usual=usual, far=far)
        node = client.node.name if client.node else ""
    silent = [str(row["name"]) for row in rows if row.get("fresh") is False]
    if as_json:
        print_json(rows)
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 160
        console.print(_mesh.links(rows, f"links of {node}"))
    if silent:
        say(f"no answer within 5 s from {', '.join(silent)}: the figures are older")
    return FAILED if silent else DONE


def _seconds(text: str) -> float | None:
    if text in ("", USUAL):
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise typer.BadParameter(f"{text!r}: write seconds, 0 for never, or {USUAL}", param_hint="--every")
    return seconds


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
        with Live(
            await _render_links(client, of, console.width), console=console, auto_refresh=False, screen=True
        ) as live:
            while True:
                await asyncio.sleep(interval)
                live.update(await _render_links(client, of, console.width), refresh=True)


async def _once(client: Client, of: str, as_json: bool, width: int, show: object) -> None:
    if as_json:
        print_json(await client.list("history" if of else "measured", 100_000, of=of))
    else:
        assert callable(show)
        show(await _render_links(client, of, width))


async def _render_links(client: Client, of: str, width: int) -> RenderableType:
    from chappe.cli import _mesh

    if of:
        return _mesh.history(of, await client.list("history", 100_000, of=of), width)
    node = client.node.name if client.node else ""
    return _mesh.links(await client.list("measured", 100_000), f"links of {node}")
