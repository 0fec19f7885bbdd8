"""Runs jobs: those that stream go on with new rows, others are computed anew; what fails is named, the rest goes on.

Every stream has a checkpoint below the work folder, every table is written by batches that appear whole and once, so a
pipeline that is killed anywhere goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from chappe.archive.schema import schema_of
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline import catalogue, joining
from chappe.pipeline.batches import Appended, Stepped, Telling, empty
from chappe.pipeline.job import RAW, FileJob, Job, KeyedJob, StepJob, StreamJob, Table
from chappe.pipeline.keyed import Keyed
from chappe.pipeline.near import Near
from chappe.pipeline.outbox import SCHEMAS
from chappe.pipeline.source import Archive, Options
from chappe.pipeline.spark import remote
from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINTS = "checkpoints"
LOOK_S = 0.2
FOLLOW_S = 0.1  # how often jobs that go on by key look for new rows: a look costs next to nothing
JOIN_S = 20.0  # how often small batches are joined
ATTEMPTS = 5
AT_ONCE = 3  # tables of a job that are computed at the same time
BEGIN_S = 30.0  # for a stream to find out what there is to read

GOING_ON = (StreamJob, StepJob, KeyedJob)  # with new rows alone

Start = Callable[[bool], "StreamingQuery"]  # True: only what is there now
Running = dict["StreamingQuery", tuple[Job, Start]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline reads and writes."""

    work: Path
    archive: str = ""
    log: str = ""
    source: str = ""
    node: str = ""
    max_rows: int = 32_000_000  # of one batch: tasks hold one row group each, whatever it is
    trigger_s: float = 0.5  # how often streams look for new rows in continuous mode

    @property
    def tables(self) -> Tables:
        return Tables(self.work)


@dataclass(frozen=True, slots=True)
class Told:
    """What a job does at the moment, for people."""

    job: str
    state: str  # runs, done, failed, waits
    rows: int = 0
    reason: str = ""


