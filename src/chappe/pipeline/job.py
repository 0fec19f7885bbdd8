"""What a job is: tables in, tables out, and what it declares about itself so that it can be listed, run and checked.

The fields of a job's dataclass are its parameters, each with a default and a `help` in its metadata (see `parameter`).
A job knows no clock and no folder: time and DataFrames come in, DataFrames go out, and `chappe.pipeline.runner` does
the rest.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from chappe.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from chappe.pipeline.rowfiles import RowFile

Frames = Mapping[str, "DataFrame"]
Room = Callable[[str], "Path"]  # an empty folder for rows of a table that nobody else sees before they are all there
RAW = "raw/"  # before the name of a dataset: its rows in the archive as they came; ingest reads them, nobody else


class Publish(StrEnum):
    """How the rows of a table go back into the mesh, besides being stored."""

    NO = "no"
    EVENTS = "events"  # columns `topic` and `body`
    VARIABLES = "variables"  # columns `name`, `value` and `created_ns`


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a job writes; `keys` name a row: no two rows of a whole table have the same."""

    schema: pa.Schema
    keys: tuple[str, ...] = ()
    publish: Publish = Publish.NO


def parameter(default: Any, explained: str) -> Any:
    """A field of a job that a user may set."""
    return field(default=default, metadata={"help": explained})


@dataclass(frozen=True)
class Job(ABC):
    """One job. Subclasses are frozen dataclasses whose fields are its parameters."""

    id: ClassVar[str]  # SJ-01, SJ-02, ...
    name: ClassVar[str]  # what `chappe pipeline run` calls it
    line: ClassVar[str]  # what it does, in one line
    reads: ClassVar[tuple[str, ...]]  # tables: the datasets of the archive after ingest, or what other jobs write
    writes: ClassVar[Mapping[str, Table]]
    every_s: ClassVar[float] = 60.0  # how often a job that does not stream is repeated in continuous mode

    @abstractmethod
    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """The whole of its tables from the whole of its inputs. A table that is not there yet comes as an empty one."""


@dataclass(frozen=True)
class FileJob(Job):
    """A job whose tasks can read the files of its inputs themselves, for less than Spark's rows cost."""

    @abstractmethod
    def run_files(
        self, spark: SparkSession, files: Mapping[str, Sequence[str]], room: Room, now_ns: int
    ) -> Mapping[str, DataFrame | Path]:
        """The same as `run`, from the files of inputs that are all there: to be computed, or in a room."""


@dataclass(frozen=True)
class StreamJob(Job):
    """A job that can also go on with new rows alone."""

    @abstractmethod
    def stream(self, inputs: Frames) -> Frames:
        """Streaming DataFrames to append to its tables, from streaming inputs."""


class Desk(Protocol):
    """What a job that takes batch after batch may use."""

    def raw(self, rows: DataFrame) -> list[RowFile]:
        """The rows of the batch as files: closed segments as they are, what else there is written down."""

    def written(self, table: str) -> list[RowFile]:
        """What the batches of this input before this one have added to a table."""

    def room(self, table: str) -> Path:
        """An empty folder that nobody else sees; returned as the rows of a table, it becomes a batch of it."""


@dataclass(frozen=True)
class StepJob(Job):
    """A job that takes the new rows of each input batch by batch, each once, and may look at what it wrote before."""

    @abstractmethod
    def step(self, name: str, rows: DataFrame, desk: Desk) -> Mapping[str, DataFrame | Path]:
        """Rows to append to its tables, from new rows of one input: to be computed, or in a room of the desk."""


class Went(NamedTuple):
    """What came of one key: rows for the table, what is known of it from now on, and when to look at it again."""

    rows: list[dict[str, Any]]
    known: str
    due_ns: int | None = None


Key = tuple[str, ...]
# Rows of a key, none if it is looked at because that is due; what was known of it, or nothing; the time, if it is due.
Going = Callable[["pa.Table | None", str, int], Went]


@dataclass(frozen=True)
class KeyedJob(Job):
    """A job that goes on with the new rows of each key of one table, and with what it knows of that key."""

    keys: ClassVar[tuple[str, ...]]
    columns: ClassVar[tuple[str, ...]]  # that it looks at, the keys among them

    few: int = parameter(20_000, "so many new rows are taken by the driver itself, without a task of Spark")

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Of these columns."""

    @abstractmethod
    def going(self) -> Going:
        """What is done with the rows of one key, here or in a task of Spark."""


def parameters(job: type[Job]) -> dict[str, tuple[Any, str]]:
    """The default and the explanation of each parameter."""
    return {each.name: (each.default, each.metadata.get("help", "")) for each in dataclasses.fields(job)}


def configured(job: type[Job], settings: Mapping[str, str | int | float | bool]) -> Job:
    """A job with some parameters set, from text or from TOML; ConfigError says what there is."""
    known = parameters(job)
    values: dict[str, Any] = {}
    for name, given in settings.items():
        if name not in known:
            there = ", ".join(known) or "none"
            raise ConfigError(f"job {job.name}: no parameter {name!r}; there are: {there}")
        values[name] = _as(job, name, given, known[name][0])
    return job(**values)


def _as(job: type[Job], name: str, given: Any, default: Any) -> Any:
    wanted = type(default)
    try:
        if wanted is bool and isinstance(given, str):
            return {"true": True, "false": False}[given.lower()]
        if wanted is int and isinstance(given, float) and not given.is_integer():
            raise ValueError
        if wanted in (int, float, str) and not isinstance(given, bool):
            return wanted(given)
    except (ValueError, KeyError):
        pass
    else:
        if type(given) is wanted:  # True is no number
            return given
    raise ConfigError(f"job {job.name}: {name} = {given!r} must be {wanted.__name__}, like {default!r}")
