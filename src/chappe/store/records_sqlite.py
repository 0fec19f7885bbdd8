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
from chappe.store.sqlite_file import BUSY_S, Layout, SqliteFile

SELECT_S = 30.0  # longest statement of a user
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_SCHEMA = (
    f"{RECORD_TABLE} WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS perf_record_stamp ON perf_record (stamp_ns)",
    *COMMON_TABLES,
)
_LAYOUT = Layout(0x43484147, TABLES_VERSION, _SCHEMA, "is no store of measurements")  # "CHAG"


class SqliteRecords:
    """Write-ahead log with a sync for each commit; others may read while one process writes."""

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(path, _LAYOUT)

    def query(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        with self._file.explained():
            return self._file.database.execute(sql, dict(values)).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        with self._file.transaction() as database:
            yield _Transaction(database)

    def prepare_days(self, days: Iterable[int]) -> None:
        """One table holds all days here."""

    def drop_before(self, stamp_ns: int) -> int:
        with self.transaction() as transaction:
            return transaction.run("DELETE FROM perf_record WHERE stamp_ns < :stamp", {"stamp": stamp_ns})

    def select(self, sql: str, limit: int) -> tuple[list[str], list[Row]]:
        address = f"file:{_escaped(self._file.path)}?mode=ro"
        with self._file.explained(), contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as reader:
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
        self._file.close()


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
