"""`chappe bench soak`: sessions, topics, routes, inboxes and variables come and go for a long time; all levels off.

Three nodes of a mesh; a fourth is killed in the beginning and stays away, with what was queued for it. A link fails and
comes back all the time. Each second the resident memory and the number of entries of every table are sampled.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import uvloop

from bench import charts
from bench.killed import Killed
from bench.progress import spans
from bench.registry import SoakOptions
from bench.report import Options, Report
from bench.soak.churn import Churn
from bench.soak.trend import Trend, trend
from chappe.client.connecting import connect
from chappe.errors import ChappeError
from chappe.links.delays import DelayRelay
from chappe.links.ports import free_ports

MINUTES, QUICK_MINUTES = 20.0, 1.0
NODES = ("a", "b", "c")
AWAY = "away"  # killed in the beginning
LEVEL_S = 600.0  # a shorter run shows that it works: bounded tables are not full in its first half
WARM_S = 3.0
LINK_S = (4.0, 1.0)  # how long the link of b and c is there, and is not
FLOORS = {"resident_bytes": 2 << 20, "engine.memory_bytes": 1 << 20, "process.objects": 2_000}
FLOOR = 64  # entries of any other table
SHOWN = 12
Progressed = Callable[[float, str], None]
Series = dict[str, list[tuple[float, float]]]


def run(options: Options, own: SoakOptions) -> Report:
    """Churn, sample, compare the second half with a level line."""
    chosen = secrets.randbelow(1 << 31) if own.seed is None else own.seed
    seconds = 60.0 * (own.minutes or (QUICK_MINUTES if options.quick else MINUTES))
    report = Report("soak")
    options.console.print(f"seed {chosen}", highlight=False)
    with tempfile.TemporaryDirectory(prefix="chappe-soak-") as folder:
        soak = Soak(Path(folder), chosen, seconds)
        with (
            spans(options.console, "soak", seconds) as progress,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(soak.follow(progress))
        series = soak.series()
    _judge(options, report, soak, series, seconds)
    return report


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.ends: list[str] = []  # processes and tasks that ended by themselves
        self._seed = seed
        self._ports = dict(zip((*NODES, AWAY), free_ports(len(NODES) + 1), strict=True))
        self._relay = DelayRelay(self._ports["c"])
        self._resident: dict[str, list[tuple[float, float]]] = {name: [] for name in NODES}
        self._began = 0.0
        self.churn = Churn({name: f"tcp://127.0.0.1:{self._ports[name]}" for name in NODES}, seed)

    async def follow(self, progress: Progressed) -> None:
        """Start, churn and sample for as long as was said, end."""
        loop = asyncio.get_running_loop()
        processes: dict[str, Killed] = {}
        async with self._relay:
            try:
                for name in (*NODES, AWAY):
                    self._write(name)
                    command = ["bench.soak.node", f"{name}.toml", f"{name}.sizes"]
                    processes[name] = Killed(name, command, "serving", self.folder)
                await asyncio.gather(*(process.start() for process in processes.values()))
                await self._lose(processes.pop(AWAY))
                await self.churn.start()
                began = self._began = loop.time()
                flapping = asyncio.ensure_future(self._flap())
                while (over := loop.time() - began) < self.seconds:
                    for name, process in processes.items():
                        if not process.running:
                            raise ChappeError(f"node {name} has ended:\n{process.last_words}")
                        self._resident[name].append((over, float(psutil.Process(process.pid).memory_info().rss)))
                    if self.churn.failures():
                        raise ChappeError(f"the churn has ended: {self.churn.failures()[0]}")
                    progress(over, f"{self.churn.counts['sessions']} sessions, {self.churn.counts['topics']} topics")
                    await asyncio.sleep(1.0)
                flapping.cancel()
                await asyncio.gather(flapping, return_exceptions=True)
            finally:
                await self.churn.stop()
                await asyncio.gather(*(process.end() for process in processes.values()))

    def _write(self, name: str) -> None:
        """The file of a node. Its memories are short, so that they are full well before the second half."""
        text = (
            f'[node]\nname = "{name}"\naway_s = 3.0\n[[listen]]\nurl = "tcp://127.0.0.1:{self._ports[name]}"\n[mesh]\n'
        )
        text += "refresh_s = 5.0\n[limits]\ntopics = 512\nforwarding_entries = 8192\n"
        peers = {
            "a": [("b", self._ports["b"]), (AWAY, self._ports[AWAY])],
            "b": [("a", 0), ("c", self._relay.port), (AWAY, self._ports[AWAY])],
            "c": [("b", 0)],
            AWAY: [("a", 0), ("b", 0)],
        }[name]
        for peer, port in peers:
            text += f'[[peer]]\nname = "{peer}"\n' + (f'url = "tcp://127.0.0.1:{port}"\n' if port else "")
        if name == "a":
            text += '[[path]]\nvariables = "#"\nto = ["b"]\n'
        (self.folder / f"{name}.toml").write_text(text)

    async def _lose(self, process: Killed) -> None:
        """Somebody there subscribes to everything, so that events are on their way to it when it is killed."""
        url = f"tcp://127.0.0.1:{self._ports[AWAY]}"
        async with connect(url, name="last", reconnect=False, wait_s=10.0) as client:
            await client.subscribe("soak/#", since=0)
            await asyncio.sleep(WARM_S)
            process.send(signal.SIGSTOP)
            async with connect(f"tcp://127.0.0.1:{self._ports['a']}", name="first") as publisher:
                for _ in range(1000):
                    await publisher.publish_wait("soak/queued", bytes(1000))
                await publisher.flush(10.0)
            await process.kill()

    async def _flap(self) -> None:
        """Routes change without end."""
        while True:
            await asyncio.sleep(LINK_S[0])
            self._relay.cut()
            await asyncio.sleep(LINK_S[1])
            self._relay.mend()

    def series(self) -> Series:
        """Every table of every node, by `node table`: (seconds, entries)."""
        found: Series = {f"{name} resident_bytes": points for name, points in self._resident.items()}
        for name in NODES:
            for line in (self.folder / f"{name}.sizes").read_bytes().splitlines():
                at_ns, sizes = msgspec.json.decode(line)
                over = at_ns / 1e9 - self._began
                if 0 <= over <= self.seconds:
                    for table, entries in sizes.items():
                        found.setdefault(f"{name} {table}", []).append((over, float(entries)))
        return found


def judged(series: Series, seconds: float) -> dict[str, Trend]:
    """The trend of each series; one that is there for less than half the second half is of a table that is gone."""
    found = {}
    for name, points in series.items():
        late = [point for point in points if point[0] >= seconds / 2]
        if len(late) >= 5 and late[-1][0] >= seconds * 0.9:
            table = name.partition(" ")[2]
            times_s, values = [point[0] for point in points], [point[1] for point in points]
            found[name] = trend(times_s, values, float(FLOORS.get(table, FLOOR)))
    return found


def _judge(options: Options, report: Report, soak: Soak, series: Series, seconds: float) -> None:
    trends = judged(series, seconds)
    growing = sorted(
        (name for name, each in trends.items() if not each.level),
        key=lambda name: -trends[name].least / trends[name].allowed,
    )
    for what, count in sorted(soak.churn.counts.items()):
        report.show(what, count, "")
    for name in NODES:
        each = trends[f"{name} resident_bytes"]
        report.show(f"{name}: resident memory", each.median / 2**20, "MiB")
        report.show(f"{name}: growth of it in the second half", each.growth / 2**20, "MiB")
    for name in growing:
        each = trends[name]
        report.note(
            f"{name} grows: by {each.growth:.0f} in the second half (at least {each.least:.0f}, allowed are "
            f"{each.allowed:.0f}), median {each.median:.0f}"
        )
    report.compare("tables sampled", len(trends), "", ">=", 100)
    report.compare("sessions", soak.churn.counts["sessions"], "", ">=", seconds / 4)
    text = "series of memory and tables that do not level off"
    if seconds < LEVEL_S:
        report.show(f"{text}: some are not full yet", len(growing), "")
    else:
        report.compare(text, len(growing), "", "==", 0)
    memory = {f"{name}: resident memory, MiB": _scaled(series[f"{name} resident_bytes"], 2**-20) for name in NODES}
    largest = sorted(trends, key=lambda name: -trends[name].median)
    chosen = dict.fromkeys([*growing, *(name for name in largest if not name.endswith("bytes"))])
    panels = {**memory, **{name: series[name] for name in list(chosen)[:SHOWN]}}
    report.charts = [charts.series(options.charts / "soak.png", "Memory and tables under churn", "seconds", panels)]


def _scaled(points: list[tuple[float, float]], by: float) -> list[tuple[float, float]]:
    return [(at, value * by) for at, value in points]
