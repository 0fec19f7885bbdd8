"""A database in one file, as stores use it: made and checked, one sync for each commit, its errors explained."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chappe.errors import StoreError

BUSY_S = 5.0  # how long another process may hold the file


@dataclass(frozen=True, slots=True)
class Layout:
    """What a store keeps in its file."""

    application: int  # in the header of the file
    version: int
    statements: Sequence[str]
    foreign: str  # what a file is that is of something else

    def make(self, database: sqlite3.Connection) -> None:
        """Make the tables, within a transaction."""
        for statement in self.statements:
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {self.application}")
        database.execute(f"PRAGMA user_version = {self.version}")


class SqliteFile:
    """Write-ahead log with a sync for each commit; others may read while one process writes."""

    def __init__(self, path: str | Path, layout: Layout) -> None:
        self.path = Path(path)
        self._layout = layout
        problem = _unusable(self.path)
        if problem:
            raise StoreError(f"store {path}: {problem}")
        with self.explained():
            self.database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self.explained():
                self._prepare()
        except BaseException:
            self.database.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.explained():
            self.database.execute("BEGIN IMMEDIATE")
            try:
                yield self.database
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of SQLite say which file, and what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"store {self.path}: {_remedy(error)}") from error

    def close(self) -> None:
        self.database.close()

    def _prepare(self) -> None:
        fresh = self._is_empty()  # before anything is changed in a file that is not ours
        _follow_log(self.database, self.path)
        self.database.execute("PRAGMA synchronous = FULL")
        if not fresh:
            return  # a reader need not wait for whoever writes
        with self.transaction() as database:
            if self._is_empty():
                self._layout.make(database)

    def _is_empty(self) -> bool:
        """Whether the tables are to be made; StoreError if the file is of something else."""
        run, layout = self.database.execute, self._layout
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application == version == 0 and run("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return True
        if application != layout.application:
            raise StoreError(f"store {self.path}: {layout.foreign}; give another path")
        if version != layout.version:
            raise StoreError(f"store {self.path}: has format {version}, this program uses {layout.version}")
        return False


def _follow_log(database: sqlite3.Connection, path: Path) -> None:
    """Turn on the write-ahead log; SQLite does not wait by itself for another process that does the same."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StoreError(f"store {path}: its file system has no write-ahead log; use a local disk")
        return


def _unusable(path: Path) -> str:
    if path.is_dir():
        return "is a folder; give the path of a file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}; create it"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return "may not be read and written by this user; change its permissions"
    if not os.access(path.parent, os.W_OK):
        return f"this user may not write in {path.parent}; change its permissions"
    return ""


def _remedy(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text:
        return f"another process has held it for {BUSY_S:g} s; end that process"
    if "not a database" in text:
        return "is not a SQLite file; give another path"
    if "unable to open" in text:
        return "cannot be opened by this user; change its permissions or give another path"
    if "full" in text:
        return "the disk is full; make room"
    return text
