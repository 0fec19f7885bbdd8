"""A bench that is ended by a signal leaves nothing: no process, no network namespace, no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.namespaces import Namespaces

START_S = 90.0
NAMESPACES = Path("/run/netns")

CASES = {
    "a peer and workers of the load generator": (("peers", "--peer", "none"), "bench.worker"),
    "a deployment": (("gridstat", "--case", "load"), "--only"),
    "processes in network namespaces": (("tables",), "bench.measured_nodes"),
    "tasks of an event loop": (("soak",), "bench.soak.node"),
    "a server and its standby": (("failover",), "--only"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary folders; not below `tmp_path`, where PostgreSQL, which is not root, may not look."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def family(process: subprocess.Popen[str]) -> dict[psutil.Process, str]:
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            found[child] = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
    return found


def runs(process: psutil.Process) -> bool:
    """One that has ended may wait for whoever adopted it to take notice."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def namespaces(pid: int) -> list[str]:
    return [name for name in os.listdir(NAMESPACES) if f"-{pid}-" in name] if NAMESPACES.is_dir() else []


@pytest.mark.parametrize(
    ("case", "number"), [*((case, signal.SIGTERM) for case in CASES), ("tasks of an event loop", signal.SIGINT)]
)
def test_nothing_is_left(folder: Path, tmp_path: Path, case: str, number: signal.Signals) -> None:
    words, known = CASES[case]
    if known == "bench.measured_nodes" and Namespaces.obstacle():
        pytest.skip(Namespaces.obstacle())
    bench = subprocess.Popen(
        [sys.executable, "-m", "chappe.cli", "bench", *words, "--quick", "--charts", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not any(known in line for line in family(bench).values()):
            assert bench.poll() is None, bench.communicate()[0]
            assert time.monotonic() < deadline, f"no {known} was started"
            time.sleep(0.05)
        started = family(bench)
        bench.send_signal(number)
        said, _ = bench.communicate(timeout=60)
    finally:
        bench.kill()
    assert bench.returncode == 130, said
    assert "nothing is left running" in said
    assert [line for process, line in started.items() if runs(process)] == []
    assert namespaces(bench.pid) == []
    assert [path.name for path in folder.iterdir() if path.name.startswith("chappe")] == []
