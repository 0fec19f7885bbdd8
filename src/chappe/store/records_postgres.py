"""Tables of measurements in PostgreSQL, shared by the aggregators of a realm: one partition a day (MR-091)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from chappe.errors import StoreError
from chappe.store.postgres import CONNECTION, Connection, _line, _remedy, without_password
from chappe.store.records import COMMON_TABLES, DAY_NS, RECORD_TABLE, TABLES_VERSION, Row

import psycopg  # isort: skip  # chappe.store.postgres says how to install it
from psycopg.conninfo import conninfo_to_dict  # isort: skip

T = TypeVar("T")
CREATING = 0x63686167  # advisory lock of processes that make tables at the same time
SELECT_MS = 30_000  # longest statement of a user
_NAMED = re.compile(r"(?<!:):(\w+)")
_PARTITIONS = """
    SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
    WHERE inhparent = 'perf_record'::regclass
"""


class PostgresRecords:
    """A lost connection is made anew once; then it is an error. Dropping a day is dropping its partition."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise StoreError(f"store {without_password(url)}: {_line(error)}") from None
        self._options = {key: value for key, value in CONNECTION.items() if key not in given}
        self._connection: Connection | None = None
        self._days: set[int] = set()
        self._run(lambda connection: None)

    def query(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        return self._run(lambda connection: connection.execute(_own(sql), dict(values)).fetchall())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        self._run(lambda connection: connection.execute("SELECT 1"))  # a lost connection is found before it is used
        connection = self._connected()
        try:
            with connection.transaction():
                yield _Transaction(connection)
        except psycopg.Error as error:
            if connection.closed:
                self.close()
            raise self._explained(error) from error

    def prepare_days(self, days: Iterable[int]) -> None:
        missing = set(days) - self._days
        if missing:
            self._run(lambda connection: self._make_days(connection, missing))
            self._days |= missing

    def drop_before(self, stamp_ns: int) -> int:
        oldest = stamp_ns // DAY_NS

        def drop(connection: Connection) -> None:
            for (name,) in connection.execute(_PARTITIONS).fetchall():
                if _day_of(name) < oldest:
                    with connection.transaction():
                        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
                        connection.execute(f"DROP TABLE IF EXISTS {name}")

        self._run(drop)
        self._days = {day for day in self._days if day >= oldest}
        with self.transaction() as transaction:
            transaction.run("DELETE FROM perf_record WHERE stamp_ns < :stamp", {"stamp": stamp_ns})
        return -1

    def select(self, sql: str, limit: int) -> tuple[list[str], list[Row]]:
        try:
            with psycopg.connect(self._url, **self._options) as reader:
                reader.read_only = True
                reader.execute(f"SET LOCAL statement_timeout = {SELECT_MS}")
                # A prepared statement is one statement: nothing can follow it that would end the transaction.
                cursor = reader.execute(sql.encode(), prepare=True)
                if cursor.description is None:
                    raise StoreError("SQL: only reading is allowed here; write one SELECT")
                return [column.name for column in cursor.description], cursor.fetchmany(limit)
        except psycopg.errors.ReadOnlySqlTransaction:
            raise StoreError("SQL: only reading is allowed here; write one SELECT") from None
        except psycopg.OperationalError as error:
            raise self._explained(error) from None
        except psycopg.Error as error:
            raise StoreError(f"SQL: {_line(error)}") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, action: Callable[[Connection], T]) -> T:
        """Every action may be repeated: what a lost connection has done or not does not matter."""
        for last in (False, True):
            fresh = self._connection is None
            try:
                return action(self._connected())
            except psycopg.Error as error:
                lost = self._connection is None or self._connection.closed
                if lost:
                    self.close()
                if last or fresh or not lost:
                    raise self._explained(error) from error
        raise AssertionError("the second try returns or raises")

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = psycopg.connect(self._url, autocommit=True, **self._options)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: Connection) -> None:
        if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
            connection.execute("SET synchronous_commit = on")
        if connection.execute("SELECT to_regclass('perf_meta')").fetchone() == (None,):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
                connection.execute(f"{RECORD_TABLE} PARTITION BY RANGE (stamp_ns)")
                for statement in COMMON_TABLES:
                    connection.execute(statement.encode())
                connection.execute("CREATE TABLE IF NOT EXISTS perf_meta (version integer NOT NULL)")
                put = "INSERT INTO perf_meta SELECT %s WHERE NOT EXISTS (SELECT FROM perf_meta)"
                connection.execute(put, (TABLES_VERSION,))
        row = connection.execute("SELECT max(version) FROM perf_meta").fetchone()
        if row != (TABLES_VERSION,):
            found = row[0] if row else None
            place = without_password(self._url)
            raise StoreError(f"store {place}: has format {found}, this program uses {TABLES_VERSION}")

    @staticmethod
    def _make_days(connection: Connection, days: Iterable[int]) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
            for day in sorted(days):
                name = f"perf_record_{datetime.fromtimestamp(day * DAY_NS // 1_000_000_000, UTC):%Y%m%d}"
                range_ = f"FROM ({day * DAY_NS}) TO ({(day + 1) * DAY_NS})"
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF perf_record FOR VALUES {range_}".encode()
                )

    def _explained(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"store {without_password(self._url)}: {_line(error)}{_remedy(error)}")


class _Transaction:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, sql: str, values: Mapping[str, Any]) -> int:
        return max(0, self._connection.execute(_own(sql), dict(values)).rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> int:
        if not rows:
            return 0
        with self._connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s").encode(), rows)
            return max(0, cursor.rowcount)


def _own(sql: str) -> bytes:
    """The statement with the values of psycopg; a percent sign stays what it is."""
    return _NAMED.sub(r"%(\1)s", sql.replace("%", "%%")).encode()


def _day_of(partition: str) -> int:
    moment = datetime.strptime(partition.rpartition("_")[2], "%Y%m%d").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000 // DAY_NS
