"""A store in PostgreSQL: shared by the processes of a role, so that one takes over when another dies (GS-156)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from chappe.errors import StaleEpochError, StoreError
from chappe.store.interface import VERSION, Changed, Item, parted

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise StoreError("a store in PostgreSQL needs psycopg: pip install 'chappe[postgres]'") from error

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

CREATING = 0x63686170  # advisory lock of processes that make the tables at the same time
# A server that went away without a word is noticed after ten seconds.
CONNECTION: dict[str, Any] = {
    "connect_timeout": 5, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2,
    "tcp_user_timeout": 10_000, "application_name": "chappe",
}  # fmt: skip

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS chappe_store (version integer NOT NULL);
    CREATE TABLE IF NOT EXISTS chappe_lease (
        role text PRIMARY KEY, holder text NOT NULL, epoch bigint NOT NULL,
        expires timestamptz NOT NULL, length interval NOT NULL);
    CREATE TABLE IF NOT EXISTS chappe_item (
        role text, kind text, key text, value bytea NOT NULL, PRIMARY KEY (role, kind, key));
"""
# One that ends later than it could have begun now is from before the clock of the server was set back.
_ACQUIRE = """
    INSERT INTO chappe_lease AS lease VALUES (
        %(role)s, %(holder)s, 1, clock_timestamp() + make_interval(secs => %(s)s), make_interval(secs => %(s)s))
    ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, epoch = lease.epoch + 1,
        expires = clock_timestamp() + excluded.length, length = excluded.length
    WHERE lease.holder IN ('', excluded.holder)
        OR lease.expires <= clock_timestamp() OR lease.expires > clock_timestamp() + lease.length
    RETURNING epoch
"""
_RENEW = """
    UPDATE chappe_lease
    SET expires = clock_timestamp() + make_interval(secs => %(s)s), length = make_interval(secs => %(s)s)
    WHERE role = %(role)s AND holder = %(holder)s AND epoch = %(epoch)s RETURNING 1
"""
_GIVE_UP = """
    UPDATE chappe_lease SET holder = '', expires = '-infinity'
    WHERE role = %(role)s AND holder = %(holder)s AND epoch = %(epoch)s RETURNING 1
"""
# One statement and no open transaction: a process that is stopped at any moment leaves no lock behind that would keep
# the standby from taking over. The lock of the lease orders this before or after the taking of the lease.
_COMMIT = """
    WITH held AS MATERIALIZED (
        SELECT 1 FROM chappe_lease WHERE role = %(role)s AND epoch = %(epoch)s AND holder <> '' FOR SHARE),
    put AS (
        INSERT INTO chappe_item
        SELECT %(role)s, item.* FROM held, unnest(%(kinds)s::text[], %(keys)s::text[], %(values)s::bytea[]) AS item
        ON CONFLICT (role, kind, key) DO UPDATE SET value = excluded.value),
    dropped AS (
        DELETE FROM chappe_item
        USING held, unnest(%(dropped_kinds)s::text[], %(dropped_keys)s::text[]) AS gone (kind, key)
        WHERE chappe_item.role = %(role)s AND chappe_item.kind = gone.kind AND chappe_item.key = gone.key)
    SELECT 1 FROM held
"""


class PostgresStore:
    """Leases run by the clock of the server. A lost connection is made anew once; then it is an error."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise StoreError(f"store {without_password(url)}: {_line(error)}") from None
        self._options = {key: value for key, value in CONNECTION.items() if key not in given}
        self._connection: Connection | None = None
        self._run(lambda connection: None)

    def acquire(self, role: str, holder: str, lease_s: float) -> int | None:
        row = self._row(_ACQUIRE, role=role, holder=holder, s=lease_s)
        return None if row is None else int(row[0])

    def renew(self, role: str, holder: str, epoch: int, lease_s: float) -> bool:
        return self._row(_RENEW, role=role, holder=holder, epoch=epoch, s=lease_s) is not None

    def give_up(self, role: str, holder: str, epoch: int) -> None:
        self._row(_GIVE_UP, role=role, holder=holder, epoch=epoch)

    def load(self, role: str) -> list[Item]:
        sql = "SELECT kind, key, value FROM chappe_item WHERE role = %s ORDER BY kind, key"
        return self._run(lambda connection: connection.execute(sql, (role,), binary=True).fetchall())

    def commit(self, role: str, epoch: int, changes: Sequence[Changed]) -> None:
        written, dropped = parted(changes)
        row = self._row(
            _COMMIT, role=role, epoch=epoch,
            kinds=[kind for kind, _, _ in written], keys=[key for _, key, _ in written],
            values=[value for _, _, value in written],
            dropped_kinds=[kind for kind, _ in dropped], dropped_keys=[key for _, key in dropped],
        )  # fmt: skip
        if row is None:
            raise StaleEpochError(role, epoch)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _row(self, sql: str, **values: Any) -> tuple[Any, ...] | None:
        return self._run(lambda connection: connection.execute(sql, values).fetchone())

    def _run(self, action: Callable[[Connection], T]) -> T:
        """Every action may be repeated: what a lost connection has done or not does not matter."""
        fresh = self._connection is None
        try:
            return action(self._connected())
        except psycopg.Error as error:
            lost = self._connection is None or self._connection.closed
            if lost:
                self.close()
            if fresh or not lost:
                raise self._explained(error) from error
        try:
            return action(self._connected())
        except psycopg.Error as error:
            self.close()
            raise self._explained(error) from error

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
        if connection.execute("SELECT to_regclass('chappe_store')").fetchone() == (None,):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
                connection.execute(_SCHEMA)
                connection.execute(
                    "INSERT INTO chappe_store SELECT %s WHERE NOT EXISTS (SELECT FROM chappe_store)", (VERSION,)
                )
        row = connection.execute("SELECT max(version) FROM chappe_store").fetchone()
        if row != (VERSION,):
            found = row[0] if row else None
            raise StoreError(f"store {without_password(self._url)}: has format {found}, this program uses {VERSION}")

    def _explained(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"store {without_password(self._url)}: {_line(error)}{_remedy(error)}")


def without_password(url: str) -> str:
    """The url as it may be shown."""
    hidden = re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", url)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1…", hidden)


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) if lines else type(error).__name__


def _remedy(error: psycopg.Error) -> str:
    text = str(error)
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return (
                "; GRANT USAGE, CREATE ON SCHEMA … TO its user, or GRANT ALL ON the chappe_* tables if they are there"
            )
        case psycopg.errors.UndefinedTable():
            return "; a table is missing: restore it, or drop all chappe_* tables to begin anew"
        case psycopg.OperationalError() if "does not exist" in text:
            return "; create it with createdb or createuser, or correct the url"
        case psycopg.OperationalError() if "password" in text or "authentication" in text:
            return "; correct user and password in the url or in ~/.pgpass"
        case psycopg.OperationalError():
            return "; is the server running, and is its address right?"
    return ""
