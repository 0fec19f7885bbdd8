"""The report on data of a real mesh, as a command, and in a browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline import catalogue
from chappe.pipeline.job import configured
from chappe.pipeline.runner import Place, Runner
from tests.support.commands import chappe
from tests.support.html import Tags

RULES = '[[alert]]\nname = "slow"\nwhen = "latency_ms > 10"\n'
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def work(spark: SparkSession, mesh_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that has run once over the archive of a real mesh."""
    folder = tmp_path_factory.mktemp("work")
    settings: dict[str, dict[str, str | int]] = {
        "alerts": {"rules": RULES},
        "forecast": {"interval_s": 1, "horizon": 8},
    }
    jobs = [
        configured(job, settings.get(job.name, {}))
        for job in catalogue.find(["ingest", "links", "forecast", "alerts", "anomalies"])
    ]
    place = Place(folder, str(mesh_archive), str(mesh_archive.parent / "log"))
    runner = Runner(spark, place, jobs)
    assert runner.once(), runner.failures
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
