"""The sink: rows of a stream arrive as events at a real node, once each, though a batch is repeated."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import chappe
from chappe.errors import ConfigError
from chappe.pipeline.sink import Options
from tests.support.counted import Written
from tests.support.nodes import NodeProcess

TOML = '[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


def publish(spark: SparkSession, archive: Written, url: str, folder: Path) -> None:
    """Tell all that is new, three rows a batch."""
    spark.createDataFrame([], "x int")  # makes the session that of this thread, where Spark looks for the format
    rows = spark.readStream.format("chappe").options(**archive.options(max_rows=3)).load()
    told = rows.select(F.lit("numbers").alias("topic"), F.col("value").cast("string").alias("body"))
    writer = told.writeStream.format("chappe").option("url", url).option("outbox", str(folder / "outbox"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


async def test_a_repeated_batch_is_not_delivered_twice(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(TOML)
    archive = Written(tmp_path)
    archive.write(7)
    node = await NodeProcess.start(file, "--dev")
    try:
        async with chappe.connect(node.urls[0]) as client:
            subscription = await client.subscribe("numbers")
            await asyncio.to_thread(publish, spark, archive, node.urls[0], tmp_path)
            # the driver dies after the last batch has been sent and before Spark has noted that
            commits = tmp_path / "checkpoint" / "commits"
            for name in ("2", ".2.crc"):
                (commits / name).unlink(missing_ok=True)
            archive.write(1)
            await asyncio.to_thread(publish, spark, archive, node.urls[0], tmp_path)
            whole = spark.createDataFrame([("numbers", "last")], "topic string, body string")
            for _ in range(2):  # each write is a batch of its own
                outbox = str(tmp_path / "whole")
                saved = whole.write.format("chappe").mode("append").option("url", node.urls[0]).option("outbox", outbox)
                await asyncio.to_thread(saved.save)
            heard: list[str] = []
            async with asyncio.timeout(120):
                while heard.count("last") < 2:
                    heard += [message.body.decode() for message in await anext(subscription.batches())]
    finally:
        await node.end()
        archive.leave()
        shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
    assert heard == [*(f"{number}.0" for number in range(8)), "last", "last"]


@pytest.mark.parametrize(
    ("given", "columns", "reason"),
    [
        ({"outbox": "o"}, ["topic", "body"], "the option url is missing"),
        ({"url": "tcp://a:1"}, ["topic", "body"], "the option outbox is missing: a folder of its own"),
        ({"url": "tcp://a:1", "outbox": "o"}, ["topic"], "rows to publish have the columns topic, body or name"),
    ],
)
def test_what_is_missing_is_told(given: dict[str, str], columns: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Options.parse(given, columns)
