"""The same question in one process: DuckDB and polars over the same Parquet files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from chappe.errors import ChappeError
from chappe.pipeline.plain import MINUTE_NS, QUESTION


def duckdb_by_minute(files: Sequence[str], threads: int) -> pa.Table:
    """Latency, loss and cost of each link by minute."""
    import duckdb

    with duckdb.connect() as database:
        database.execute(f"SET threads = {threads}")
        source = f"read_parquet([{', '.join(_quoted(file) for file in files)}])"
        return database.sql(QUESTION.format(minute=f"created_ns // {MINUTE_NS}", source=source)).arrow().read_all()


def polars_by_minute(files: Sequence[str]) -> pa.Table:
    """The same; polars takes the number of its threads from POLARS_MAX_THREADS when it is imported."""
    import polars as pl

    latency = pl.col("latency_ms")
    asked = (
        pl.scan_parquet(list(files), hive_partitioning=False)
        .group_by("link", (pl.col("created_ns") // MINUTE_NS).alias("minute"))
        .agg(
            pl.len().alias("rows"),
            latency.mean(),
            latency.std(ddof=0).alias("deviation_ms"),
            latency.min().alias("least_ms"),
            latency.max().alias("most_ms"),
            pl.col("loss").mean(),
            pl.col("cost").mean(),
        )
    )
    return asked.collect(engine="streaming").to_arrow()


def same(one: pa.Table, other: pa.Table, who: str, tolerance: float = 1e-9) -> None:
    """ChappeError says where two answers to the question differ."""
    if one.num_rows != other.num_rows:
        raise ChappeError(f"{who}: {other.num_rows:,} groups where {one.num_rows:,} are right")
    order = [("link", "ascending"), ("minute", "ascending")]
    left, right = one.sort_by(order), other.sort_by(order)
    for name in left.schema.names:
        mine, theirs = left[name].to_numpy(), right[name].to_numpy()
        if mine.dtype == object:
            equal = bool((mine == theirs).all())
        else:  # a deviation of zero is a rounding error in some of them
            equal = np.allclose(mine.astype(float), theirs.astype(float), rtol=tolerance, atol=1e-6, equal_nan=True)
        if not equal:
            raise ChappeError(f"{who}: its {name} differ from those of plain Spark")


def _quoted(file: str) -> str:
    return "'" + file.replace("'", "''") + "'"
