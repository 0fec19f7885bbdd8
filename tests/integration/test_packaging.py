"""The units of systemd: well formed, tight, and no tighter than what a node and an archive really do."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chappe
from tests.support.nodes import free_port
from tests.support.peers import requires

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
HARDENING = UNITS / "chappe-.service.d" / "hardening.conf"
CALL = re.compile(r"^\d+ +(?:\d+\.\d+ )?([a-z_0-9]+)\(")
START_S = 60.0


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that this machine has: `systemd-analyze verify` looks for it."""
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    for unit in folder.glob("*.service"):
        unit.write_text(unit.read_text().replace("/opt/chappe/bin/chappe", sys.executable))
    return folder


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}
    program = requires("systemd-analyze")
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", ["chappe-node@west.service", "chappe-archive@plant.service"])
def test_units_are_well_formed_and_hardly_exposed(units: Path, unit: str) -> None:
    verified = analyze(units, "verify", unit)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    rated = analyze(units, "security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert found is not None, rated.stdout + rated.stderr
    assert float(found[1]) < 2.0


def allowed_calls() -> set[str]:
    """What `SystemCallFilter=` in the unit comes to, all sets resolved."""
    allowed: set[str] = set()
    for value in re.findall(r"^SystemCallFilter=(.*)$", HARDENING.read_text(), re.MULTILINE):
        for word in value.removeprefix("~").split():
            calls = expand(word)
            allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed | expand("@default")


def expand(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    listed = analyze(UNITS, "syscall-filter", word).stdout.splitlines()
    lines = [line.strip() for line in listed[1:]]
    return set().union(*(expand(line) for line in lines if line and not line.startswith("#")))


async def traced(trace: Path, *command: str) -> asyncio.subprocess.Process:
    """A program under strace, once it says that it serves."""
    source = str(Path(chappe.__file__).parents[1])
    process = await asyncio.create_subprocess_exec(
        requires("strace"), "-f", "-qq", "-o", str(trace), sys.executable, "-m", "chappe.cli", *command,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(START_S):
        async for line in process.stdout:
            if line.strip() == b"serving":
                return process
    raise AssertionError(f"{command} ended before it served")


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)
    async with asyncio.timeout(START_S):
        await process.wait()


async def test_what_a_node_and_an_archive_do_is_allowed_by_their_units(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    node = tmp_path / "west.toml"
    node.write_text(
        f'[node]\nname = "west"\n[mesh]\nunit = "east"\n[metrics]\naddress = "127.0.0.1:{metrics}"\n'
        f'[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n[[listen]]\nurl = "udp://127.0.0.1:{port}"\n'
        f'[[listen]]\nurl = "unix://{tmp_path}/west.sock"\n'
    )
    archive = tmp_path / "plant.toml"
    archive.write_text(
        f'[archive]\nname = "plant"\nurl = "tcp://127.0.0.1:{port}"\nfolder = "{tmp_path}/history"\n'
        f'log = "{tmp_path}/log"\ntopics = ["grid/#"]\n'
    )
    traces = [tmp_path / "node.trace", tmp_path / "archive.trace"]
    west = await traced(traces[0], "node", "--dev", str(node))
    try:
        plant = await traced(traces[1], "archive", "run", str(archive))
        try:
            async with chappe.connect(f"tcp://127.0.0.1:{port}") as client:
                assert await client.publish("grid/west", b"1", durable=True) == "plant"
            os.killpg(west.pid, signal.SIGHUP)
        finally:
            await end(plant)
    finally:
        await end(west)
    allowed = allowed_calls()
    for trace in traces:
        lines = trace.read_text(errors="replace").splitlines()
        calls = {found[1] for line in lines if (found := CALL.match(line))}
        assert {"epoll_ctl", "socket", "openat"} < calls, "the trace is not that of a process with sockets"
        assert calls <= allowed, f"{trace.stem}: the unit forbids {sorted(calls - allowed)}"
        memory = [line for line in lines if re.search(r"\b(mmap|mprotect)\(", line)]
        executable = [line for line in memory if "PROT_EXEC" in line]
        assert [line for line in executable if "PROT_WRITE" in line or "mprotect(" in line] == []


def test_benches_are_not_part_of_what_is_installed(tmp_path: Path) -> None:
    build = (
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        str(tmp_path),
        "--build-lib",
        str(tmp_path / "lib"),
    )
    settings = {**os.environ, "CHAPPE_EXT": "bench._scan_nats"}  # of the compiled modules only one of the benches
    subprocess.run(build, cwd=UNITS.parents[1], env=settings, capture_output=True, check=True)
    assert [path.name for path in (tmp_path / "lib").iterdir()] == ["chappe"]
    assert (tmp_path / "lib" / "chappe" / "cli" / "bench.py").exists()
    assert list(tmp_path.rglob("*.so")) == []
