"""The rows that `@pytest.mark.spec` may name."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("rows.toml")


@dataclass(frozen=True)
class Row:
    """One feature of the specification."""

    id: str
    title: str
    group: str


@functools.cache
def load_rows() -> dict[str, Row]:
    """All rows by identifier, in the order of the specification."""
    rows = {}
    for prefix, table in tomllib.loads(FILE.read_text(encoding="utf-8")).items():
        group = f"{prefix}  {table['group']}"
        for name, title in table.items():
            if name != "group":
                rows[name] = Row(name, title, group)
    return rows
