"""Tables of measurements in PostgreSQL, shared by the aggregators of a realm: one partition a day (MR-091)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chappe.errors import StoreError
from chappe.store.postgres_connection import Connection, Database, Tables, line
from chappe.store.records import COMMON_TABLES, DAY_NS, RECORD_TABLE, TABLES_VERSION, Row

import psycopg  # isort: skip  # chappe.store.postgres_connection says how to install it

SELECT_MS = 30_000  # longest statement of a user
_TABLES = Tables(
    "perf_meta", TABLES_VERSION, 0x63686167, (f"{RECORD_TABLE} PARTITION BY RANGE (stamp_ns)", *COMMON_TABLES)
)
_NAMED = re.compile(r"(?<!:):(\w+)")
_PARTITIONS = """
    SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
    WHERE inhparent = 'perf_record'::regclass
"""


class PostgresRecords:
    """A lost connection is made anew once; then it is an error. Dropping a day is dropping its partition."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, _TABLES)
        self._days: set[int] = set()

    def query(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        return self._database.run(lambda connection: connection.execute(_own(sql), dict(values)).fetchall())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        self._database.run(
            lambda connection: connection.execute("SELECT 1")
        )  # a lost connection is found before it is used
        connection = self._database.connected()
        try:
            with connection.transaction():
                yield _Transaction(connection)
        except psycopg.Error as error:
            if connection.closed:
                self._database.close()
            raise self._database.explained(error) from error

    def prepare_days(self, days: Iterable[int]) -> None:
        missing = set(days) - self._days
        if missing:
            self._database.run(lambda connection: self._make_days(connection, missing))
            self._days |= missing

    def drop_before(self, stamp_ns: int) -> int:
        oldest = stamp_ns // DAY_NS

        def drop(connection: Connection) -> None:
            for (name,) in connection.execute(_PARTITIONS).fetchall():
                if _day_of(name) < oldest:
                    with connection.transaction():
                        _TABLES.alone(connection)
                        connection.execute(f"DROP TABLE IF EXISTS {name}")

        self._database.run(drop)
        self._days = {day for day in self._days if day >= oldest}
        with self.transaction() as transaction:
            transaction.run("DELETE FROM perf_record WHERE stamp_ns < :stamp", {"stamp": stamp_ns})
        return -1

    def select(self, sql: str, limit: int) -> tuple[list[str], list[Row]]:
        try:
            with self._database.another() as reader:
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
            raise self._database.explained(error) from None
        except psycopg.Error as error:
            raise StoreError(f"SQL: {line(error)}") from None

    def close(self) -> None:
        self._database.close()

    @staticmethod
    def _make_days(connection: Connection, days: Iterable[int]) -> None:
        with connection.transaction():
            _TABLES.alone(connection)
            for day in sorted(days):
                name = f"perf_record_{datetime.fromtimestamp(day * DAY_NS // 1_000_000_000, UTC):%Y%m%d}"
                range_ = f"FROM ({day * DAY_NS}) TO ({(day + 1) * DAY_NS})"
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF perf_record FOR VALUES {range_}".encode()
                )


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
