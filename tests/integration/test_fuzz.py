"""Hostile buffers in a number that a test run can afford; `tests/fuzz/` runs them by the million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutate import run
from tests.support.peers import requires

FUZZ = Path(__file__).parents[1] / "fuzz"


@pytest.mark.timeout(120)
def test_mutated_buffers_cause_no_harm() -> None:
    fed, growth = run(40_000, seed=7)
    assert fed >= 40_000
    assert growth < 20_000_000


@pytest.mark.timeout(900)
def test_fuzzed_engine_with_sanitizers(tmp_path: Path) -> None:
    requires("clang")
    built = subprocess.run([sys.executable, FUZZ / "build.py", tmp_path], capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    arguments = ["-runs=8000", "-max_len=2048", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
    ran = subprocess.run(
        [sys.executable, FUZZ / "run.py", tmp_path, *arguments], capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "Done 8000 runs" in ran.stderr
