"""A store in one file: for a broker of one process, or several on the same machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chappe.errors import StaleEpochError, StoreError
from chappe.store.interface import VERSION, Changed, Item, parted

APPLICATION = 0x43484150  # "CHAP", in the header of the file
BUSY_S = 5.0  # how long another process may hold the file

_SCHEMA = (
    """CREATE TABLE lease (
        role TEXT PRIMARY KEY, holder TEXT NOT NULL, epoch INTEGER NOT NULL,
        expires REAL NOT NULL, length REAL NOT NULL)""",
    """CREATE TABLE item (
        role TEXT, kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (role, kind, key)) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


class SqliteStore:
    """Write-ahead log with a sync for each commit. Leases run by `clock`, which all processes of a machine share."""

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(path)
        self._clock = clock
        problem = _unusable(self._path)
        if problem:
            raise StoreError(f"store {path}: {problem}")
        with self._explained():
            self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def acquire(self, role: str, holder: str, lease_s: float) -> int | None:
        with self._transaction() as run:
            now = self._clock()
            row = run("SELECT holder, epoch, expires, length FROM lease WHERE role = ?", (role,)).fetchone()
            if row is None:
                run("INSERT INTO lease VALUES (?, ?, 1, ?, ?)", (role, holder, now + lease_s, lease_s))
                return 1
            before, epoch, expires, length = row
            # One that ends later than it could have begun now is from before the machine was started anew.
            held = now < expires <= now + length
            if held and before not in ("", holder):
                return None
            changed = (holder, epoch + 1, now + lease_s, lease_s, role)
            run("UPDATE lease SET holder = ?, epoch = ?, expires = ?, length = ? WHERE role = ?", changed)
            return int(epoch) + 1

    def renew(self, role: str, holder: str, epoch: int, lease_s: float) -> bool:
        with self._transaction() as run:
            ours = (self._clock() + lease_s, lease_s, role, holder, epoch)
            sql = "UPDATE lease SET expires = ?, length = ? WHERE role = ? AND holder = ? AND epoch = ?"
            return run(sql, ours).rowcount == 1

    def give_up(self, role: str, holder: str, epoch: int) -> None:
        with self._transaction() as run:
            sql = "UPDATE lease SET holder = '', expires = 0 WHERE role = ? AND holder = ? AND epoch = ?"
            run(sql, (role, holder, epoch))

    def load(self, role: str) -> list[Item]:
        with self._explained():
            sql = "SELECT kind, key, value FROM item WHERE role = ? ORDER BY kind, key"
            return self._database.execute(sql, (role,)).fetchall()

    def commit(self, role: str, epoch: int, changes: Sequence[Changed]) -> None:
        written, removed = parted(changes)
        with self._transaction() as run:
            row = run("SELECT epoch FROM lease WHERE role = ? AND holder <> ''", (role,)).fetchone()
            if row != (epoch,):
                raise StaleEpochError(role, epoch)
            self._database.executemany(
                "INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?)", [(role, *item) for item in written]
            )
            drop = "DELETE FROM item WHERE role = ? AND kind = ? AND key = ?"
            self._database.executemany(drop, [(role, *name) for name in removed])

    def close(self) -> None:
        self._database.close()

    def _prepare(self) -> None:
        self._is_empty()  # before anything is changed in a file that is not ours
        follow_log(self._database, self._path)
        self._database.execute("PRAGMA synchronous = FULL")
        with self._transaction() as run:
            if self._is_empty():
                for statement in _SCHEMA:
                    run(statement)

    def _is_empty(self) -> bool:
        """Whether the tables are to be made; StoreError if the file is of something else."""
        run = self._database.execute
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application == version == 0 and run("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return True
        if application != APPLICATION:
            raise StoreError(f"store {self._path}: is a database of another program; give another path")
        if version != VERSION:
            raise StoreError(f"store {self._path}: has format {version}, this program uses {VERSION}")
        return False

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        with self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database.execute
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"store {self._path}: {_remedy(error)}") from error


def follow_log(database: sqlite3.Connection, path: Path) -> None:
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
