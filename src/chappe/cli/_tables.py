"""Rows of a listing as a table for people, or as JSON lines for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
SILENT: tuple[Any, ...] = (0, "", [], (), None)


def print_json(rows: Iterable[Row]) -> None:
    """One object a line."""
    sys.stdout.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def print_table(rows: Sequence[Row], turned: bool = False, everything: bool = False) -> None:
    """A column in which every row says nothing is left out unless `everything`; `turned`: a row for each column."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if turned:
        rows = [{"name": name, "value": value} for row in rows for name, value in row.items()]
    columns = dict.fromkeys(name for row in rows for name in row)
    shown = [name for name in columns if turned or everything or any(row.get(name) not in SILENT for row in rows)]
    table = Table(*shown)
    for row in rows:
        table.add_row(*(Text(cell(row.get(name), name)) for name in shown))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(table, crop=False)


def cell(value: Any, column: str = "") -> str:
    """A value in one line, without anything that would steer the terminal."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() if column == "modes":
            return modes(value)
        case float() if column == "share":
            return f"{value:.1%}"
        case float() if column == "bytes_per_s":
            return f"{value:,.0f}"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case list() | tuple():
            return by_mode(value) if len(value) == 16 else " ".join(cell(each) for each in value)
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def by_mode(values: Sequence[Any], unit: str = "") -> str:
    """One of 16 values a mode: modes with the same one are together, `0-3: 100 ms, 4: 50 ms`."""
    groups: dict[Any, list[int]] = {}
    for mode, value in enumerate(values):
        if value is not None:
            groups.setdefault(value, []).append(mode)
    if len(groups) == 1 and None not in values:
        return f"{cell(values[0])}{unit}"
    return ", ".join(f"{_ranges(those)}: {cell(value)}{unit}" for value, those in groups.items())


def modes(mask: int) -> str:
    """The modes of a bit mask: `all`, `0-3 5`."""
    chosen = [mode for mode in range(16) if mask >> mode & 1]
    return "all" if len(chosen) == 16 else _ranges(chosen)


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return " ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
