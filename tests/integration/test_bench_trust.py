"""The quickest form of the benches that hold Chappe to its promises: real processes under faults, and under churn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import postgres
from chappe.errors import ChappeError

pytestmark = pytest.mark.timeout(600)


def bench(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """The report of a bench that met its targets."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "chappe.cli", "bench", name, *options, "--check", "--json", str(report)]
    done = subprocess.run([*command, "--charts", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {result["name"]: result["value"] for result in json.loads(report.read_text())["results"]}


def test_what_was_promised_holds_under_faults(tmp_path: Path) -> None:
    try:
        postgres.programs()
    except ChappeError as error:
        pytest.skip(str(error))
    found = bench(tmp_path, "history", "--seed", "1", "--minutes", "0.2")
    assert found["faults"] >= 2
    assert found["durable events confirmed"] >= 10


def test_every_table_of_a_node_is_sampled_under_churn(tmp_path: Path) -> None:
    found = bench(tmp_path, "soak", "--seed", "1", "--minutes", "0.25")
    assert found["tables sampled"] >= 100
    assert (tmp_path / "soak.png").stat().st_size > 10_000
