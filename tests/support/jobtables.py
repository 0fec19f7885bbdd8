"""Tables of jobs written without Spark, where `Tables` looks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def put(work: Path, name: str, rows: pa.Table | Sequence[Mapping[str, Any]], schema: pa.Schema | None = None) -> None:
    """Make a table of one batch."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    folder = work / ".data" / name / "one"
    (folder / "batch=000000000000").mkdir(parents=True)
    pq.write_table(table, folder / "batch=000000000000" / "part-0.parquet")
    (work / name).symlink_to(folder.relative_to(work))
