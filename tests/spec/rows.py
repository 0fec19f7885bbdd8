"""The rows that `@pytest.mark.spec` may name."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("rows.toml")
TESTS = FILE.parents[1]
MARK = re.compile(r"mark\.spec\(([^)]*)\)")


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


def marked_rows() -> set[str]:
    """Rows that some test names, read from the sources."""
    found: set[str] = set()
    for path in TESTS.rglob("*.py"):
        for marks in MARK.findall(path.read_text(encoding="utf-8")):
            found.update(re.findall(r'"([A-Z]{2}-\d+)"', marks))
    return found


def open_rows() -> str:
    """The rows that no test names, as the table of `docs/reference/spec.md`."""
    marked = marked_rows()
    lines = ["| row | about |", "|---|---|"]
    lines += [f"| {row.id} | {row.title} |" for row in load_rows().values() if row.id not in marked]
    return "\n".join(lines) + "\n"
