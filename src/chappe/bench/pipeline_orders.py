"""What the Spark process of `chappe bench pipeline` can be asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chappe.pipeline import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = dict[str, Any]


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


ORDERS: Mapping[str, Callable[..., Told]] = {"answer": answer, "plain": plainly, "copy": copy, "live": live}
