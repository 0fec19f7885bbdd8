"""A store in one file: for a broker of one process, or several on the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chappe.errors import StaleEpochError
from chappe.store.interface import VERSION, Changed, Item, parted
from chappe.store.sqlite_file import Layout, SqliteFile

_SCHEMA = (
    """CREATE TABLE lease (
        role TEXT PRIMARY KEY, holder TEXT NOT NULL, epoch INTEGER NOT NULL,
        expires REAL NOT NULL, length REAL NOT NULL)""",
    """CREATE TABLE item (
        role TEXT, kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (role, kind, key)) WITHOUT ROWID""",
)
_LAYOUT = Layout(0x43484150, VERSION, _SCHEMA, "is a database of another program")  # "CHAP"


class SqliteStore:
    """Write-ahead log with a sync for each commit. Leases run by `clock`, which all processes of a machine share."""

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file = SqliteFile(path, _LAYOUT)

    def acquire(self, role: str, holder: str, lease_s: float) -> int | None:
        with self._file.transaction() as database:
            now = self._clock()
            row = database.execute(
                "SELECT holder, epoch, expires, length FROM lease WHERE role = ?", (role,)
            ).fetchone()
            if row is None:
                database.execute("INSERT INTO lease VALUES (?, ?, 1, ?, ?)", (role, holder, now + lease_s, lease_s))
                return 1
            before, epoch, expires, length = row
            # One that ends later than it could have begun now is from before the machine was started anew.
            held = now < expires <= now + length
            if held and before not in ("", holder):
                return None
            changed = (holder, epoch + 1, now + lease_s, lease_s, role)
            database.execute("UPDATE lease SET holder = ?, epoch = ?, expires = ?, length = ? WHERE role = ?", changed)
            return int(epoch) + 1

    def renew(self, role: str, holder: str, epoch: int, lease_s: float) -> bool:
        with self._file.transaction() as database:
            ours = (self._clock() + lease_s, lease_s, role, holder, epoch)
            sql = "UPDATE lease SET expires = ?, length = ? WHERE role = ? AND holder = ? AND epoch = ?"
            return database.execute(sql, ours).rowcount == 1

    def give_up(self, role: str, holder: str, epoch: int) -> None:
        with self._file.transaction() as database:
            sql = "UPDATE lease SET holder = '', expires = 0 WHERE role = ? AND holder = ? AND epoch = ?"
            database.execute(sql, (role, holder, epoch))

    def load(self, role: str) -> list[Item]:
        with self._file.explained():
            sql = "SELECT kind, key, value FROM item WHERE role = ? ORDER BY kind, key"
            return self._file.database.execute(sql, (role,)).fetchall()

    def commit(self, role: str, epoch: int, changes: Sequence[Changed]) -> None:
        written, removed = parted(changes)
        with self._file.transaction() as database:
            row = database.execute("SELECT epoch FROM lease WHERE role = ? AND holder <> ''", (role,)).fetchone()
            if row != (epoch,):
                raise StaleEpochError(role, epoch)
            database.executemany("INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?)", [(role, *item) for item in written])
            drop = "DELETE FROM item WHERE role = ? AND kind = ? AND key = ?"
            database.executemany(drop, [(role, *name) for name in removed])

    def close(self) -> None:
        self._file.close()
