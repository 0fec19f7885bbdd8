"""Cost against interval, measured by real nodes on sockets: on loopback through a delaying relay, or in namespaces."""

from __future__ import annotations

import asyncio
import selectors
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.measured_nodes import Rows
from bench.measured_run import measure
from bench.namespaces import Namespaces, Shape
from chappe.links.delays import DelayRelay
from chappe.links.ports import free_ports
from chappe.security.authority import Authority

PORT = 7400
ROUNDS = 16
LEAST_S = 5.0


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
        far = [_far(delay_ms, f"tcp://127.0.0.1:{port}", intervals_ms) for delay_ms, port in ports.items()]
        urls = {delay_ms: f"tcp://127.0.0.1:{relay.port}" for delay_ms, relay in relays.items()}
        near = _near(urls, intervals_ms, "tcp")
        found = await asyncio.to_thread(measure, far, near, *_times(intervals_ms, rounds))
    return _figures(found, delays_ms, intervals_ms)


def in_namespaces(delays_ms: Sequence[float], intervals_ms: Sequence[float], rounds: int = ROUNDS) -> Figures:
    """The same between two network namespaces, over TLS since nothing else is allowed outside of the loopback."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-bench-tables-"))) / "pki"
        spaces = stack.enter_context(Namespaces({delay_ms: Shape(delay_ms) for delay_ms in delays_ms}))
        authority = Authority.create(folder, datetime.now(UTC), name="bench authority", days=2)
        for delay_ms, address in spaces.far.items():
            authority.issue(_far_name(delay_ms), "node", datetime.now(UTC), hosts=[address], days=1)
        for interval_ms in intervals_ms:
            authority.issue(_near_name(interval_ms), "node", datetime.now(UTC), days=1)
        urls = {delay_ms: f"tls://{address}:{PORT}" for delay_ms, address in spaces.far.items()}
        found = measure(
            [_far(delay_ms, url, intervals_ms, folder) for delay_ms, url in urls.items()],
            _near(urls, intervals_ms, "tls", folder),
            *_times(intervals_ms, rounds),
            dev=False,
            far_prefix=spaces.command(spaces.far_name),
            near_prefix=spaces.command(spaces.near_name),
        )
    return _figures(found, delays_ms, intervals_ms)


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
    urls: dict[float, str], intervals_ms: Sequence[float], transport: str, folder: Path | None = None
) -> list[str]:
    """Nodes that measure, one an interval."""
    files = []
    for interval_ms, port in zip(intervals_ms, free_ports(len(intervals_ms)), strict=True):
        name = _near_name(interval_ms)
        text = f'[node]\nname = "{name}"\n[measure]\nadapt = false\n' + _tls(name, folder)
        text += f'[[listen]]\nurl = "{transport}://127.0.0.1:{port}"\n'
        for delay_ms, url in urls.items():
            text += f'[[peer]]\nname = "{_far_name(delay_ms)}"\nurl = "{url}"\n'
        files.append(text)
    return files


def _times(intervals_ms: Sequence[float], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and interval of each of them."""
    names = {interval_ms: _near_name(interval_ms) for interval_ms in intervals_ms}
    return {name: seconds(each, rounds) for each, name in names.items()}, {name: each for each, name in names.items()}


# --- what they say


def _figures(found: dict[str, Rows], delays_ms: Sequence[float], intervals_ms: Sequence[float]) -> Figures:
    return {
        (delay_ms, interval_ms): _figure(found[_near_name(interval_ms)].get(_far_name(delay_ms), []))
        for delay_ms in delays_ms
        for interval_ms in intervals_ms
    }


def _figure(rows: list[list[float]]) -> Figure:
    later = rows[len(rows) // 2 :]
    if not later:
        return Figure(float("nan"), float("nan"), 0)
    return Figure(median(row[0] for row in later), median(row[1] for row in later), len(rows))
