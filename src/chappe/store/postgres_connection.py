"""The connection of a store to PostgreSQL: made anew when lost, its tables made and checked, its errors explained."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from chappe.errors import StoreError

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise StoreError("a store in PostgreSQL needs psycopg: pip install 'chappe[postgres]'") from error

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

# A server that went away without a word is noticed after ten seconds.
OPTIONS: dict[str, Any] = {
    "connect_timeout": 5, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2,
    "tcp_user_timeout": 10_000, "application_name": "chappe",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tables:
    """What a store keeps in a database: `named` is the table that holds nothing but the version of the format."""

    named: str
    version: int
    lock: int  # advisory, of processes that make tables at the same time
    statements: Sequence[str]

    def make(self, connection: Connection) -> None:
        """Make them unless they are there: a user without the right to make tables can use those that exist."""
        if connection.execute("SELECT to_regclass(%s)", (self.named,)).fetchone() != (None,):
            return
        with connection.transaction():
            self.alone(connection)
            for statement in (*self.statements, f"CREATE TABLE IF NOT EXISTS {self.named} (version integer NOT NULL)"):
                connection.execute(statement.encode())
            put = f"INSERT INTO {self.named} SELECT %s WHERE NOT EXISTS (SELECT FROM {self.named})"
            connection.execute(put.encode(), (self.version,))

    def alone(self, connection: Connection) -> None:
        """Until the end of the transaction nobody else makes or drops tables."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (self.lock,))

    def version_found(self, connection: Connection) -> int | None:
        row = connection.execute(f"SELECT max(version) FROM {self.named}".encode()).fetchone()
        return row[0] if row else None


class Database:
    """A connection with the tables of a store in it. A lost one is made anew once; then it is an error."""

    def __init__(self, url: str, tables: Tables) -> None:
        self._url = url
        self._tables = tables
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise StoreError(f"store {without_password(url)}: {line(error)}") from None
        self._options = {key: value for key, value in OPTIONS.items() if key not in given}
        self._connection: Connection | None = None
        self.run(lambda connection: None)

    def run(self, action: Callable[[Connection], T]) -> T:
        """Every action may be repeated: what a lost connection has done or not does not matter."""
        fresh = self._connection is None
        try:
            return action(self.connected())
        except psycopg.Error as error:
            lost = self._close_if_lost()
            if fresh or not lost:
                raise self.explained(error) from error
        try:
            return action(self.connected())
        except psycopg.Error as error:
            self._close_if_lost()
            raise self.explained(error) from error

    def connected(self) -> Connection:
        """The connection, made if there is none."""
        if self._connection is None:
            connection = self.another(autocommit=True)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def another(self, *, autocommit: bool = False) -> Connection:
        """A connection of the caller's own."""
        return psycopg.connect(self._url, autocommit=autocommit, **self._options)

    def explained(self, error: psycopg.Error) -> StoreError:
        """What happened and what to do about it."""
        return StoreError(f"store {without_password(self._url)}: {line(error)}{_remedy(error, self._tables)}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close_if_lost(self) -> bool:
        lost = self._connection is None or self._connection.closed
        if lost:
            self.close()
        return lost

    def _prepare(self, connection: Connection) -> None:
        if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
            connection.execute("SET synchronous_commit = on")
        self._tables.make(connection)
        found = self._tables.version_found(connection)
        if found != self._tables.version:
            place, used = without_password(self._url), self._tables.version
            raise StoreError(f"store {place}: has format {found}, this program uses {used}")


def without_password(url: str) -> str:
    """The url as it may be shown."""
    hidden = re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", url)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1…", hidden)


def line(error: Exception) -> str:
    """What an error of the server or of its driver says, in one line."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    return "; ".join(lines[:2]) if lines else type(error).__name__


def _remedy(error: psycopg.Error, tables: Tables) -> str:
    text, ours = str(error), tables.named.partition("_")[0] + "_*"
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return f"; GRANT USAGE, CREATE ON SCHEMA … TO its user, or GRANT ALL ON the {ours} tables if they are there"
        case psycopg.errors.UndefinedTable():
            return f"; a table is missing: restore it, or drop all {ours} tables to begin anew"
        case psycopg.OperationalError() if "does not exist" in text:
            return "; create it with createdb or createuser, or correct the url"
        case psycopg.OperationalError() if "password" in text or "authentication" in text:
            return "; correct user and password in the url or in ~/.pgpass"
        case psycopg.OperationalError():
            return "; is the server running, and is its address right?"
    return ""
