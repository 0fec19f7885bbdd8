"""`chappe bench` where there is no checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSTALLED = """\
import sys
from pathlib import Path

sys.path[:] = [{source!r}, *(each for each in sys.path if not (Path(each) / "bench" / "app.py").exists())]
from chappe.cli.app import run

run(sys.argv[1:])
"""


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "peers", "--quick"), ("bench", "--help")])
def test_without_a_checkout_one_line_says_what_it_needs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = INSTALLED.format(source=str(ROOT / "src"))
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("chappe bench needs a checkout")
    assert done.stderr.count("\n") == 1
