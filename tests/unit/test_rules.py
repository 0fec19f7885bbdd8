"""What the suite demands of every test: known rows, no skips where all is required, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, source: str, **environment: str) -> str:
    """Output of pytest over one integration test, under the rules of this suite."""
    place = folder / "tests" / "integration"
    place.mkdir(parents=True)
    (place / "test_one.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers =\n  spec\n  may_leak\n  integration\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", str(folder), str(place)]
    command += ["--results", str(folder / "results.json")]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    settings = {key: value for key, value in os.environ.items() if key != "CHAPPE_REQUIRE_ALL"}
    settings.update(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", **environment)
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=50)
    return done.stdout + done.stderr


def test_an_unknown_row_fails_the_collection(tmp_path: Path) -> None:
    output = run(tmp_path, "import pytest\n@pytest.mark.spec('GS-999')\ndef test_a(): pass\n")
    assert "no such row of the specification: ['GS-999']" in output
    assert "passed" not in output


@pytest.mark.parametrize(("setting", "outcome"), [("", "1 skipped"), ("1", "1 failed")])
def test_a_skip_is_a_failure_where_all_is_required(tmp_path: Path, setting: str, outcome: str) -> None:
    source = "from tests.support.peers import requires\ndef test_a(): requires('no-such-program')\n"
    assert outcome in run(tmp_path, source, CHAPPE_REQUIRE_ALL=setting)


LEAKING = """
import asyncio, socket, subprocess
from tests.support import leaks
leaks.GRACE_S = 0.5
KEEP = []
async def test_task():
    KEEP.append(asyncio.ensure_future(asyncio.sleep(60)))
async def test_socket():
    KEEP.append(socket.socket())
def test_process():
    KEEP.append(subprocess.Popen(["sleep", "20"]))
async def test_clean():
    with socket.socket():
        await asyncio.create_task(asyncio.sleep(0))
"""


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    output = run(tmp_path, LEAKING)
    assert "tasks left running: <Task" in output
    assert "left behind: descriptor" in output
    assert re.search(r"left behind: \d+ sleep 20", output)
    outcomes = json.loads((tmp_path / "results.json").read_text())
    assert {name.partition("::")[2]: outcome for name, outcome in outcomes.items()} == {
        "test_task": "failed",
        "test_socket": "failed",
        "test_process": "failed",
        "test_clean": "passed",
    }


def test_an_exception_from_the_leak_check_needs_a_reason(tmp_path: Path) -> None:
    output = run(tmp_path, "import pytest\n@pytest.mark.may_leak\ndef test_a(): pass\n")
    assert "may_leak needs a reason" in output
