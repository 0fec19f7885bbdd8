"""`chappe bench durable`: events that are on disk when their publisher is told so, beside JetStream.

Both keep what they get on the same disk and sync it before they confirm: an archive at a node, and nats-server with a
file store and `sync_interval: always`. One Python client of each publishes events of 256 bytes, first each when the one
before is confirmed, then with 4,096 on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.killed import Killed
from bench.peers import nats as nats_peer
from bench.peers.common import Peer, running
from bench.registry import Own
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, ratio, spread
from chappe.client.connecting import connect
from chappe.errors import ChappeError
from chappe.links.ports import free_ports

OURS, THEIRS = "chappe", "JetStream"
BODY = bytes(256)
TOPIC = "bench/durable"
WINDOW = 4096
WARM = 50
WAIT_S = 60.0
STREAM = """\
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""
Publish = Callable[[bytes], Awaitable[Awaitable[object]]]
"""Sends an event; what it gives can be awaited until the event is confirmed."""


@dataclass(frozen=True)
class Cell:
    """One system with so many events on their way."""

    system: str
    window: int

    def __str__(self) -> str:
        return f"{self.system}, {self.window:,} in flight"


@dataclass(frozen=True)
class Figures:
    """What one turn measured."""

    p50_ms: float
    p99_ms: float
    per_s: float


def run(options: Options, own: Own) -> Report:
    """Both, in turns."""
    if nats_peer.find() is None:
        raise ChappeError(f"nats-server is missing: {nats_peer.PEER.install}")
    report = Report("durable")
    report.versions["nats-server"] = nats_peer.PEER.version()
    rounds: Rounds[Cell, Figures] = Rounds(report, options.console, Ceiling())
    single, many = (60, 2 * WINDOW) if options.quick else (1000, 8 * WINDOW)
    with (
        TemporaryDirectory(prefix="chappe-bench-durable-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        contextlib.ExitStack() as stack,
    ):
        opened = contextlib.AsyncExitStack()
        try:
            publish = {
                OURS: runner.run(opened.enter_async_context(_chappe(Path(folder)))),
                THEIRS: runner.run(opened.enter_async_context(_jetstream(Path(folder), stack))),
            }

            def measured(cell: Cell) -> Figures:
                count = single if cell.window == 1 else many
                return runner.run(_measured(publish[cell.system], cell.window, count))

            cells = [Cell(system, window) for window in (1, WINDOW) for system in (OURS, THEIRS)]
            for cell in cells:
                runner.run(_measured(publish[cell.system], cell.window, WARM if cell.window == 1 else WINDOW))
            rounds.run(options.repeats, cells, measured, "rounds")
        finally:
            runner.run(opened.aclose())
    _summarise(report, rounds.values)
    return report


async def _measured(publish: Publish, window: int, count: int) -> Figures:
    """Publish with so many on their way at most; latencies run from the call to the confirmation."""
    waiting: deque[asyncio.Future[float]] = deque()
    latencies: list[float] = []
    begun = time.perf_counter()
    for _ in range(count):
        if len(waiting) >= window:
            latencies.append(await waiting.popleft())
        sent = time.perf_counter()
        confirmed = await publish(BODY)
        if window == 1:
            await confirmed
            latencies.append(time.perf_counter() - sent)
        else:
            waiting.append(asyncio.ensure_future(_since(sent, confirmed)))
    while waiting:
        latencies.append(await waiting.popleft())
    took_s = time.perf_counter() - begun
    latencies.sort()
    return Figures(latencies[count // 2] * 1e3, latencies[count * 99 // 100] * 1e3, count / took_s)


async def _since(sent: float, confirmed: Awaitable[object]) -> float:
    await confirmed
    return time.perf_counter() - sent


@contextlib.asynccontextmanager
async def _chappe(folder: Path) -> AsyncIterator[Publish]:
    """A node and an archive, each a process."""
    (port,) = free_ports(1)
    url = f"tcp://127.0.0.1:{port}"
    (folder / "node.toml").write_text(f'[node]\nname = "n"\n[[listen]]\nurl = "{url}"\n')
    (folder / "archive.toml").write_text(
        f'[archive]\nname = "a"\nurl = "{url}"\nfolder = "history"\nlog = "log"\ntopics = ["bench/#"]\n'
        "measurements = false\ncounters = false\nbroker = false\nquality = false\n"
    )
    node = Killed("node", ["chappe.node", "node.toml", "--dev"], "serving", folder)
    archive = Killed("archive", ["chappe.archive", "archive.toml"], "serving", folder)
    try:
        await node.start()
        await archive.start()
        async with connect(url, name="publisher", durable_s=WAIT_S) as client:

            async def publish(body: bytes) -> Awaitable[object]:
                return client.publish(TOPIC, body, durable=True)

            yield publish
    finally:
        await archive.end()
        await node.end()


@contextlib.asynccontextmanager
async def _jetstream(folder: Path, stack: contextlib.ExitStack) -> AsyncIterator[Publish]:
    """nats-server with a stream of one file store."""
    import nats

    def command(place: Path, port: int, tls: bool) -> list[str]:
        line = nats_peer.command(place, port, tls)
        config = place / "nats.conf"
        config.write_text(config.read_text() + STREAM.format(folder=folder / "jetstream"))
        return line

    peer = Peer("nats-server", "nats", nats_peer.PEER.install, nats_peer.find, nats_peer.PEER.version, command)
    server = stack.enter_context(running(peer))
    client = await nats.connect(f"nats://127.0.0.1:{server.port}")
    try:
        stream = client.jetstream(timeout=WAIT_S, publish_async_max_pending=2 * WINDOW)
        await stream.add_stream(name="bench", subjects=["bench.>"], storage="file")

        async def publish(body: bytes) -> Awaitable[object]:
            confirmed: Awaitable[object] = await stream.publish_async("bench.durable", body)
            return confirmed

        yield publish
    finally:
        await client.close()


def _summarise(report: Report, values: dict[Cell, list[Figures]]) -> None:
    def figure(system: str, window: int, name: str) -> list[float]:
        return [getattr(each, name) for each in values.get(Cell(system, window), [])]

    latency = [median(figure(system, 1, "p50_ms")) for system in (OURS, THEIRS)]
    rate = [median(figure(system, WINDOW, "per_s")) for system in (OURS, THEIRS)]
    report.compare("one event in flight: p50, of JetStream's", ratio(*latency), "times", "<=", 2.0)
    report.compare("4,096 in flight: confirmed a second, of JetStream's", ratio(*rate), "times", ">=", 5.0)
    for system in (OURS, THEIRS):
        for name, unit in (("p50_ms", "ms p50"), ("p99_ms", "ms p99")):
            found = figure(system, 1, name)
            report.show(f"{Cell(system, 1)}: {unit}", median(found), "ms")
        report.show(f"{Cell(system, 1)}: spread of p50", spread(figure(system, 1, "p50_ms")) * 100, "%")
        found = figure(system, WINDOW, "per_s")
        report.show(str(Cell(system, WINDOW)), median(found), "events/s")
        report.show(f"{Cell(system, WINDOW)}: spread", spread(found) * 100, "%")
    report.note("both sync before they confirm, in the same folder; a Python client of each in one process")
