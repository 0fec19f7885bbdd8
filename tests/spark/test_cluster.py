"""The same jobs on a real cluster, a master and two workers: the same tables as here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.links.ports import free_ports
from chappe.pipeline import catalogue
from chappe.pipeline.runner import Place, Runner
from tests.support.sparkprocess import piped, said, started, tables

JOBS = ("ingest", "links", "anomalies")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    port, page, *pages = free_ports(4)
    address = f"spark://127.0.0.1:{port}"
    leading = (
        "spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
        "--webui-port", str(page),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(started(tmp_path, *leading))]
        said(tmp_path, "Starting Spark master", 1, running)
        for each in pages:
            working = (
                "spark-class", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1",
                "--memory", "1g", "--webui-port", str(each), address,
            )  # fmt: skip
            running.append(stack.enter_context(started(tmp_path, *working)))
        said(tmp_path, "Successfully registered with master", 2, running)
        yield address


@pytest.mark.timeout(900)
def test_a_cluster_gives_the_same_tables_as_this_machine(
    spark: SparkSession, tmp_path: Path, mesh_archive: Path, master: str
) -> None:
    place = Place(tmp_path / "here", str(mesh_archive))
    runner = Runner(spark, place, [job() for job in catalogue.find(JOBS)])
    assert runner.once(), runner.failures
    there = tmp_path / "there"
    done = piped(*JOBS, "--once", "--archive", str(mesh_archive), "--work", str(there), "--master", master)
    assert done.returncode == 0, done.stderr
    here, made = tables(place.work), tables(there)
    assert set(here) == set(made)
    assert here["measurements"]
    for name in here:
        assert here[name] == made[name], name
