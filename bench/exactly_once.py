"""`chappe bench exactly-once`: rows from a publisher to a table while the archive, nodes and Spark are killed.

Two nodes in a mesh: the publisher is at one, the archive at the other, and a continuous ingest follows the archive.
Rows are published as durable events in waves. Within each wave one process, chosen by the seed, is killed with all its
children at a moment chosen by the seed, and started again a little later. At the end every row that was acknowledged
must be in the table of events once, and nothing else may be there.
"""

from __future__ import annotations

import asyncio
import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import uvloop

from bench.killed import Killed
from bench.registry import ExactlyOnceOptions
from bench.report import Options, Report
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.client.client import Client
from chappe.client.connecting import connect
from chappe.errors import ChappeError, ConfigError
from chappe.links.ports import free_ports
from chappe.pipeline.spark import missing
from chappe.pipeline.tables import Tables

ROWS, QUICK_ROWS = 20_000, 1_000
KILLS, QUICK_KILLS = 5, 3
SEED = 5
TARGETS = ("archive", "node", "driver")
NODES = ("near", "far")  # the publisher's and the archive's
ARCHIVE = "kept"
TOPIC = "rows/measured"
RATE_HZ = 2_000  # rows a second: a wave lasts long enough to be interrupted
WINDOW = 2_000  # rows that wait to be acknowledged
DOWN_S = (0.0, 1.0)  # how long a killed process is away
ACKNOWLEDGED_S = 120.0
STORED_S = 180.0  # for the last row to reach the table
LOOK_S = 0.5
BODY = struct.Struct(">QQ")  # seed, number


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: in its wave, when that share of its rows is published, and so long after that."""

    target: str
    share: float
    after_s: float
    down_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of rows, counted."""

    acknowledged: int
    stored: int  # different ones in the table
    lost: int  # acknowledged and not in the table
    doubled: int  # copies beyond the first
    strangers: int  # in the table, and never published


def plan(seed: int, kills: int) -> list[Kill]:
    """Whom to kill when: each kind of process at least once where there are kills enough."""
    chance = random.Random(seed)
    targets = list(TARGETS[:kills]) + [chance.choice(TARGETS) for _ in range(kills - len(TARGETS))]
    chance.shuffle(targets)
    return [Kill(target, chance.uniform(0.1, 0.9), chance.uniform(0.0, 0.5), chance.uniform(*DOWN_S))
            for target in targets]  # fmt: skip


