"""The same jobs over Spark Connect, on a server that knows Spark and not this package: the same tables as here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.errors import ConfigError
from chappe.links.ports import free_ports
from chappe.pipeline import catalogue
from chappe.pipeline.job import configured
from chappe.pipeline.runner import Place, Runner
from chappe.pipeline.spark import session
from tests.support.sparkprocess import ROOT, piped, said, started, tables

JOBS = ("ingest", "links", "alerts", "anomalies")  # a step, a file, a keyed and a stream job
# so that nine seconds of a mesh have alerts, clusters and outliers
RULES = '[[alert]]\nname = "slow"\nwhen = "latency_ms > 10"\nfor_s = 0.1\n'
PARAMETERS: dict[str, dict[str, str | int | float | bool]] = {
    "alerts": {"rules": RULES},
    "anomalies": {"period_s": 0.5, "late_s": 0.0, "least": 2},
}
FILLED = ("measurements", "link_statistics", "alerts", "centroids", "outliers")
READING = """
import json, sys
from pyspark.errors import PySparkException
from chappe.errors import ConfigError
from chappe.pipeline.spark import remote, session

url, archive, folder = sys.argv[1:]
try:
    session(connect=url, settings={"spark.driver.memory": "2g"})
except ConfigError as error:
    refused = str(error)
spark = session(connect=url)
options = {"path": archive, "dataset": "measurements"}
rows = spark.read.format("chappe").options(**options).load()
query = (
    spark.readStream.format("chappe").options(**options).load().select("node", "link").writeStream.format("parquet")
    .option("path", folder + "/rows").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
events = spark.createDataFrame([("numbers", "1")], "topic string, body string").write.format("chappe").mode("append")
try:
    events.option("url", "tcp://127.0.0.1:1").option("outbox", folder + "/outbox").save()
except PySparkException as error:
    unwritten = str(error)
told = {
    "refused": refused, "unwritten": unwritten, "remote": remote(spark),
    "columns": rows.columns, "read": rows.count(), "streamed": spark.read.parquet(folder + "/rows").count(),
}
spark.stop()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def server(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    folder = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }  # fmt: skip
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    words = (
        "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
        "--driver-memory", "1g", *given, "spark-internal",
    )  # fmt: skip
    # As the session of this process has it, without PySpark in a zip, so that each Python process begins soon.
    with started(folder, *words, SPARK_HOME=os.environ["SPARK_HOME"]) as process:
        said(folder, "Spark Connect server started", 1, [process])
        yield f"sc://127.0.0.1:{port}"


@pytest.mark.timeout(900)
def test_jobs_make_the_same_tables_over_connect_as_on_this_machine(
    spark: SparkSession, tmp_path: Path, mesh_archive: Path, server: str
) -> None:
    place = Place(tmp_path / "here", str(mesh_archive))
    runner = Runner(spark, place, [configured(job, PARAMETERS.get(job.name, {})) for job in catalogue.find(JOBS)])
    assert runner.once(), runner.failures
    there = tmp_path / "there"
    where = ("--once", "--archive", str(mesh_archive), "--work", str(there), "--connect", server)
    given = [f"{job}.{name}={value}" for job, values in PARAMETERS.items() for name, value in values.items()]
    done = piped(*JOBS, *where, *(word for each in given for word in ("--set", each)))
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert re.search(r"ingest: done, \d{4,} rows", done.stderr)
    here, made = tables(place.work), tables(there)
    assert set(here) == set(made)
    assert all(here[name] for name in FILLED)
    for name in here:
        assert here[name] == made[name], name
    # what a stream makes is told to the mesh by the driver, and that of a server has no client of a mesh
    refused = piped("anomalies", *where, "--node", "tcp://127.0.0.1:1")
    assert refused.returncode == 1
    assert "over Spark Connect no stream can tell its rows to a node: give --master, or no --node" in refused.stderr


def test_a_session_reads_an_archive_over_connect(
    spark: SparkSession, tmp_path: Path, mesh_archive: Path, server: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READING, server, str(mesh_archive), str(tmp_path)], capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    rows = spark.read.format("chappe").options(path=str(mesh_archive), dataset="measurements").load()
    assert told["remote"]
    assert told["columns"] == rows.columns
    assert told["read"] == told["streamed"] == rows.count() > 0
    assert "spark.driver.memory is a setting of the server" in told["refused"]
    assert "a Spark Connect server has no client of a mesh" in told["unwritten"]


def test_a_server_that_is_not_there_is_named_at_once() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: no server is there: .*refused"):
        session(connect=f"sc://127.0.0.1:{port}/;token=secret")


@pytest.mark.parametrize("url", ["spark://head:7077", "sc://", "sc://head:port/;token=secret"])
def test_an_address_that_is_none_is_refused_without_its_token(url: str) -> None:
    with pytest.raises(ConfigError, match="an address is like sc://host:15002") as refused:
        session(connect=url)
    assert "secret" not in str(refused.value)
