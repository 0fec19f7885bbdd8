"""`chappe pipeline` for people who have no Java, no table or a wrong file: one sentence each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]


def pipeline(*words: str | Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", **environment}
    command = [sys.executable, "-m", "chappe.cli", "pipeline", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_without_java_one_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the Spark extra is not installed")
    done = pipeline("run", "ingest", "--archive", tmp_path, code=1, PATH=str(tmp_path), JAVA_HOME="")
    assert done.stderr.strip() == (
        "error: the pipeline needs Java 17 or newer: sudo apt install openjdk-17-jre-headless"
    )
    assert list(tmp_path.iterdir()) == []


def test_tables_are_listed_and_shown_without_spark(tmp_path: Path) -> None:
    batch = tmp_path / ".data" / "sums" / "a" / "batch=000000000003"
    batch.mkdir(parents=True)
    pq.write_table(
        pa.table({"link": ["a-b", "b-c"], "sum": [1.5, None], "raw": [b"\x01", b""]}), batch / "part.parquet"
    )
    (tmp_path / "sums").symlink_to(Path(".data") / "sums" / "a")
    shown = pipeline("show", "--work", tmp_path).stdout.split()
    assert shown[-6:] == ["sums", "2", "1", "link,", "sum,", "raw"]
    assert pipeline("show", "sums", "--work", tmp_path, "--rows", "1").stdout.split() == ["link", "sum", "raw", "b-c"]
    done = pipeline("show", "means", "--work", tmp_path, code=2)
    assert f"no table 'means' in {tmp_path}; there are: sums" in done.stderr


def test_a_wrong_order_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("[pipeline]\nwork = 3\n")
    assert "work" in pipeline("run", "ingest", "-f", file, code=2).stderr
    assert "not both" in pipeline("run", "ingest", "--once", "--continuous", code=2).stderr
    assert "must be JOB.NAME=VALUE" in pipeline("run", "ingest", "--set", "late_s=3", code=2).stderr