@dataclass
class Runner:
    """Runs jobs over one place; `told` hears what they do."""

    spark: SparkSession
    place: Place
    jobs: Sequence[Job]
    told: Callable[[Told], None] = lambda told: None
    clock_ns: Callable[[], int] = time.time_ns
    failures: dict[str, str] = field(default_factory=dict)  # by job

    def __post_init__(self) -> None:
        self.jobs = catalogue.in_order(self.jobs)
        self._tables = self.place.tables
        self._telling = Telling(self.place.work, self.place.node)
        for job in self.jobs:
            for name in job.reads:
                self._check(job, name)

    # --- once

    def once(self, stop: Event | None = None) -> bool:
        """Every job in order, each over all that is there now; whether all went well. `stop` ends it before."""
        stop = stop or Event()
        with self._tables.owned():
            self._tables.unstage()
            self._join()
            for job in self.jobs:
                if not stop.is_set():
                    self._guarded(job, partial(self._at_once, stop))
        return not self.failures

    def _at_once(self, stop: Event, job: Job) -> int:
        if isinstance(job, KeyedJob):
            return self._keyed_once(stop, job)
        return self._streams_once(stop, job) if _streams(job) else self._whole(job)

    def _keyed_once(self, stop: Event, job: KeyedJob) -> int:
        keyed, rows = self._keyed(job), 0
        keyed.stop_at_end()
        while not stop.is_set() and (taken := _stepped(keyed)) is not None:
            rows += taken
            self.told(Told(job.name, "runs", rows))
        return rows

    def _streams_once(self, stop: Event, job: Job) -> int:
        """All streams of a job at once, each to the end of what is there."""
        starts = self._queries(job, once=True)
        queries: list[StreamingQuery] = []
        try:
            queries.extend(_tried(start, once=True) for start in starts)
            for place, start in enumerate(starts):
                for attempt in range(ATTEMPTS):
                    try:
                        while not queries[place].awaitTermination(1) and not stop.is_set():
                            self.told(Told(job.name, "runs", _rows(queries)))
                        break
                    except StreamingQueryException as error:
                        if attempt == ATTEMPTS - 1 or not passing(str(error)):
                            raise
                        queries[place] = _tried(start, once=True)
            return _rows(queries)  # a Connect server forgets what a stream did that is stopped
        finally:
            for query in queries:
                query.stop()

    def _whole(self, job: Job) -> int:
        """Compute a job's tables anew; rows that are for the mesh and were not there before are told."""
        files = {name: [str(file) for file in self._tables.files(name)] for name in job.reads if RAW not in name}
        if isinstance(job, FileJob) and all(files.values()):
            with self._tables.rooms() as room:
                return self._replaced(job, job.run_files(self.spark, files, room, self.clock_ns()))
        return self._replaced(job, job.run({name: self._read(name) for name in job.reads}, self.clock_ns()))

    def _replaced(self, job: Job, made: Mapping[str, DataFrame | Path]) -> int:
        told = {name: spec for name, spec in job.writes.items() if self._telling.wanted(spec)}
        # Several at once: while one is planned, another is computed.
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="table") as threads:
            replaced = threads.map(lambda name: self._tables.replace(name, made[name]), job.writes.keys() - told)
            list(replaced)  # raises what went wrong
        for name, spec in told.items():
            rows = made[name]
            frame = self.spark.read.parquet(str(rows)) if isinstance(rows, Path) else rows
            self._tell_new(name, spec, self._tables.last_batch(name) + 1, frame)
        return sum(self._tables.count(name) for name in job.writes)

    def _tell_new(self, name: str, spec: Table, batch: int, made: DataFrame) -> None:
        """Replace a table and tell what is new in it: kept on disk before, so that a crash in between loses nothing."""
        outbox = self._telling.outbox(name, spec)
        outbox.finish(batch - 1)
        made = made.persist()
        try:
            known = self._tables.exists(name)
            new = _new(made, self._tables.read(self.spark, name), spec) if known else made
            outbox.prepare(batch, new.toArrow())
            self._tables.replace(name, made, batch)
            outbox.finish(batch)
        finally:
            made.unpersist()

    # --- continuously

    def continuous(self, stop: Event) -> bool:
        """Streams go on, the others are repeated, until `stop` is set; whether all went well.

        A job that goes on by itself is told to wait for rows once it, and those whose tables it reads, have begun.
        """
        with self._tables.owned():
            self._tables.unstage()
            running: Running = {}
            following: dict[Job, Follower] = {}
            for job in self.jobs:
                if isinstance(job, KeyedJob):
                    self._guarded(job, lambda each: self._start_following(each, following), "begins")
                elif _streams(job):
                    self._guarded(job, lambda each: self._start(each, running), "begins")
            join_at = time.monotonic() + JOIN_S
            due = {job: 0.0 for job in self.jobs if not _streams(job)}
            ready: set[Job] = set()
            try:
                while not stop.wait(LOOK_S) and (running or following or due):
                    self._look(running)
                    self._look_after(following)
                    self._tell_ready(ready, running, following)
                    for job, at in due.items():
                        if time.monotonic() >= at and not stop.is_set():
                            self._guarded(job, self._whole)
                            due[job] = time.monotonic() + job.every_s
                    if time.monotonic() >= join_at:
                        self._join()
                        join_at = time.monotonic() + JOIN_S
            finally:
                for follower in following.values():
                    follower.stop()
                for query in running:
                    query.stop()
        return not self.failures

    def _start(self, job: Job, running: Running) -> int:
        for start in self._queries(job):
            running[_begun(start)] = (job, start)
        return 0

    def _start_following(self, job: Job, following: dict[Job, Follower]) -> int:
        assert isinstance(job, KeyedJob)
        following[job] = Follower(self._keyed(job))
        return 0

    def _look(self, running: Running) -> None:
        for query, (job, _) in list(running.items()):
            if not query.isActive:
                reason = str(query.exception() or "the query has ended")
                start = running.pop(query)[1]
                if passing(reason):
                    running[_begun(start)] = (job, start)
                else:
                    self._failed(job, reason)
            elif (progress := query.lastProgress) is not None:
                self.told(Told(job.name, "runs", _taken(progress)))

    def _look_after(self, following: dict[Job, Follower]) -> None:
        for job, follower in list(following.items()):
            if follower.error is not None:
                del following[job]
                self._failed(job, str(follower.error))
            elif follower.rows is not None:
                self.told(Told(job.name, "runs", follower.rows))

    def _tell_ready(self, ready: set[Job], running: Running, following: Mapping[Job, Follower]) -> None:
        """Who has been through a first batch, or found that there is none, waits for rows, and can be counted on."""
        busy = {job for query, (job, _) in running.items() if query.lastProgress is None}
        busy |= {job for job, follower in following.items() if follower.rows is None}
        for job in self.jobs:  # those it reads from come before it
            earlier = {each for each in self.jobs if each is not job and set(each.writes) & set(job.reads)}
            waits = job not in busy and all(each in ready or not _streams(each) for each in earlier)
            if _streams(job) and job not in ready and job.name not in self.failures and waits:
                ready.add(job)
                self.told(Told(job.name, "waits"))

    def _join(self) -> None:
        """Make one of many small batches of tables that streams add to."""
        folders = self.place.work / CHECKPOINTS
        for name in [name for job in self.jobs if _streams(job) for name in job.writes]:
            follow = [job.name for job in map(catalogue.Entry.load, catalogue.ENTRIES.values()) if name in job.reads]
            followers = [each for job in follow for each in (folders / job).glob("*")]
            try:
                joining.join(self.spark, self._tables, name, followers)
            except (ChappeError, OSError, PySparkException) as error:
                self.told(Told(name, "not joined", reason=brief(str(error))))

    # --- inputs and outputs

    def _queries(self, job: Job, once: bool = False) -> list[Start]:
        """How each stream of a job is started; `once`: without those whose input was always empty."""
        if isinstance(job, StepJob):
            return [self._stepping(job, name) for name in job.reads if not once or self._any(name)]
        assert isinstance(job, StreamJob)
        made = job.stream({name: self._follow(name) for name in job.reads})
        return [self._appending(job, name, spec, made[name]) for name, spec in job.writes.items() if name in made]

    def _keyed(self, job: KeyedJob) -> Keyed:
        (table,) = job.writes
        self._has_checkpoint(job, table, self._tables.last_batch(table))
        folder = self._checkpoint(job, table)
        return Keyed(self.spark, self._tables, self._telling, job, folder, self.clock_ns)

    def _stepping(self, job: StepJob, name: str) -> Start:
        part = name.removeprefix(RAW)
        self._has_checkpoint(job, part, max(self._tables.last_batch(table, part) for table in job.writes))
        frame = self._follow(name)
        near = Near(Options.parse(self._options(name)), self._checkpoint(job, part))
        return lambda once: self._begin(job, part, frame, Stepped(self._tables, job, name, near), once)

    def _appending(self, job: Job, name: str, spec: Table, frame: DataFrame) -> Start:
        if self._telling.wanted(spec) and remote(self.spark):  # the server has this package without what is compiled
            raise ConfigError("over Spark Connect no stream can tell its rows to a node: give --master, or no --node")
        self._has_checkpoint(job, name, self._tables.last_batch(name))
        return lambda once: self._begin(job, name, frame, Appended(self._tables, self._telling, name, spec), once)

    def _begin(
        self, job: Job, name: str, frame: DataFrame, each: Callable[[DataFrame, int], None], once: bool
    ) -> StreamingQuery:
        writer = (
            frame.writeStream.queryName(f"{job.name}.{name}")
            .option("checkpointLocation", str(self._checkpoint(job, name)))
            .foreachBatch(each)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self.place.trigger_s * 1000)} milliseconds").start()

    def _checkpoint(self, job: Job, name: str) -> Path:
        return self.place.work.absolute() / CHECKPOINTS / job.name / name

    def _has_checkpoint(self, job: Job, name: str, batch: int) -> None:
        """Batches of a query that begins anew have the numbers of those that are there, and would be passed over."""
        folder = self._checkpoint(job, name)
        if batch >= 0 and not (folder / "offsets").is_dir():
            raise ConfigError(
                f"{folder} is gone and the rows that it counts are there: remove the tables "
                f"{', '.join(job.writes)} in {self._tables.root}, too, to compute them anew"
            )

    def _read(self, name: str) -> DataFrame:
        if name.startswith(RAW):
            return self.spark.read.format("chappe").options(**self._options(name)).load()
        if self._tables.exists(name):
            return self._tables.read(self.spark, name)
        writer = catalogue.writer(name)
        assert writer is not None  # checked when the runner was made
        return empty(self.spark, writer.writes[name])

    def _follow(self, name: str) -> DataFrame:
        """New rows as they come; a table that is always computed anew comes as it is when the stream begins."""
        if name.startswith(RAW):
            return self.spark.readStream.format("chappe").options(**self._options(name)).load()
        writer = catalogue.writer(name)
        if writer is None or not issubclass(writer, GOING_ON):
            return self._read(name)
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(writer.writes[name].schema)
        return (
            self.spark.readStream.format("chappe").schema(schema).option("table", str(self._tables.path(name))).load()
        )

    def _options(self, name: str) -> Mapping[str, str]:
        place = self.place
        given = {
            "path": place.archive, "log": place.log, "source": place.source, "dataset": name.removeprefix(RAW),
            "max_rows": str(place.max_rows),
        }  # fmt: skip
        return {option: value for option, value in given.items() if value}

    def _any(self, name: str) -> bool:
        """Whether an archive ever had a row of a dataset."""
        return any(Archive(Options.parse(self._options(name))).end().values())

    def _check(self, job: Job, name: str) -> None:
        if name.startswith(RAW):
            schema_of(name.removeprefix(RAW))
            if not self.place.archive:
                raise ConfigError(f"job {job.name} reads an archive: say where with --archive")
        elif catalogue.writer(name) is None and not any(name in each.writes for each in self.jobs):
            raise ConfigError(f"job {job.name} reads {name}, and no job writes such a table")

    # --- what went wrong

    def _guarded(self, job: Job, work: Callable[[Job], int], after: str = "done") -> None:
        self.told(Told(job.name, "runs"))
        try:
            rows = work(job)
        except (ChappeError, OSError, PySparkException, ArithmeticError, LookupError, TypeError, ValueError) as error:
            self._failed(job, str(error))
        else:
            self.failures.pop(job.name, None)
            self.told(Told(job.name, after, rows))

    def _failed(self, job: Job, reason: str) -> None:
        text = f"job {job.name} ({', '.join(job.reads)}): {brief(reason)}"
        self.failures[job.name] = text
        self.told(Told(job.name, "failed", reason=text))


