"""The tables that jobs write: folders of Parquet that every reader sees whole, whatever happens meanwhile.

A table is a link to a folder of batches. A batch appears by one rename; a table that is replaced or joined into fewer
files is made anew beside the old one, and the link is turned. The folder before the last stays for who still reads it.
Several streams may add to one table, each with batches of its own: a part of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from chappe.disk import sync
from chappe.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BATCH = "batch="
_PART = "part="
_DATA = ".data"
_KEPT = 2  # folders of a table, the one in use among them
SMALL = 32 << 20  # bytes; larger batches are not joined with others
MANY = 32  # batches of a part that are worth joining


class Tables:
    """Tables below a folder that driver and executors share; one process writes them."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Be the one who writes; ConfigError if another process is."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    f"another pipeline writes tables in {self.root}: stop it, or give --work another folder"
                ) from None
            yield

    def path(self, name: str) -> Path:
        """Where any reader of Parquet finds a table."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"table {name!r}: a name has small letters, digits and '_', and begins with a letter")
        return self.root / name

    def names(self) -> list[str]:
        """The tables there are."""
        return sorted(each.name for each in self.root.glob("*") if each.is_symlink()) if self.root.is_dir() else []

    def exists(self, name: str) -> bool:
        return any(batches(self.path(name)))

    def last_batch(self, name: str, part: str = "") -> int:
        """The number of the newest batch, of a part if there is one; -1 for a table without any."""
        return max((number(each) for each in batches(_inside(self.path(name), part), deep=not part)), default=-1)

    def parts(self, name: str) -> list[str]:
        """The parts of a table; one without a name if it has none."""
        found = sorted(each.name.removeprefix(_PART) for each in self.path(name).glob(f"{_PART}*"))
        return found or ([""] if self.exists(name) else [])

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """The whole table; ConfigError if there is none."""
        found = [str(each) for each in batches(self.path(name).resolve())]
        if not found:
            raise ConfigError(f"no table {name!r} in {self.root}; there are: {', '.join(self.names()) or 'none'}")
        return spark.read.parquet(*found)

    def files(self, name: str) -> list[Path]:
        """The files of the whole table as it is now; none if it is not there."""
        return [file for each in batches(self.path(name).resolve()) for file in sorted(each.glob("*.parquet"))]

    def files_before(self, name: str, batch: int, part: str = "") -> list[Path]:
        """The files that a part had before a batch."""
        found = [each for each in batches(_inside(self.path(name).resolve(), part)) if number(each) < batch]
        return [file for each in found for file in sorted(each.glob("*.parquet"))]

    def count(self, name: str) -> int:
        """How many rows a table has, as the footers of its files say."""
        return sum(pq.read_metadata(file).num_rows for file in self.files(name))

    def read_batch(self, spark: SparkSession, name: str, batch: int, part: str = "") -> DataFrame:
        """The rows of one batch that is there."""
        return spark.read.parquet(str(_inside(self.path(name).resolve(), part) / f"{_BATCH}{batch:012d}"))

    def append(self, name: str, batch: int, rows: DataFrame | pa.Table | Path, part: str = "") -> bool:
        """Add a batch, unless it is there already: a batch that is repeated after a crash changes nothing.

        rows: computed now, or where `stage` has put them or others a `room` was given to.
        """
        if batch <= self.last_batch(name, part):
            return False
        staged = rows if isinstance(rows, Path) else self.stage(name, rows)
        with self._alone(name):
            folder = self.path(name).resolve() if self.path(name).is_symlink() else self._turn(name, self._fresh(name))
            self._put(staged, _inside(folder, part), batch)
        return True

    def stage(self, name: str, rows: DataFrame | pa.Table) -> Path:
        """Compute rows and put them on disk, where nobody sees them yet; `unstage` removes what is not appended."""
        if isinstance(rows, pa.Table):
            folder = self.room(name)
            pq.write_table(rows, folder / "rows.parquet")
            return folder
        folder = self._hidden(name)
        rows.write.parquet(str(folder))
        return folder

    def room(self, name: str) -> Path:
        """An empty folder for rows that others write; nobody sees it before it is appended."""
        folder = self._hidden(name)
        folder.mkdir(parents=True)
        return folder

    def unstage(self) -> None:
        """Remove what was computed and never appended."""
        for folder in (self.root / _DATA).glob(".*"):
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def rooms(self) -> Iterator[Callable[[str], Path]]:
        """Gives rooms; those that have become no part of a table are removed at the end."""
        given: list[Path] = []

        def room(name: str) -> Path:
            given.append(self.room(name))
            return given[-1]

        try:
            yield room
        finally:
            for folder in given:
                shutil.rmtree(folder, ignore_errors=True)

    def replace(self, name: str, rows: DataFrame | Path, batch: int | None = None) -> None:
        """Make the table anew of these rows, which may come from its old content; without a number, as the next batch.

        The folder it was is kept until the one after: who reads it goes on.
        """
        following = self.last_batch(name) + 1 if batch is None else batch
        staged = rows if isinstance(rows, Path) else self.stage(name, rows)
        with self._alone(name):
            fresh = self._fresh(name)
            self._put(staged, fresh, following)
            self._turn(name, fresh)

    def compact(self, spark: SparkSession, name: str, upto: int = 1 << 62, part: str = "") -> bool:
        """Join the small batches up to one into one under the number of the newest, if there are many of them.

        Whoever follows the table must be beyond `upto`: it would see joined rows again.
        """
        old = self.path(name).resolve()
        known = batches(_inside(old, part), deep=not part)
        small = [each for each in known if number(each) <= upto and _size(each) < SMALL]
        if len(small) < MANY:
            return False
        staged = self.stage(name, spark.read.parquet(*[str(each) for each in small]).coalesce(1))
        with self._alone(name):  # what takes time is done: others may add meanwhile
            if self.path(name).resolve() != old:
                shutil.rmtree(staged)
                return False
            fresh = self._fresh(name)
            for each in batches(old):
                if each not in small:
                    shutil.copytree(each, fresh / each.relative_to(old), copy_function=os.link)
            self._put(staged, _inside(fresh, part), number(small[-1]))
            self._turn(name, fresh)
        return True

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """What is added while a table is being joined must not be lost when its link is turned."""
        self.path(name)
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f".{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _fresh(self, name: str) -> Path:
        folder = self.root / _DATA / name / uuid.uuid4().hex
        folder.mkdir(parents=True)
        return folder

    def _hidden(self, name: str) -> Path:
        self.path(name)
        return self.root / _DATA / f".{name}-{uuid.uuid4().hex}"

    def _put(self, staged: Path, folder: Path, batch: int) -> None:
        for file in staged.glob("*.parquet"):
            sync(file)
        sync(staged)
        folder.mkdir(exist_ok=True)
        staged.rename(folder / f"{_BATCH}{batch:012d}")
        sync(folder)

    def _turn(self, name: str, folder: Path) -> Path:
        """Let the table be this folder, and remove those nobody can read any more."""
        table = self.path(name)
        link = self.root / f".{name}.{uuid.uuid4().hex}"
        link.symlink_to(folder.relative_to(self.root))
        link.rename(table)
        sync(self.root)
        by_age = sorted(folder.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns, reverse=True)
        for old in [each for each in by_age if each != folder][_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
        return folder


def batches(folder: Path, deep: bool = True) -> list[Path]:
    """The batches of a table or a part, by their numbers."""
    if not folder.is_dir():
        return []
    found = [*folder.glob(f"{_BATCH}*"), *(folder.glob(f"{_PART}*/{_BATCH}*") if deep else ())]
    return sorted(found, key=lambda each: (number(each), str(each)))


def number(batch: Path) -> int:
    """Of a batch, from its name."""
    return int(batch.name.removeprefix(_BATCH))


def _inside(folder: Path, part: str) -> Path:
    return folder / f"{_PART}{part}" if part else folder


def _size(batch: Path) -> int:
    return sum(each.stat().st_size for each in batch.glob("*.parquet"))
