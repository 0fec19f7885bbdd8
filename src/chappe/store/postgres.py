"""A store in PostgreSQL: shared by the processes of a role, so that one takes over when another dies (GS-156)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chappe.errors import StaleEpochError
from chappe.store.interface import VERSION, Changed, Item, parted
from chappe.store.postgres_connection import Database, Tables

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS chappe_lease (
        role text PRIMARY KEY, holder text NOT NULL, epoch bigint NOT NULL,
        expires timestamptz NOT NULL, length interval NOT NULL);
    CREATE TABLE IF NOT EXISTS chappe_item (
        role text, kind text, key text, value bytea NOT NULL, PRIMARY KEY (role, kind, key));
"""
_TABLES = Tables("chappe_store", VERSION, 0x63686170, (_SCHEMA,))
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
        self._database = Database(url, _TABLES)

    def acquire(self, role: str, holder: str, lease_s: float) -> int | None:
        row = self._row(_ACQUIRE, role=role, holder=holder, s=lease_s)
        return None if row is None else int(row[0])

    def renew(self, role: str, holder: str, epoch: int, lease_s: float) -> bool:
        return self._row(_RENEW, role=role, holder=holder, epoch=epoch, s=lease_s) is not None

    def give_up(self, role: str, holder: str, epoch: int) -> None:
        self._row(_GIVE_UP, role=role, holder=holder, epoch=epoch)

    def load(self, role: str) -> list[Item]:
        sql = "SELECT kind, key, value FROM chappe_item WHERE role = %s ORDER BY kind, key"
        return self._database.run(lambda connection: connection.execute(sql, (role,), binary=True).fetchall())

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
        self._database.close()

    def _row(self, sql: str, **values: Any) -> tuple[Any, ...] | None:
        return self._database.run(lambda connection: connection.execute(sql, values).fetchone())