def passing(reason: str) -> bool:
    """Whether it can go well the next time.

    Spark gives a Python process ten seconds to begin, which is not enough where the machine is busy; and an archive may
    join the segments that are being read.
    """
    return any(each in reason for each in ("failed to connect back", "FILE_NOT_EXIST", "FileNotFoundError"))


def brief(reason: str) -> str:
    """The line of a Spark error that says what was wrong: of a Python error its last line, else the first."""
    lines = [line.strip() for line in reason.splitlines() if line.strip() and not line.startswith("\tat ")]
    python = [
        line for line in lines if line.startswith(("chappe.", "Exception:", "ValueError", "TypeError", "KeyError"))
    ]
    return (python or lines or ["no reason given"])[-1 if python else 0][:500]


def _streams(job: Job) -> bool:
    return isinstance(job, GOING_ON)


def _rows(queries: Sequence[StreamingQuery]) -> int:
    return sum(_taken(progress) for query in queries for progress in query.recentProgress)


def _taken(progress: StreamingQueryProgress) -> int:
    """Rows of a batch: Spark counts those that it reads itself, the offsets of an archive count all."""
    counted = 0
    for source in progress["sources"]:
        try:
            start, end = (_offsets(source[name]) for name in ("startOffset", "endOffset"))
            if "" not in end:  # it would be a table, whose offsets are batches
                counted += sum(end.values()) - sum(start.get(name, 0) for name in end)
        except (ValueError, TypeError, AttributeError):
            continue
    return max(int(progress.numInputRows), counted)


