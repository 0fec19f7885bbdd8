"""The same jobs on a real cluster, a master and two workers, and over Spark Connect: the same tables as here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from chappe.links.ports import free_ports
from chappe.pipeline import catalogue
from chappe.pipeline.runner import Place, Runner
from chappe.pipeline.tables import Tables, batches

JOBS = ("ingest", "links", "anomalies")
ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent


def environment(folder: Path) -> dict[str, str]:
    """Of processes of the cluster: they know Spark, not this package."""
    return {
        **os.environ, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder / "work"), "PYTHONPATH": "",
    }  # fmt: skip


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the Spark package; it and what it started end together."""
    with (folder / "cluster.txt").open("ab") as log:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *words], env=environment(folder), stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def said(folder: Path, text: str, times: int, running: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the processes have said it so often."""
    for _ in range(1200):
        told = (folder / "cluster.txt").read_text(errors="replace")
        if told.count(text) >= times:
            return
        assert all(process.poll() is None for process in running), told[-3000:]
        time.sleep(0.1)  # nothing announces it but the file
    raise AssertionError(told[-3000:])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    port, page, *pages = free_ports(4)
    address = f"spark://127.0.0.1:{port}"
    leading = (
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        str(page),
    )
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(started(tmp_path, *leading))]
        said(tmp_path, "Starting Spark master", 1, running)
        for each in pages:
            working = (
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                "--webui-port", str(each), address,
            )  # fmt: skip
            running.append(stack.enter_context(started(tmp_path, *working)))
        said(tmp_path, "Successfully registered with master", 2, running)
        yield address


def tables(work: Path) -> dict[str, list[str]]:
    """Every table as sorted rows; floats as far as their sums do not depend on the order."""
    found: dict[str, list[str]] = {}
    known = Tables(work)
    for name in known.names():
        files = [file for each in batches(known.path(name).resolve()) for file in each.glob("*.parquet")]
        rows = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).to_pylist()
        found[name] = sorted(str({key: _rounded(value) for key, value in row.items()}) for row in rows)
    return found


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value


def run(work: Path, archive: Path, *where: str) -> None:
    """The command line, in a process of its own: this one has a session of its own."""
    command = [sys.executable, "-m", "chappe.cli", "pipeline", "run", *JOBS, "--once", "--archive", str(archive)]
    done = subprocess.run(
        [*command, "--work", str(work), *where], capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(900)
def test_a_cluster_gives_the_same_tables_as_this_machine(
    spark: SparkSession, tmp_path: Path, mesh_archive: Path, master: str
) -> None:
    place = Place(tmp_path / "here", str(mesh_archive))
    runner = Runner(spark, place, [job() for job in catalogue.find(JOBS)])
    assert runner.once(), runner.failures
    run(tmp_path / "there", mesh_archive, "--master", master)
    here, there = tables(place.work), tables(tmp_path / "there")
    assert set(here) == set(there)
    assert here["measurements"]
    for name in here:
        assert here[name] == there[name], name
