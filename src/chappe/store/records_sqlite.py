"""Tables of measurements in one SQLite file: rows of a link lie together, in the order of time."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chappe.errors import StoreError
from chappe.store.records import COMMON_TABLES, RECORD_TABLE, TABLES_VERSION, Row
from chappe.store.sqlite import BUSY_S, _remedy, _unusable, follow_log

APPLICATION = 0x43484147  # "CHAG", in the header of the file
SELECT_S = 30.0  # longest statement of a user
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_SCHEMA = (
    f"{RECORD_TABLE} WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS perf_record_stamp ON perf_record (stamp_ns)",
    *COMMON_TABLES,
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {TABLES_VERSION}",
)


class SqliteRecords:
    """Write-ahead log with a sync for each commit; others may read while one process writes."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
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

    def query(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        with self._explained():
            return self._database.execute(sql, dict(values)).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        with self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield _Transaction(self._database)
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def prepare_days(self, days: Iterable[int]) -> None:
        """One table holds all days here."""

    def drop_before(self, stamp_ns: int) -> int:
        with self.transaction() as transaction:
            return transaction.run("DELETE FROM perf_record WHERE stamp_ns < :stamp", {"stamp": stamp_ns})

    def select(self, sql: str, limit: int) -> tuple[list[str], list[Row]]:
        address = f"file:{_escaped(self._path)}?mode=ro"
        with self._explained(), contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as reader:
            reader.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
            until = time.monotonic() + SELECT_S
            reader.set_progress_handler(lambda: int(time.monotonic() > until), 100_000)
            try:
                cursor = reader.execute(sql)
                rows = cursor.fetchmany(limit)
            except sqlite3.Error as error:
                raise StoreError(f"SQL: {_explained_to_user(error)}") from None
            except sqlite3.Warning as error:  # two statements
                raise StoreError(f"SQL: {error}") from None
            return [column[0] for column in cursor.description or ()], rows

    def close(self) -> None:
        self._database.close()

    def _prepare(self) -> None:
        fresh = self._is_empty()  # before anything is changed in a file that is not ours
        follow_log(self._database, self._path)
        self._database.execute("PRAGMA synchronous = FULL")
        if not fresh:
            return  # a reader need not wait for whoever writes
        with self.transaction() as transaction:
            if self._is_empty():
                for statement in _SCHEMA:
                    transaction.run(statement, {})

    def _is_empty(self) -> bool:
        """Whether the tables are to be made; StoreError if the file is of something else."""
        run = self._database.execute
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application == version == 0 and run("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return True
        if application != APPLICATION:
            raise StoreError(f"store {self._path}: is no store of measurements; give another path")
        if version != TABLES_VERSION:
            raise StoreError(f"store {self._path}: has format {version}, this program uses {TABLES_VERSION}")
        return False

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"store {self._path}: {_remedy(error)}") from error


class _Transaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def run(self, sql: str, values: Mapping[str, Any]) -> int:
        return max(0, self._database.execute(sql, dict(values)).rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> int:
        return max(0, self._database.executemany(sql, rows).rowcount) if rows else 0


def _escaped(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path.absolute()))


def _explained_to_user(error: sqlite3.Error) -> str:
    text = str(error)
    if any(word in text for word in ("not authorized", "authorization denied", "readonly", "prohibited")):
        return "only reading is allowed here; write one SELECT"
    if "interrupted" in text:
        return f"took longer than {SELECT_S:g} s; ask for less"
    return text