def _offsets(told: str | None) -> dict[str, int]:
    """Of a source; none before its first batch, which Spark tells in several ways."""
    return json.loads(told) if told and told not in ("None", "null") else {}


def _stepped(keyed: Keyed) -> int | None:
    """A batch, once more where that helps; it is the same then."""
    for attempt in range(ATTEMPTS):
        try:
            return keyed.step()
        except (FileNotFoundError, PySparkException) as error:
            joined = isinstance(error, FileNotFoundError)  # the table, while it was read
            if attempt == ATTEMPTS - 1 or not (joined or passing(str(error))):
                raise
    raise AssertionError


class Follower:
    """A thread in which a job goes on by key until it is stopped, or fails."""

    def __init__(self, keyed: Keyed) -> None:
        self.rows: int | None = None  # of the last batch; none before it has looked for one
        self.error: Exception | None = None
        self._keyed = keyed
        self._over = Event()
        self._thread = Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when the batch that is being taken has ended."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                taken = _stepped(self._keyed)
                if taken is not None or self.rows is None:
                    self.rows = taken or 0
                if taken is None:
                    self._over.wait(FOLLOW_S)
        except Exception as error:  # whatever it is, the runner names it and goes on with the others
            self.error = error


def _tried(start: Start, once: bool) -> StreamingQuery:
    """A stream that is started; a Connect server starts a Python process for it first, which may need another try."""
    for attempt in range(ATTEMPTS):
        try:
            return start(once)
        except PySparkException as error:
            if attempt == ATTEMPTS - 1 or not passing(str(error)):
                raise
    raise AssertionError


def _begun(start: Start) -> StreamingQuery:
    """A stream that has begun: Spark gives the Python process of each 10 s, which several at once may not keep."""
    query = _tried(start, once=False)
    deadline = time.monotonic() + BEGIN_S
    while query.isActive and query.lastProgress is None and time.monotonic() < deadline:
        if query.status["message"].startswith(("Waiting", "Processing")):
            break
        time.sleep(LOOK_S / 4)
    return query


def _new(now: DataFrame, before: DataFrame, spec: Table) -> DataFrame:
    """Rows that were not there before, or would be told otherwise than before."""
    columns = list(dict.fromkeys((*spec.keys, *SCHEMAS[spec.publish].names)))
    known = before.select(*[F.col(name).alias(f"known_{name}") for name in columns])
    return now.join(known, [now[name].eqNullSafe(known[f"known_{name}"]) for name in columns], "left_anti")
