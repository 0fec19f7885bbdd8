"""Tables of jobs as text, read without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from chappe.errors import ConfigError
from chappe.pipeline.tables import Tables, batches, number

WIDE = 60  # letters of a value that are shown


def listing(work: Path) -> Table:
    """The tables there are, with their rows."""
    tables = Tables(work)
    shown = Table("table", "rows", "batches", "columns", box=None, pad_edge=False)
    for name in tables.names():
        found = batches(tables.path(name).resolve())
        files = [file for each in found for file in each.glob("*.parquet")]
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        columns = pq.read_schema(files[0]).names if files else []
        shown.add_row(name, str(rows), str(len(found)), ", ".join(columns))
    return shown


def newest(work: Path, name: str, rows: int) -> Table:
    """The last rows of a table; ConfigError names those there are."""
    tables = Tables(work)
    found = batches(tables.path(name).resolve())
    if not found:
        raise ConfigError(f"no table {name!r} in {tables.root}; there are: {', '.join(tables.names()) or 'none'}")
    kept: list[pa.Table] = []
    for file in (file for each in sorted(found, key=number, reverse=True) for file in sorted(each.glob("*.parquet"))):
        if sum(each.num_rows for each in kept) >= rows:
            break
        kept.append(pq.read_table(file, partitioning=None))
    whole = pa.concat_tables(reversed(kept), promote_options="default")
    last = whole.slice(max(0, whole.num_rows - rows))
    shown = Table(*last.column_names, box=None, pad_edge=False)
    for row in last.to_pylist():
        shown.add_row(*(_text(value) for value in row.values()))
    return shown


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            text = value.hex()
        case list() | dict():
            text = json.dumps(value, default=str)
        case float():
            text = f"{value:.6g}"
        case _:
            text = str(value)
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"
