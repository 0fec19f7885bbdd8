"""The report on data of a real mesh, as a command, and in a browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.archive.schema import DATASETS
from chappe.pipeline.job import RAW
from chappe.pipeline.jobs.alerts import Alerts
from chappe.pipeline.jobs.forecast import Forecast
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.jobs.links import Links
from chappe.pipeline.runner import Place
from tests.support.commands import chappe
from tests.support.html import Tags

RULES = '[[alert]]\nname = "slow"\nwhen = "latency_ms > 10"\n'
WANTED = ("link_statistics", "alerts", "forecasts", "baselines")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def work(spark: SparkSession, mesh_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline whose jobs have seen the archive of a real mesh."""
    folder = tmp_path_factory.mktemp("work")
    tables = Place(folder).tables
    last_ns = time.time_ns()
    read = spark.read.format("chappe").option("path", str(mesh_archive))
    raw = {f"{RAW}{name}": read.option("dataset", name).load() for name in DATASETS}
    tables.replace("measurements", Ingest().run(raw, last_ns)["measurements"])
    clean = {"measurements": tables.read(spark, "measurements")}
    jobs = (Links(), Alerts(rules=RULES), Forecast(interval_s=1, horizon=8))
    for job in jobs:
        for name, rows in job.run(clean, last_ns).items():
            if name in WANTED:
                tables.replace(name, rows)
    return folder


@pytest.fixture(scope="module")
def page(work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    done = chappe("pipeline", "report", "--work", work, "--out", out, "--title", "A ring of four", timeout_s=120)
    assert done.stdout.strip() == str(out)
    assert "not drawn: There is no table compliance yet: chappe pipeline run compliance" in done.stderr
    return out


def test_what_a_mesh_did_is_drawn(page: Path) -> None:
    text = page.read_text()
    Tags(text)
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', text, re.DOTALL))
    for name in ("alerts", "history", "latency", "week", "network"):
        assert "<svg" in sections[name], name
    assert "slow · " in sections["alerts"]  # the link that was made slow
    assert "alert raised" in sections["history"]
    assert set(re.findall(r'class="node"[^>]*><title>(\w)</title>', sections["network"])) == {"a", "b", "c", "d"}


def test_it_opens_without_a_network(page: Path, tmp_path: Path) -> None:
    assert not re.search(r"://|src=|<link|@import|<script|url\(", page.read_text())
    for name, width in (("wide", 1200), ("phone", 400)) if BROWSER is not None else ():
        shot = tmp_path / f"{name}.png"
        command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={shot}"]
        subprocess.run(
            [*command, f"--window-size={width},2000", page.as_uri()], check=True, capture_output=True, timeout=90
        )
        assert shot.stat().st_size > 20_000  # a blank page of this size has a few thousand bytes