def waves(rows: int, count: int) -> list[range]:
    """The numbers of the rows, in so many parts of about the same size."""
    bounds = [rows * part // count for part in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def judged(acknowledged: set[int], published: int, found: Iterable[int]) -> Outcome:
    """Rows of the table against what was acknowledged and published (numbers below `published`)."""
    copies = Counter(found)
    strangers = sum(count for number, count in copies.items() if not 0 <= number < published)
    return Outcome(
        acknowledged=len(acknowledged),
        stored=len(copies),
        lost=len(acknowledged - copies.keys()),
        doubled=sum(copies.values()) - len(copies),
        strangers=strangers,
    )


def run(options: Options, own: ExactlyOnceOptions) -> Report:
    """Publish, kill, count."""
    if reason := missing():
        raise ConfigError(reason)
    chosen = plan(own.seed, (QUICK_KILLS if options.quick else KILLS) if own.kills is None else own.kills)
    count = (QUICK_ROWS if options.quick else ROWS) if own.rows is None else own.rows
    report = Report("exactly-once")
    with (
        tempfile.TemporaryDirectory(prefix="chappe-bench-exactly-once-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        begun = time.monotonic()
        course = Course(Path(folder), own.seed, count)
        runner.run(course.follow(chosen))
        outcome = judged(course.acknowledged, count, course.table())
        raw = course.archived()
        report.show("from the first row to the last in the table", time.monotonic() - begun, "s")
    report.note(f"seed {own.seed}: killed " + ", ".join(course.killed))
    for ended in course.ends:
        report.note(f"ended by itself and was started again: {ended.splitlines()[0]} … {ended.splitlines()[-1]}")
    report.show("rows published", count, "rows")
    report.show("rows published again by the client", course.sent_again, "rows")
    report.show("rows of the archive", len(raw), "rows")
    report.show("repeats in the archive", len(raw) - len(set(raw)), "rows")
    report.compare("processes killed with kill -9", len(course.killed), "kills", "==", len(chosen))
    report.compare("rows acknowledged", outcome.acknowledged, "rows", "==", count)
    report.compare("acknowledged rows that are not in the table", outcome.lost, "rows", "==", 0)
    report.compare("rows that are in the table twice or more", outcome.doubled, "rows", "==", 0)
    report.compare("rows in the table that nobody published", outcome.strangers, "rows", "==", 0)
    return report


@dataclass
class Course:
    """One run, in a folder of its own."""

    folder: Path
    seed: int
    rows: int
    acknowledged: set[int] = field(default_factory=set)
    killed: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # processes that ended by themselves, and what they said
    sent_again: int = 0

    async def follow(self, kills: Sequence[Kill]) -> None:
        """Start everything, publish wave by wave with a kill in each, wait until the table has all, end everything."""
        processes = self._processes()
        looking: asyncio.Future[None] | None = None
        try:
            await asyncio.gather(*(processes[name].start() for name in NODES))
            await asyncio.gather(processes["archive"].start(), processes["driver"].start())
            looking = asyncio.ensure_future(self._look_after(processes.values()))
            async with connect(self._urls[0], name="publisher", wait_s=30, durable_s=ACKNOWLEDGED_S) as client:
                for number, wave in enumerate(waves(self.rows, len(kills) + 1)):
                    published = _Progress(len(wave))
                    publishing = asyncio.ensure_future(self._publish(client, wave, published))
                    if number < len(kills):
                        await self._kill(processes, kills[number], wave, published)
                    await publishing
                self.sent_again = client.durable.sent_again
                await self._all_stored(processes)
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            self.ends = [f"{each.name}: {words}" for each in processes.values() for words in each.ends]
            await asyncio.gather(*(process.end() for process in processes.values()))

    # --- what runs

    def _processes(self) -> dict[str, Killed]:
        ports = free_ports(len(NODES))
        self._urls = [f"tcp://127.0.0.1:{port}" for port in ports]
        for number, name in enumerate(NODES):
            peer = f'[[peer]]\nname = "{NODES[0]}"\nurl = "{self._urls[0]}"\n' if number else ""
            text = f'[node]\nname = "{name}"\n[[listen]]\nurl = "{self._urls[number]}"\n{peer}[mesh]\n'
            (self.folder / f"{name}.toml").write_text(text)
        (self.folder / "archive.toml").write_text(
            f'[archive]\nname = "{ARCHIVE}"\nurl = "{self._urls[-1]}"\nfolder = "history"\nlog = "log"\n'
            f'topics = ["{TOPIC}"]\nage_s = 3.0\n'
        )
        (self.folder / "pipeline.toml").write_text(
            f'[pipeline]\narchive = "history"\nlog = "log"\nsource = "{ARCHIVE}"\nwork = "work"\n'
            'master = "local[2]"\njobs = ["ingest"]\n'
            '[pipeline.spark]\n"spark.driver.memory" = "1g"\n'
        )
        (self.folder / "history").mkdir()
        found = {name: Killed(name, ["chappe.node", f"{name}.toml", "--dev"], "serving", self.folder) for name in NODES}
        found["archive"] = Killed("archive", ["chappe.archive", "archive.toml"], "serving", self.folder)
        command = ["chappe.cli", "pipeline", "run", "--continuous", "--file", "pipeline.toml"]
        found["driver"] = Killed("driver", command, "ingest: waits", self.folder)
        return found

    async def _look_after(self, processes: Iterable[Killed]) -> None:
        """Start again what has ended by itself: Spark gives up when a Python worker takes 10 s to start."""
        while True:
            for process in processes:
                await process.look()
            await asyncio.sleep(LOOK_S)

    # --- what happens

    async def _publish(self, client: Client, wave: range, published: _Progress) -> None:
        """All rows of a wave, at a steady rate, until each is acknowledged."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        waiting: set[asyncio.Future[str]] = set()
        for number in wave:
            stored = client.publish(TOPIC, BODY.pack(self.seed, number), durable=True)
            stored.add_done_callback(lambda done, number=number: self._acknowledge(done, number))  # type: ignore[misc]
            waiting.add(stored)
            stored.add_done_callback(waiting.discard)
            published.add()
            while len(waiting) >= WINDOW:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            early_s = begun + (number - wave.start) / RATE_HZ - loop.time()
            if early_s > 0.005:
                await asyncio.sleep(early_s)
        await asyncio.gather(*waiting, return_exceptions=True)

    def _acknowledge(self, done: asyncio.Future[str], number: int) -> None:
        if not done.cancelled() and done.exception() is None:
            self.acknowledged.add(number)

    async def _kill(self, processes: dict[str, Killed], kill: Kill, wave: range, published: _Progress) -> None:
        await published.reach(kill.share)
        if kill.target == "driver":  # it is busy with rows of this wave, not still with starting
            await self._stored_beyond(wave.start, processes)
        await asyncio.sleep(kill.after_s)
        name = kill.target if kill.target != "node" else NODES[round(kill.share * 1000) % 2]
        await processes[name].look()
        await processes[name].kill()
        self.killed.append(name)
        await asyncio.sleep(kill.down_s)
        await processes[name].start()

    async def _stored_beyond(self, first: int, processes: dict[str, Killed]) -> None:
        await self._until(lambda: any(number >= first for number in self.table()), processes,
                          f"no row from {first} on is in the table")  # fmt: skip

    async def _all_stored(self, processes: dict[str, Killed]) -> None:
        """Until the table has every acknowledged row; what is missing after a while is lost, and counted as that."""
        try:
            await self._until(lambda: self.acknowledged <= set(self.table()), processes, "")
        except _TooLongError:
            return

    async def _until(self, condition: Callable[[], bool], processes: dict[str, Killed], what: str) -> None:
        deadline = time.monotonic() + STORED_S
        while not await asyncio.to_thread(condition):
            if time.monotonic() > deadline:
                raise _TooLongError(f"after {STORED_S:g} s {what}\n{processes['driver'].last_words}")
            await asyncio.sleep(LOOK_S)

    # --- what is there

    def table(self) -> list[int]:
        """The numbers of the rows in the table of events."""
        try:
            return [self._number(body) for body in _bodies(Tables(self.folder / "work").path("events"))]
        except FileNotFoundError:  # batches were joined meanwhile: look again later
            return []

    def archived(self) -> list[int]:
        """The numbers of the rows in the archive itself."""
        reader = Reader(Segments(str(self.folder / "history"), ARCHIVE), self.folder / "log")
        found = reader.read("events", reader.begin("events"), reader.end("events"), ("body",))
        return [self._number(body) for rows in found for body in rows.column("body").to_pylist()]

    def _number(self, body: bytes) -> int:
        """The number in a row of this run; -1 for a row of anybody else."""
        seed, number = BODY.unpack(body) if len(body) == BODY.size else (-1, 0)
        return int(number) if seed == self.seed else -1


class _TooLongError(ChappeError):
    """What was waited for did not come."""


class _Progress:
    """How much of a wave is published."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._done = 0
        self._more = asyncio.Event()

    def add(self) -> None:
        self._done += 1
        self._more.set()

    async def reach(self, share: float) -> None:
        """Wait until that share of the rows is published."""
        while self._done < share * self._rows:
            self._more.clear()
            await self._more.wait()


def _bodies(table: Path) -> Iterator[bytes]:
    """The bodies of a table of events, as any reader of Parquet finds them."""
    root = table.resolve()
    for file in sorted(root.rglob("*.parquet")):
        if not any(part.startswith((".", "_")) for part in file.relative_to(root).parts):
            yield from pq.read_table(file, columns=["body"], partitioning=None).column("body").to_pylist()
