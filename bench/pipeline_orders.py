"""What the Spark process of `chappe bench pipeline` can be asked to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from bench.pipeline_rows import DATASET
from chappe.errors import ChappeError
from chappe.pipeline import catalogue, plain
from chappe.pipeline.runner import Place, Runner
from chappe.pipeline.tables import batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = dict[str, Any]


def ingest(spark: SparkSession, archive: str, work: str) -> Told:
    """All of an archive, as `chappe pipeline run ingest --once` does it; what came of the measurements."""
    seconds = _run(spark, "ingest", Place(Path(work), archive))
    table = Place(Path(work)).tables.path(DATASET).resolve()
    files = [str(file) for batch in batches(table) for file in sorted(batch.glob("*.parquet"))]
    return {"seconds": seconds, "rows": ds.dataset(files, format="parquet").count_rows(), "files": files}


def links(spark: SparkSession, work: str) -> Told:
    """Link statistics of what was ingested, as `chappe pipeline run links --once` does it."""
    return {"seconds": _run(spark, "links", Place(Path(work)))}


def answer(spark: SparkSession, files: Sequence[str], to: str) -> Told:
    """What plain Spark says, as files, to be compared."""
    plain.by_minute(spark, files).write.parquet(to)
    return {}


def plainly(spark: SparkSession, files: Sequence[str]) -> Told:
    """Scan and aggregate."""
    plain.computed(plain.by_minute(spark, files))
    return {}


def copy(spark: SparkSession, files: Sequence[str], to: str) -> Told:
    """Read all columns and write them."""
    plain.copied(spark, files, to)
    return {}


def live(spark: SparkSession, read: Mapping[str, str], checkpoint: str) -> Told:
    """Read a live source to its end."""
    rows, seconds = plain.drained(spark, read, checkpoint)
    return {"rows": rows, "reading_s": seconds}


def _run(spark: SparkSession, name: str, place: Place) -> float:
    (job,) = catalogue.find([name])
    began = time.perf_counter()
    runner = Runner(spark, place, [job()])
    if not runner.once():
        raise ChappeError(runner.failures[name])
    return time.perf_counter() - began


ORDERS: Mapping[str, Callable[..., Told]] = {
    "ingest": ingest, "links": links, "answer": answer, "plain": plainly, "copy": copy, "live": live,
}  # fmt: skip
