"""Runs jobs: those that stream go on with new rows, others are computed anew; what fails is named, the rest goes on.

Every stream has a checkpoint below the work folder, every table is written by batches that appear whole and once, so a
pipeline that is killed anywhere goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from chappe.archive.schema import schema_of
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline import catalogue, joining
from chappe.pipeline.batches import Appended, Stepped, Telling, empty
from chappe.pipeline.job import RAW, FileJob, Job, StepJob, StreamJob, Table
from chappe.pipeline.near import Near
from chappe.pipeline.outbox import SCHEMAS
from chappe.pipeline.source import Archive, Options
from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINTS = "checkpoints"
LOOK_S = 0.2
JOIN_S = 20.0  # how often small batches are joined
ATTEMPTS = 5
BEGIN_S = 30.0  # for a stream to find out what there is to read

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
    max_rows: int = 8_000_000  # of one batch: tasks hold one row group each, whatever it is
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
                    self._guarded(job, partial(self._streams_once, stop) if _streams(job) else self._whole)
        return not self.failures

    def _streams_once(self, stop: Event, job: Job) -> int:
        """All streams of a job at once, each to the end of what is there."""
        starts = self._queries(job, once=True)
        queries = [start(True) for start in starts]
        try:
            for place, start in enumerate(starts):
                for attempt in range(ATTEMPTS):
                    try:
                        while not queries[place].awaitTermination(1) and not stop.is_set():
                            self.told(Told(job.name, "runs", _rows(queries)))
                        break
                    except StreamingQueryException as error:
                        if attempt == ATTEMPTS - 1 or not passing(str(error)):
                            raise
                        queries[place] = start(True)
        finally:
            for query in queries:
                query.stop()
        return _rows(queries)

    def _whole(self, job: Job) -> int:
        """Compute a job's tables anew; rows that are for the mesh and were not there before are told."""
        files = {name: [str(file) for file in self._tables.files(name)] for name in job.reads if RAW not in name}
        if isinstance(job, FileJob) and all(files.values()):
            made = job.run_files(self.spark, files, self.clock_ns())
        else:
            made = job.run({name: self._read(name) for name in job.reads}, self.clock_ns())
        rows = 0
        for name, spec in job.writes.items():
            batch = self._tables.last_batch(name) + 1
            if self._telling.wanted(spec):
                self._tell_new(name, spec, batch, made[name])
            else:
                self._tables.replace(name, made[name], batch)
            rows += self._tables.count(name)
        return rows

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
        """Streams go on, the others are repeated, until `stop` is set; whether all went well."""
        with self._tables.owned():
            self._tables.unstage()
            running: Running = {}
            for job in self.jobs:
                if _streams(job):
                    self._guarded(job, lambda each: self._start(each, running), "waits")
            join_at = time.monotonic() + JOIN_S
            due = {job: 0.0 for job in self.jobs if not _streams(job)}
            try:
                while not stop.wait(LOOK_S) and (running or due):
                    self._look(running)
                    for job, at in due.items():
                        if time.monotonic() >= at and not stop.is_set():
                            self._guarded(job, self._whole)
                            due[job] = time.monotonic() + job.every_s
                    if time.monotonic() >= join_at:
                        self._join()
                        join_at = time.monotonic() + JOIN_S
            finally:
                for query in running:
                    query.stop()
        return not self.failures

    def _start(self, job: Job, running: Running) -> int:
        for start in self._queries(job):
            running[_begun(start)] = (job, start)
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
                self.told(Told(job.name, "runs", progress["numInputRows"]))

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

    def _stepping(self, job: StepJob, name: str) -> Start:
        part = name.removeprefix(RAW)
        self._has_checkpoint(job, part, max(self._tables.last_batch(table, part) for table in job.writes))
        frame = self._follow(name)
        near = Near(Options.parse(self._options(name)), self._checkpoint(job, part))
        return lambda once: self._begin(job, part, frame, Stepped(self._tables, job, name, near), once)

    def _appending(self, job: Job, name: str, spec: Table, frame: DataFrame) -> Start:
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
        if writer is None or not issubclass(writer, (StreamJob, StepJob)):
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
    return isinstance(job, (StreamJob, StepJob))


def _rows(queries: Sequence[StreamingQuery]) -> int:
    return sum(progress["numInputRows"] for query in queries for progress in query.recentProgress)


def _begun(start: Start) -> StreamingQuery:
    """A stream that has begun: Spark gives the Python process of each 10 s, which several at once may not keep."""
    query = start(False)
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
