"""Cost against interval, measured by real nodes on sockets: on loopback through a delaying relay, or in namespaces."""

from __future__ import annotations

import asyncio
import json
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from chappe.bench.delays import DelayRelay
from chappe.bench.mesh import free_ports
from chappe.bench.namespaces import Namespaces
from chappe.bench.peers.common import environment
from chappe.errors import ChappeError
from chappe.security.authority import Authority

PORT = 7400
ROUNDS = 16
LEAST_S = 5.0
SPARE_S = 60.0  # for processes to start and links to come up


@dataclass(frozen=True)
class Figure:
    """What one link measured at one interval: medians over the later half of its rounds."""

    latency_ms: float
    cost: float
    rounds: int


Figures = dict[tuple[float, float], Figure]  # by delay and interval, in ms


def seconds(interval_ms: float, rounds: int = ROUNDS) -> float:
    """How long is measured at that interval."""
    return max(LEAST_S, rounds * interval_ms / 1e3)


def on_loopback(delays_ms: Sequence[float], intervals_ms: Sequence[float], rounds: int = ROUNDS) -> Figures:
    """All intervals at the same time, each by a node of its own with one link a delay."""
    # Of all selectors only this one waits for less than whole milliseconds.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(_on_loopback(delays_ms, intervals_ms, rounds))


async def _on_loopback(delays_ms: Sequence[float], intervals_ms: Sequence[float], rounds: int) -> Figures:
    ports = dict(zip(delays_ms, free_ports(len(delays_ms)), strict=True))
    async with AsyncExitStack() as stack:
        relays = {
            delay_ms: await stack.enter_async_context(DelayRelay(port, delay_ms / 1e3))
            for delay_ms, port in ports.items()
        }
        far = _task([_far(delay, f"tcp://127.0.0.1:{port}", intervals_ms) for delay, port in ports.items()], True)
        urls = {delay_ms: f"tcp://127.0.0.1:{relay.port}" for delay_ms, relay in relays.items()}
        near = _near(urls, intervals_ms, rounds, True)
        return await asyncio.to_thread(_measure, [], far, [], near)


def in_namespaces(delays_ms: Sequence[float], intervals_ms: Sequence[float], rounds: int = ROUNDS) -> Figures:
    """The same between two network namespaces, over TLS since nothing else is allowed outside of the loopback."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-bench-tables-"))) / "pki"
        spaces = stack.enter_context(Namespaces(tuple(delays_ms)))
        authority = Authority.create(folder, datetime.now(UTC), name="bench authority", days=2)
        for delay_ms, address in spaces.far.items():
            authority.issue(_far_name(delay_ms), "node", datetime.now(UTC), hosts=[address], days=1)
        for interval_ms in intervals_ms:
            authority.issue(_near_name(interval_ms), "node", datetime.now(UTC), days=1)
        urls = {delay_ms: f"tls://{address}:{PORT}" for delay_ms, address in spaces.far.items()}
        far = _task([_far(delay, url, intervals_ms, folder) for delay, url in urls.items()], False)
        near = _near(urls, intervals_ms, rounds, False, folder)
        return _measure(spaces.command(spaces.far_name), far, spaces.command(spaces.near_name), near)


# --- what the processes are told


def _far_name(delay_ms: float) -> str:
    return f"far-{delay_ms:g}".replace(".", "-")


def _near_name(interval_ms: float) -> str:
    return f"near-{interval_ms:g}"


def _tls(name: str, folder: Path | None) -> str:
    if folder is None:
        return ""
    return f'[tls]\nca = "{folder}/ca.pem"\ncert = "{folder}/{name}.pem"\nkey = "{folder}/{name}.key"\n'


def _far(delay_ms: float, url: str, intervals_ms: Sequence[float], folder: Path | None = None) -> str:
    """A node that is measured and does not measure."""
    name = _far_name(delay_ms)
    peers = "".join(f'[[peer]]\nname = "{_near_name(interval_ms)}"\n' for interval_ms in intervals_ms)
    return f'[node]\nname = "{name}"\n[[listen]]\nurl = "{url}"\n{peers}[measure]\non = false\n' + _tls(name, folder)


def _near(
    urls: dict[float, str], intervals_ms: Sequence[float], rounds: int, dev: bool, folder: Path | None = None
) -> dict[str, Any]:
    """Nodes that measure, one an interval."""
    files, ports = [], free_ports(len(intervals_ms))
    for interval_ms, port in zip(intervals_ms, ports, strict=True):
        name = _near_name(interval_ms)
        text = f'[node]\nname = "{name}"\n[measure]\nadapt = false\n' + _tls(name, folder)
        text += f'[[listen]]\nurl = "{"tcp" if dev else "tls"}://127.0.0.1:{port}"\n'
        for delay_ms, url in urls.items():
            text += f'[[peer]]\nname = "{_far_name(delay_ms)}"\nurl = "{url}"\n'
        files.append(text)
    return {
        **_task(files, dev),
        "intervals_ms": {_near_name(interval_ms): interval_ms for interval_ms in intervals_ms},
        "seconds": {_near_name(interval_ms): seconds(interval_ms, rounds) for interval_ms in intervals_ms},
        "delays": {_far_name(delay_ms): delay_ms for delay_ms in urls},
    }


def _task(files: list[str], dev: bool) -> dict[str, Any]:
    return {"files": files, "dev": dev}


# --- running them


def _measure(far_prefix: list[str], far: dict[str, Any], near_prefix: list[str], near: dict[str, Any]) -> Figures:
    with _started(far_prefix, far) as answering:
        assert answering.stdout is not None
        if answering.stdout.readline().strip() != "serving":
            raise ChappeError("the nodes at the far end did not start")
        longest_s = max(near["seconds"].values()) + SPARE_S
        with _started(near_prefix, near) as measuring:
            try:
                told, _ = measuring.communicate(timeout=longest_s)
            except subprocess.TimeoutExpired:
                told = ""
            finally:
                measuring.kill()
                answering.kill()
    lines = told.splitlines()
    if len(lines) != 2:
        raise ChappeError("the nodes that measure have ended without figures")
    return {
        (near["delays"][peer], near["intervals_ms"][name]): _figure(rows)
        for name, links in json.loads(lines[-1]).items()
        for peer, rows in links.items()
    }


def _started(prefix: list[str], task: dict[str, Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "chappe.bench.tables_nodes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    return process


def _figure(rows: list[list[float]]) -> Figure:
    later = rows[len(rows) // 2 :]
    if not later:
        return Figure(float("nan"), float("nan"), 0)
    return Figure(median(row[0] for row in later), median(row[1] for row in later), len(rows))
