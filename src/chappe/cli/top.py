"""`chappe top`: what nodes do right now."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chappe.cli._target import Target, run, targeted
from chappe.errors import LinkError, TimeoutExpired

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from chappe.client.client import Client

EXAMPLES = (
    "chappe top",
    "chappe top tcp://127.0.0.1:7401 tcp://127.0.0.1:7402 --interval 2",
    "chappe top --once --json",
)
RATES = ("status_in", "status_out", "events_in", "events_out", "bytes_in", "bytes_out", "filtered", "conflated")
Row = dict[str, Any]


@targeted
def top(
    target: Target,
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="[URL]...", help="Nodes; without: the one of --url.", show_default=False),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between samples.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Two samples, one table, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a node and sample.")] = False,
) -> None:
    """Live table of nodes, links, clients, rates, drops and queued bytes, until Ctrl-C.

    Needs the right to administrate the nodes.
    """
    targets = [replace(target, url=url) for url in urls] if urls else [target]
    run(_top(targets, interval, once, as_json), endless=not once)


@dataclass(slots=True)
class View:
    """One node: its newest rows, and its counters of one sample ago."""

    url: str
    client: Client
    node: str = ""
    problem: str = ""
    at_s: float = 0.0
    counters: Row = field(default_factory=dict)
    links: list[Row] = field(default_factory=list)
    clients: list[Row] = field(default_factory=list)
    drops: list[Row] = field(default_factory=list)
    _before: dict[str, Row] = field(default_factory=dict)
    _before_s: float = 0.0

    async def sample(self) -> None:
        """Take the counters; a node that does not answer stays in the table, with the reason."""
        before, before_s = self._keyed(), self.at_s
        try:
            counters = (await self.client.list("counters"))[0]
            self.links, self.clients = await self.client.list("links"), await self.client.list("clients")
            self.drops = await self.client.list("drops", 10)
        except (LinkError, TimeoutExpired) as error:
            self.problem = str(error)
            return
        self.node, self.counters, self.problem, self.at_s = counters["node"], counters, "", time.monotonic()
        self._before, self._before_s = before, before_s

    def _keyed(self) -> dict[str, Row]:
        rows = {"node": self.counters} if self.counters else {}
        rows |= {f"link {row['name']}": row for row in self.links}
        return rows | {f"client {row['address']} {row['name']}": row for row in self.clients}

    def rates(self, key: str, row: Row) -> dict[str, float]:
        """Counts a second since the last sample; of a connection that is new: since it is there."""
        before, passed_s = self._before.get(key, {}), self.at_s - self._before_s
        if not self._before_s or passed_s <= 0:
            return dict.fromkeys(RATES, 0.0)
        return {name: max(0.0, (row[name] - before.get(name, 0)) / passed_s) for name in RATES}

    def rows(self) -> list[tuple[str, str, Row, dict[str, float]]]:
        """(kind, name, counters, rates) of the node and each connection."""
        if not self.counters:
            return []
        found = [("node", self.node, self.counters, self.rates("node", self.counters))]
        found += [("link", row["name"], row, self.rates(f"link {row['name']}", row)) for row in self.links]
        for row in self.clients:
            found.append(("client", row["name"], row, self.rates(f"client {row['address']} {row['name']}", row)))
        return found

    def json(self) -> str:
        """Everything in one object."""
        if self.problem:
            return json.dumps({"url": self.url, "node": self.node, "problem": self.problem})
        connections: dict[str, list[Row]] = {"links": [], "clients": []}
        for kind, _, row, rates in self.rows()[1:]:
            connections[f"{kind}s"].append({**row, "rates": rates})
        rates = self.rates("node", self.counters)
        return json.dumps(
            {"url": self.url, "node": self.node, "counters": self.counters, "rates": rates, **connections,
             "drops": self.drops}
        )  # fmt: skip


async def _top(targets: list[Target], interval: float, once: bool, as_json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    async with AsyncExitStack() as stack:
        views = [View(each.url, await stack.enter_async_context(each.connect("top"))) for each in targets]
        await _samples(views)
        if once or as_json or not console.is_terminal:
            while True:
                await asyncio.sleep(interval)
                await _samples(views)
                if as_json:
                    for view in views:
                        typer.echo(view.json())
                else:
                    if not console.is_terminal:
                        console.width = 160
                    console.print(_screen(views))
                if once:
                    return
        with Live(_screen(views), console=console, auto_refresh=False, screen=True) as live:
            while True:
                await asyncio.sleep(interval)
                await _samples(views)
                live.update(_screen(views), refresh=True)


async def _samples(views: list[View]) -> None:
    await asyncio.gather(*(view.sample() for view in views))


def _screen(views: list[View]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_rates(views)]
    for view in views:
        if view.problem:
            parts.append(Text(f"{view.url}: {view.problem}", style="red"))
        parts += [
            Text(f"{view.node} dropped {row['count']:,} of {row['kind']} {row['address']!r}: {_reason(row)}")
            for row in view.drops
        ]
    return Group(*parts)


def _reason(row: Row) -> str:
    return f"{row['reason']}, {row['client']}" if "client" in row else str(row["reason"])


def _rates(views: list[View]) -> Table:
    from rich.table import Column, Table
    from rich.text import Text

    numbers = ("values in/s", "values out/s", "events in/s", "events out/s", "MB in/s", "MB out/s", "filtered/s",
               "queued B", "drops")  # fmt: skip
    table = Table("node", "", "name", "state", *(Column(title, justify="right", no_wrap=True) for title in numbers))
    for view in views:
        for kind, name, row, rates in view.rows():
            queued = row.get("queued_bytes", sum(each["queued_bytes"] for each in (*view.links, *view.clients)))
            dropped = sum(count for key, count in row.items() if key.startswith("drop_"))
            cells = [f"{rates[key]:,.0f}" for key in RATES[:4]]
            cells += [f"{rates[key] / 1e6:,.2f}" for key in ("bytes_in", "bytes_out")]
            cells += [f"{rates['filtered']:,.0f}", f"{queued:,}", f"{dropped:,}"]
            shown = name if name.isprintable() else json.dumps(name)
            table.add_row(view.node, kind, Text(shown), str(row.get("status", "")), *cells)
    return table
