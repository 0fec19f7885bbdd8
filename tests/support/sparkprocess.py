"""Processes of the Spark package, and the tables of a work folder in a form that can be compared."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from chappe.pipeline.tables import Tables, batches

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
LOG = "processes.txt"


def environment(folder: Path) -> dict[str, str]:
    """Of processes that know Spark, not this package."""
    return {
        **os.environ, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder / "work"), "PYTHONPATH": "",
    }  # fmt: skip


@contextlib.contextmanager
def started(folder: Path, *words: str, **known: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the Spark package by one of its scripts; it ends with the block.

    known: more of its environment.
    """
    script, *rest = words
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            [str(HOME / "bin" / script), *rest], env=environment(folder) | known, stdout=log, stderr=log, cwd=folder,
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


def said(folder: Path, text: str, times: int, running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until the processes have said it so often."""
    for _ in range(1200):
        told = (folder / LOG).read_text(errors="replace")
        if told.count(text) >= times:
            return
        assert all(process.poll() is None for process in running), told[-3000:]
        time.sleep(0.1)  # nothing announces it but the file
    raise AssertionError(told[-3000:])


def piped(*words: str) -> subprocess.CompletedProcess[str]:
    """`chappe pipeline run` in a process of its own: this one has a session of its own."""
    return subprocess.run(
        [sys.executable, "-m", "chappe.cli", "pipeline", "run", *words], capture_output=True, text=True, timeout=500,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


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
