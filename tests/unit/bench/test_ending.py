"""A bench leaves no process behind, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

BENCH = """
import subprocess, sys, time
from bench.ending import nothing_left
CHILD = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {!r}], start_new_session=True);" \\
        "print(p.pid, flush=True); {}"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
with nothing_left():
    subprocess.Popen([sys.executable, "-c", CHILD.format(DEAF, sys.argv[1])], start_new_session=True)
    time.sleep(600 if sys.argv[2] == "wait" else 1.5)
    assert sys.argv[2] != "fail"
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("parent", ["time.sleep(600)", "pass"], ids=["parent-lives", "orphan"])
@pytest.mark.parametrize(
    ("how", "number"), [("wait", signal.SIGTERM), ("wait", signal.SIGINT), ("end", None), ("fail", None)]
)
def test_processes_of_a_bench_end_with_it(tmp_path: Path, parent: str, how: str, number: signal.Signals | None) -> None:
    (tmp_path / "sample.py").write_text(BENCH)
    bench = subprocess.Popen(
        [sys.executable, "sample.py", parent, how],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert bench.stdout is not None
    grandchild = psutil.Process(int(bench.stdout.readline()))
    if number is not None:
        bench.send_signal(number)
    assert bench.wait(30) == (0 if how == "end" else 1 if how == "fail" else -signal.SIGINT)
    assert not grandchild.is_running()
    bench.stdout.close()
