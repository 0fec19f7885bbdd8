"""Jobs that go on key by key with the new rows of a table, and with what they knew of each key.

Batch follows batch as in a stream of Spark, and a folder notes them in the same way: before a batch begins, which rows
it has and at what time; when it has ended, what is known of every key. A batch that was not ended is repeated with the
same rows and the same time, so a crash changes nothing. Few rows are taken here, without a task of Spark, which would
cost more than all they need; many by Spark, key by key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.disk import sync
from chappe.pipeline.batches import Telling
from chappe.pipeline.following import TableReader
from chappe.pipeline.job import Going, Key, KeyedJob, Went
from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 4  # batches of which notes are kept
_WENT = "known string, due_ns long, rows string"

Offsets = dict[str, int]


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a key, and when it is to be looked at though nothing came."""

    known: str
    due_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """A batch that has begun."""

    end: Offsets
    now_ns: int


class Notes:
    """What is on disk of batches: `offsets/N` when one begins, `commits/N` when it has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ended(self) -> int:
        """The number of the last batch that ended; -1 if none did."""
        return max((int(each.name) for each in (self._folder / "commits").glob("[0-9]*")), default=-1)

    def noted(self, batch: int) -> Noted | None:
        """A batch, if it has begun."""
        try:
            lines = (self._folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        return Noted(json.loads(lines[2]), json.loads(lines[1])["now_ns"])

    def begin(self, batch: int, noted: Noted) -> None:
        lines = ("v1", json.dumps({"now_ns": noted.now_ns}), json.dumps(noted.end))
        self._put("offsets", batch, "\n".join(lines).encode())

    def end(self, batch: int, kept: Mapping[Key, Kept]) -> None:
        """Note what is known now; what came long before is forgotten."""
        self._put("commits", batch, msgspec.json.encode([(key, each) for key, each in kept.items()]))
        for name in ("commits", "offsets"):
            for old in (self._folder / name).glob("[0-9]*"):
                if int(old.name) <= batch - KEPT:
                    old.unlink()

    def kept(self, batch: int) -> dict[Key, Kept]:
        """What was known when a batch had ended."""
        if batch < 0:
            return {}
        content = (self._folder / "commits" / str(batch)).read_bytes()
        return dict(msgspec.json.decode(content, type=list[tuple[Key, Kept]]))

    def _put(self, kind: str, batch: int, content: bytes) -> None:
        """A file that is there whole or not at all."""
        folder = self._folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{batch}"
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(folder / str(batch))
        sync(folder)


class Keyed:
    """One such job, while it runs."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        telling: Telling,
        job: KeyedJob,
        folder: Path,
        clock_ns: Callable[[], int],
    ) -> None:
        self._spark, self._tables, self._job = spark, tables, job
        self._clock_ns = clock_ns
        self._notes = Notes(folder)
        self._going = job.going()
        self._reader = TableReader(str(tables.path(job.reads[0])), from_arrow_schema(job.schema()))
        ((self._table, self._spec),) = job.writes.items()
        # now: it loads the client, for which the first rows should not wait
        self._outbox = telling.outbox(self._table, self._spec) if telling.wanted(self._spec) else None
        self._batch = self._notes.ended()
        self._kept = self._notes.kept(self._batch)
        before = self._notes.noted(self._batch)
        self._reached = self._reader.initialOffset() if before is None else before.end

    def stop_at_end(self) -> None:
        """Take no more than what is there now."""
        self._reader.prepareForTriggerAvailableNow()

    def step(self) -> int | None:
        """Take what is new, or what is due; how many rows that was, None if there is nothing to do."""
        batch = self._batch + 1
        noted = self._notes.noted(batch) or self._begin(batch)
        if noted is None:
            return None
        files = [str(each.value) for each in self._reader.partitions(self._reached, noted.end)]
        count = sum(pq.read_metadata(file).num_rows for file in files)
        went = self._by_spark(files) if count > self._job.few else self._here(files)
        for key, each in self._kept.items():
            if key not in went and each.due_ns is not None and each.due_ns <= noted.now_ns:
                went[key] = self._going(None, each.known, noted.now_ns)
        made = pa.Table.from_pylist([row for each in went.values() for row in each.rows], self._spec.schema)
        self._store(batch, made)
        kept = self._kept | {key: Kept(each.known, each.due_ns) for key, each in went.items()}
        self._notes.end(batch, kept)
        self._batch, self._reached, self._kept = batch, noted.end, kept
        return count

    def _begin(self, batch: int) -> Noted | None:
        now_ns = self._clock_ns()
        end = self._reader.latestOffset(self._reached, self._reader.getDefaultReadLimit())
        due = any(each.due_ns is not None and each.due_ns <= now_ns for each in self._kept.values())
        if end == self._reached and not due:
            return None
        noted = Noted(end, now_ns)
        self._notes.begin(batch, noted)
        return noted

    def _store(self, batch: int, made: pa.Table) -> None:
        """Rows go to the table and to the mesh, each once; the table is there from the first batch on."""
        if made.num_rows or not self._tables.exists(self._table):
            self._tables.append(self._table, batch, made)
        if made.num_rows and self._outbox is not None:
            self._outbox.deliver(batch, made)

    def _here(self, files: list[str]) -> dict[Key, Went]:
        names = list(self._job.columns)
        pieces = [pq.read_table(file, columns=names, partitioning=None) for file in files]
        rows = pa.concat_tables([self._job.schema().empty_table(), *(each.cast(self._job.schema()) for each in pieces)])
        places: dict[Key, list[int]] = {}
        for place, key in enumerate(zip(*(rows.column(name).to_pylist() for name in self._job.keys), strict=True)):
            places.setdefault(key, []).append(place)
        return {key: self._going(rows.take(found), self._known(key), 0) for key, found in places.items()}

    def _by_spark(self, files: list[str]) -> dict[Key, Went]:
        job = self._job
        rows = self._spark.read.schema(from_arrow_schema(job.schema())).parquet(*files)
        known = {key: each.known for key, each in self._kept.items()}
        types = {field.name: field.dataType.simpleString() for field in from_arrow_schema(job.schema())}
        result = ", ".join([*(f"{name} {types[name]}" for name in job.keys), _WENT])
        found = rows.groupBy(*job.keys).applyInArrow(_judging(self._going, known, job.keys), result).toArrow()
        return {
            tuple(row[name] for name in job.keys): Went(msgspec.json.decode(row["rows"]), row["known"], row["due_ns"])
            for row in found.to_pylist()
        }

    def _known(self, key: Key) -> str:
        kept = self._kept.get(key)
        return "" if kept is None else kept.known


def _judging(
    going: Going, known: Mapping[Key, str], keys: tuple[str, ...]
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """What a task does with the rows of one key."""

    def judge(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        values = tuple(each.as_py() for each in key)
        went = going(rows, known.get(values, ""), 0)
        columns = {name: [value] for name, value in zip(keys, values, strict=True)}
        told = msgspec.json.encode(went.rows).decode()
        made = {**columns, "known": [went.known], "due_ns": pa.array([went.due_ns], pa.int64()), "rows": [told]}
        return pa.table(made)

    return judge
