"""Routers as a grid of cells by their coordinates, channels as bars: what `chappe map` prints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from chappe.cli._tables import Row, cell

COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta", "bright_yellow")
DOWN = "X"
MARKS = ((0.9, "!"), (0.5, "O"), (1e-9, "o"), (-1.0, "."))  # of a load above so much
LOADS = ((0.9, "red"), (0.5, "yellow"), (-1.0, "green"))
CELL = 9  # columns of a router: a mark, a name and a space
BAR = 20
HIGHEST = 40  # lines of the picture


@dataclass(slots=True)
class Picture:
    """What brokers said; the same router or channel may be there twice, once for each that knows it."""

    modes: list[Row] = field(default_factory=list)
    routers: list[Row] = field(default_factory=list)
    channels: list[Row] = field(default_factory=list)

    def known_routers(self) -> list[Row]:
        """Each router once, from the broker that says most about it: its own leaf."""
        found: dict[str, Row] = {}
        for row in self.routers:
            before = found.get(row["name"])
            if before is None or row.get("broker") == row.get("cloud"):
                found[row["name"]] = row
        return [*found.values()]

    def known_channels(self) -> list[Row]:
        """Each channel once, from the broker that manages it."""
        found: dict[frozenset[str], Row] = {}
        for row in self.channels:
            pair = frozenset((row["a"], row["b"]))
            if pair not in found or row.get("broker") == row.get("owner"):
                found[pair] = row
        return [*found.values()]


def draw(picture: Picture, width: int, channels: int) -> RenderableType:
    """The whole picture for a terminal of that width."""
    routers = picture.known_routers()
    clouds = dict.fromkeys(sorted(str(row.get("cloud", "")) for row in routers))
    colours = {cloud: COLOURS[place % len(COLOURS)] for place, cloud in enumerate(clouds)}
    parts: list[RenderableType] = [_head(picture, routers), _legend(routers, colours)]
    parts += grid(routers, colours, width)
    if channels:
        parts.append(_channels(picture.known_channels(), channels))
    return Group(*parts)


def _head(picture: Picture, routers: list[Row]) -> Text:
    modes = ", ".join(
        f"{row.get('broker') or 'broker'} {row['mode']}" + (f" -> {row['next']}" if row.get("next") is not None else "")
        for row in picture.modes
    )
    channels = picture.known_channels()
    up = sum(bool(row["up"]) for row in routers), sum(bool(row["up"]) for row in channels)
    return Text(f"routers {up[0]} of {len(routers)} up   channels {up[1]} of {len(channels)} up   mode {modes}")


def _legend(routers: list[Row], colours: dict[str, str]) -> Text:
    text = Text()
    for cloud, colour in colours.items():
        members = [row for row in routers if row.get("cloud", "") == cloud]
        text.append(f"{cell(cloud) or 'no cloud'} ({sum(bool(row['up']) for row in members)}/{len(members)})  ", colour)
    return text


def grid(routers: list[Row], colours: dict[str, str], width: int) -> list[Text]:
    """Lines of cells: each router in the free cell nearest to where its coordinates are; y grows upwards."""
    columns = max(1, width // CELL)
    lines = min(HIGHEST, max(3, math.ceil(1.6 * len(routers) / columns)), max(1, len(routers)))
    lines = max(lines, -(-len(routers) // columns))
    places = _places(routers, columns, lines)
    found = []
    for line in range(lines):
        text = Text()
        for column in range(columns):
            row = places.get((column, line))
            text.append_text(_cell(row, colours) if row else Text(" " * CELL))
        text.rstrip()
        found.append(text)
    return found


def _places(routers: list[Row], columns: int, lines: int) -> dict[tuple[int, int], Row]:
    if not routers:
        return {}
    xs, ys = [float(row.get("x", 0)) for row in routers], [float(row.get("y", 0)) for row in routers]
    left, wide, low, high = min(xs), max(xs) - min(xs), min(ys), max(ys) - min(ys)
    taken: dict[tuple[int, int], Row] = {}
    free = {(column, line) for column in range(columns) for line in range(lines)}
    for row, x, y in sorted(zip(routers, xs, ys, strict=True), key=lambda each: (-each[2], each[1], each[0]["name"])):
        column = (x - left) / wide * (columns - 1) if wide else 0.0
        line = (low + high - y) / high * (lines - 1) if high else 0.0
        # A character is about twice as high as wide, and a cell is CELL of them wide.
        place = min(free, key=lambda at: ((at[0] - column) * CELL / 2) ** 2 + (at[1] - line) ** 2)
        free.remove(place)
        taken[place] = row
    return taken


def _cell(row: Row, colours: dict[str, str]) -> Text:
    share = float(row.get("share") or 0.0)
    name = cell(row["name"])
    shown = name if len(name) <= CELL - 2 else "…" + name[3 - CELL :]
    if not row["up"]:
        return Text.assemble((DOWN, "bold red"), (f"{shown:<{CELL - 1}}", "red"))
    mark = next(mark for above, mark in MARKS if share > above)
    return Text.assemble((mark, f"bold {_load(share)}"), (f"{shown:<{CELL - 1}}", colours[str(row.get("cloud", ""))]))


def _channels(channels: list[Row], count: int) -> RenderableType:
    """Those that are down, then the fullest."""
    order = sorted(channels, key=lambda row: (bool(row["up"]), -float(row.get("share") or 0.0), row["a"], row["b"]))
    table = Table("channel", "level", "load", Column("B/s", justify="right"), Column("ms", justify="right"))
    for row in order[:count]:
        share = float(row.get("share") or 0.0)
        state = bar(share) if row["up"] else Text("down", style="bold red")
        load = f"{float(row.get('load') or 0.0):,.0f}"
        table.add_row(Text(f"{row['a']} - {row['b']}"), str(row.get("level", "")), state, load, cell(row["latency_ms"]))
    if len(order) > count:
        table.caption = f"{len(order) - count} more channels, none of them fuller"
    return table


def bar(share: float) -> Text:
    """A load as a bar with its percentage."""
    full = min(BAR, math.ceil(share * BAR))
    return Text.assemble(("█" * full, _load(share)), ("░" * (BAR - full), "dim"), f" {share:6.1%}")


def _load(share: float) -> str:
    return next(colour for above, colour in LOADS if share > above)
