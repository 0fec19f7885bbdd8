"""One run: start everything, do what the plan says to it, let it come to rest, and collect the histories."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.history.checker import Fault, History, Publisher, Subscriber, differences
from bench.history.client import event_of
from bench.history.nemesis import CUTS, Step, Targets, plan
from bench.history.network import Network
from bench.history.records import (
    Event,
    Watched,
    connections,
    lines,
    mode_operations,
    publications,
    receipts,
)
from bench.history.site import ARCHIVE, BROKERS, CLIENTS, LINKS, NODES, SPACES, Site
from bench.killed import Killed
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.client.client import Client
from chappe.client.connecting import connect
from chappe.errors import ChappeError

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
DISK_BYTES = 64 << 20
READY_S = 120.0
WARM_S = 4.0  # interest spreads
HEALED_S = 9.0  # everything goes on after the last fault, so that what is published then is judged, too
REST_S = 6.0  # nothing is published any more
ANSWERS_S = 90.0
STARTS = 3
LOOK_S = 0.3
Report = Callable[[float, str], None]


@dataclass
class Course:
    """One seed."""

    seed: int
    seconds: float
    folder: Path
    network: Network
    store: str
    report: Report  # seconds that are over, and what happens now
    done: list[str] = field(default_factory=list)  # what was inflicted
    ends: list[str] = field(default_factory=list)  # processes that ended by themselves, and their last words
    faults: list[Fault] = field(default_factory=list)

    async def follow(self) -> History:
        """The history of a run of that many seconds; ChappeError if it cannot even begin, or does not come to rest."""
        self.site = Site(self.folder, self.network, self.seed, self.store)
        self._mounted = _mount(self.site.disk)
        self.processes = self._processes()
        looking: asyncio.Future[None] | None = None
        try:
            self.report(0.0, "starting")
            await self._start()
            looking = asyncio.ensure_future(self._look_after())
            self.began_ns = time.monotonic_ns()
            steps = plan(self.seed, self.seconds, self.targets)
            await self._inflict(steps)
            self.report(self.seconds, "healed")
            await asyncio.sleep(HEALED_S)
            return await self._come_to_rest()
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            self.ends += [f"{each.name}: {words}" for each in self.processes.values() for words in each.ends]
            await asyncio.gather(*(process.end() for process in self.processes.values()))
            if self._mounted:
                _unmount(self.site.disk)

    # processes

    def _processes(self) -> dict[str, Killed]:
        found = {}
        for name in BROKERS:
            found[name] = self._made(name, "", ["chappe.cli", "up", "deployment.toml", "--only", name])
        for name in NODES:
            found[name] = self._made(name, name, ["chappe.node", f"{name}.toml"])
        found[ARCHIVE] = self._made(ARCHIVE, ARCHIVE, ["chappe.archive", "archive.toml"])
        for client in CLIENTS:
            command = ["bench.history.client", f"{client.name}.json"]
            found[client.name] = self._made(client.name, client.space, command)
        return found

    def _made(self, name: str, space: str, command: list[str]) -> Killed:
        before = self.network.command(space) if space else []
        environment = {}
        if FAKETIME.exists():
            self._clock(name, 0.0)
            environment = {
                "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self._clock_file(name)),
                "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
                "NO_FAKE_STAT": "1",
            }  # fmt: skip
        made = Killed(name, command, "serving", self.folder, before, environment)
        made.log = self.folder / f"{name}.log"
        return made

    def _clock_file(self, name: str) -> Path:
        return self.folder / f"{name}.clock"

    def _clock(self, name: str, jump_s: float) -> None:
        """What libfaketime adds to the time of that process."""
        made = self._clock_file(name).with_suffix(".new")
        made.write_text(f"{jump_s:+g}\n")
        made.replace(self._clock_file(name))

    @property
    def targets(self) -> Targets:
        """What can be done on this machine."""
        servers = [*NODES, ARCHIVE, *BROKERS]
        clients = [client.name for client in CLIENTS]
        pairs = [f"{one}-{other}" for one, other in LINKS]
        pairs += [f"{client.space}-{name}" for client in CLIENTS for name in client.nodes]
        pairs += [f"{ARCHIVE}-n3", f"{ARCHIVE}-n5"]
        parted = not self.network.obstacle
        return Targets(
            cut=pairs if parted else (),
            isolate=[*NODES, ARCHIVE] if parted else (),
            split=["n1", "n4", "n5", "n1+n2", "n4+n5", "n1+n5"] if parted else (),
            pause=[*servers, *clients],
            kill=servers,
            blackout=["n1+n2", "n3+kept", "n4+n5", "cloud-1+cloud-2", "n3+n5+kept", "n1+n3+n5", "+".join(NODES)],
            clock=[*servers, *clients] if FAKETIME.exists() else (),
            disk=[ARCHIVE] if self._mounted else (),
        )

    async def _start(self) -> None:
        (self.site.disk / "history").mkdir(exist_ok=True)
        await asyncio.gather(*(self.processes[name].start() for name in BROKERS))
        await asyncio.gather(*(self.processes[name].start() for name in NODES))
        async with asyncio.timeout(READY_S):
            while missing := await self._missing():
                self.report(0.0, f"waiting: {missing}")
                await asyncio.sleep(0.3)
        await self.processes[ARCHIVE].start()
        clients = {client.name: self.processes[client.name] for client in CLIENTS}
        await clients["v1"].start()
        await asyncio.gather(*(process.start() for name, process in clients.items() if name != "v1"))
        await asyncio.sleep(WARM_S)

    async def _missing(self) -> str:
        """Of the cloud, by the broker that leads; empty if nothing is."""
        try:
            rows = [row for what in ("routers", "channels") for row in await self._ask_broker(what)]
        except (ChappeError, TimeoutError) as error:
            return str(error)
        return next((str(row) for row in rows if not row["up"]), "")

    async def _look_after(self) -> None:
        """Start again what has ended by itself, as a supervisor would; it is in the report."""
        while True:
            for process in self.processes.values():
                with contextlib.suppress(ChappeError):
                    await process.look()
            await asyncio.sleep(LOOK_S)

    # faults

    async def _inflict(self, steps: Iterable[Step]) -> None:
        """All steps at their time, each for as long as it lasts."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(self._step(step, began))
            while (over := loop.time() - began) < self.seconds:
                self.report(over, self.done[-1] if self.done else "")
                await asyncio.sleep(min(0.2, self.seconds - over))

    async def _step(self, step: Step, began: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, began + step.at_s - loop.time()))
        self.done.append(str(step))
        from_ns = time.monotonic_ns()
        match step.kind:
            case "cut":
                await self._cut([step.pair], step)
            case "isolate":
                others = [*(name for name in SPACES if name != step.subject), "hub"]
                await self._cut([(step.subject, other) for other in others], step)
            case "split":
                inside = set(step.names)
                await self._cut([link for link in LINKS if len(inside & set(link)) == 1], step)
            case "blackout":
                await asyncio.gather(*(self._kill(name, step.lasts_s) for name in step.names))
            case "pause":
                self.processes[step.subject].send(signal.SIGSTOP)
                await asyncio.sleep(step.lasts_s)
                self.processes[step.subject].send(signal.SIGCONT)
            case "kill":
                await self._kill(step.subject, step.lasts_s)
            case "clock":
                self._clock(step.subject, step.jump_s)
                await asyncio.sleep(step.lasts_s)
                self._clock(step.subject, 0.0)
            case "disk":
                await asyncio.to_thread(_fill, self.site.disk)
                await asyncio.sleep(step.lasts_s)
                (self.site.disk / "ballast").unlink()
        if step.kind not in CUTS:
            kind = "kill" if step.kind == "blackout" else step.kind
            self.faults.append(Fault(kind, step.names, from_ns, time.monotonic_ns()))

    async def _cut(self, pairs: list[tuple[str, str]], step: Step) -> None:
        from_ns = time.monotonic_ns()
        for one, other in pairs:
            await asyncio.to_thread(self.network.cut, one, other, step.both)
        await asyncio.sleep(step.lasts_s)
        for one, other in pairs:
            await asyncio.to_thread(self.network.mend, one, other, step.both)
        self.faults += [Fault("cut", pair, from_ns, time.monotonic_ns()) for pair in pairs]

    async def _kill(self, name: str, down_s: float) -> None:
        process = self.processes[name]
        with contextlib.suppress(ChappeError):  # it has just ended by itself, which is in the report
            await process.kill()
        await asyncio.sleep(down_s)
        for attempt in range(STARTS):  # as a supervisor would
            try:
                await process.start()
                return
            except ChappeError as error:
                self.ends.append(f"{name} did not start: {error}")
                if attempt == STARTS - 1:
                    raise

    # the end

    async def _come_to_rest(self) -> History:
        """Everybody finishes what it has begun; then nothing happens for a while, and all states are read."""
        self.report(self.seconds, "coming to rest")
        clients = [self.processes[client.name] for client in CLIENTS]
        for process in clients:
            process.send(signal.SIGUSR1)
        async with asyncio.timeout(ANSWERS_S):
            await asyncio.gather(*(process.said("done") for process in clients))
        await asyncio.sleep(REST_S)
        modes, tables = await self._states()
        ended_ns = time.monotonic_ns()
        await asyncio.gather(*(process.end() for process in clients))
        await self.processes[ARCHIVE].end()
        history = self._history(ended_ns)
        history.modes, history.tables = modes, tables
        return history

    async def _states(self) -> tuple[dict[str, int], list[str]]:
        """Modes and tables, of the broker and of every node."""
        async with asyncio.timeout(READY_S):
            while await self._missing():  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.3)
        modes = {"broker": int((await self._ask_broker("modes"))[0]["mode"])}
        paths: dict[str, list[dict[str, Any]]] = {}
        for name in NODES:
            async with self._connect(self.site.urls[name]) as client:
                modes[name] = client.mode
                paths[name] = [row for row in await client.list("paths", 100_000) if "/" not in row["publisher"]]
        return modes, differences(await self._ask_broker("paths"), paths)

    def _connect(self, url: str) -> Any:
        return connect(url, name="checker", tls=self.site.tls("checker"), timeout_s=10.0)

    async def _ask_broker(self, what: str) -> list[dict[str, Any]]:
        """Rows of the broker that leads."""
        problem: Exception = ChappeError("no broker")
        for url in self.site.brokers.values():
            try:
                client: Client
                async with self._connect(url) as client:
                    return await client.list(what, 100_000)
            except ChappeError as error:
                problem = error
        raise problem

    def _history(self, ended_ns: int) -> History:
        site = self.site
        history = History(self.began_ns, ended_ns, LINKS, tuple(self.faults))
        publishers, subscribers = {}, {}
        for client in CLIENTS:
            own = list(lines(site.history(client.name)))
            match client.does:
                case "publish":
                    publishers[client.name] = Publisher(connections(own, ended_ns), *publications(client.name, own))
                case "subscribe":
                    subscribers[client.name] = Subscriber(connections(own, ended_ns), receipts(own))
                case "operate":
                    history.mode_changes, history.mode_reads = mode_operations(own)
                case "watch":
                    history.watched = [Watched(client.name, *values) for _, what, *values in own if what == "watched"]
        history.publishers, history.subscribers = publishers, subscribers
        history.archived = self._archived()
        return history

    def _archived(self) -> list[Event]:
        """Every event of the archive, segments and log."""
        reader = Reader(Segments(str(self.site.disk / "history"), ARCHIVE), self.site.disk / "log")
        rows = reader.read("events", reader.begin("events"), reader.end("events"), ("topic", "body"))
        return [
            event_of(body)
            for batch in rows
            for topic, body in zip(batch.column("topic").to_pylist(), batch.column("body").to_pylist(), strict=True)
            if topic.startswith("history/")
        ]


def _mount(folder: Path) -> bool:
    """A small file system that can be filled; False where that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={DISK_BYTES}".encode()
    return os.geteuid() == 0 and not libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options)


def _unmount(folder: Path) -> None:
    ctypes.CDLL(None).umount2(os.fsencode(folder), 2)  # MNT_DETACH


def _fill(folder: Path) -> None:
    """Until nothing fits any more."""
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
