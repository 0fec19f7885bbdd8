"""The tables that jobs write: folders of Parquet that every reader sees whole, whatever happens meanwhile.

A table is a link to a folder of batches. A batch appears by one rename; a table that is replaced or joined into fewer
files is made anew beside the old one, and the link is turned. The folder before the last stays for who still reads it.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from chappe.disk import sync
from chappe.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BATCH = "batch="
_DATA = ".data"
_KEPT = 2  # folders of a table, the one in use among them


class Tables:
    """Tables below a folder that driver and executors share."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def path(self, name: str) -> Path:
        """Where any reader of Parquet finds a table."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"table {name!r}: a name has small letters, digits and '_', and begins with a letter")
        return self.root / name

    def names(self) -> list[str]:
        """The tables there are."""
        return sorted(each.name for each in self.root.glob("*") if each.is_symlink()) if self.root.is_dir() else []

    def exists(self, name: str) -> bool:
        return any(self._batches(self.path(name)))

    def last_batch(self, name: str) -> int:
        """The number of the newest batch; -1 for a table without any."""
        return max((int(each.name.removeprefix(_BATCH)) for each in self._batches(self.path(name))), default=-1)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """The whole table; ConfigError if there is none."""
        found = [str(each) for each in self._batches(self.path(name).resolve())]
        if not found:
            raise ConfigError(f"no table {name!r} in {self.root}; there are: {', '.join(self.names()) or 'none'}")
        return spark.read.parquet(*found)

    def append(self, name: str, batch: int, rows: DataFrame) -> bool:
        """Add a batch, unless it is there already: a batch that is repeated after a crash changes nothing."""
        if batch <= self.last_batch(name):
            return False
        folder = self.path(name).resolve() if self.path(name).is_symlink() else self._turn(name, self._fresh(name))
        self._write(folder, batch, rows)
        return True

    def replace(self, name: str, rows: DataFrame, batch: int = 0) -> None:
        """Make the table anew of these rows, which may come from its old content."""
        fresh = self._fresh(name)
        self._write(fresh, batch, rows)
        self._turn(name, fresh)

    def compact(self, spark: SparkSession, name: str, files: int = 1) -> None:
        """Join all batches into one under the number of the newest."""
        batch = self.last_batch(name)
        if batch >= 0:
            self.replace(name, self.read(spark, name).coalesce(files), batch)

    def _batches(self, folder: Path) -> list[Path]:
        return sorted(folder.glob(f"{_BATCH}*")) if folder.is_dir() else []

    def _fresh(self, name: str) -> Path:
        folder = self.root / _DATA / name / uuid.uuid4().hex
        folder.mkdir(parents=True)
        return folder

    def _write(self, folder: Path, batch: int, rows: DataFrame) -> None:
        hidden = folder / f".{uuid.uuid4().hex}"
        rows.write.parquet(str(hidden))
        for file in hidden.iterdir():
            if file.suffix == ".parquet":
                sync(file)
        sync(hidden)
        hidden.rename(folder / f"{_BATCH}{batch:012d}")
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
