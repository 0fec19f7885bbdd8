"""The plainest thing Spark can be asked about measurements: what jobs are held against, and a first query to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_NS = 60_000_000_000
# Understood by Spark and DuckDB alike, but for the name of what is read and for how whole numbers are divided.
QUESTION = """
SELECT link, {minute} AS minute, count(*) AS rows, avg(latency_ms) AS latency_ms,
       stddev_pop(latency_ms) AS deviation_ms, min(latency_ms) AS least_ms, max(latency_ms) AS most_ms,
       avg(loss) AS loss, avg(cost) AS cost
FROM {source} GROUP BY link, {minute}
"""


def by_minute(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Latency, loss and cost of each link by minute, from Parquet files."""
    spark.read.parquet(*files).createOrReplaceTempView("chappe_plain")
    return spark.sql(QUESTION.format(minute=f"created_ns div {MINUTE_NS}", source="chappe_plain"))


def computed(frame: DataFrame) -> None:
    """Compute all of it and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def copied(spark: SparkSession, files: Sequence[str], to: str) -> None:
    """Read every column of Parquet files and write it once more."""
    spark.read.parquet(*files).write.mode("overwrite").parquet(to)


def as_arrow(frame: DataFrame) -> pa.Table:
    """All rows, in this process."""
    return frame.toArrow()


def drained(spark: SparkSession, options: Mapping[str, str], checkpoint: str) -> tuple[int, float]:
    """Read a live source to its end and keep nothing: rows, and seconds spent in micro-batches that had some."""
    query = (
        spark.readStream.format("chappe")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    return sum(each.numInputRows for each in batches), sum(each.batchDuration for each in batches) / 1e3
