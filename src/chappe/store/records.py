"""Measurements in tables: one interface and one SQL for SQLite and PostgreSQL (MR-091).

Rows are tuples in the order of `COLUMNS`, the fields of a record. Statements are written once, in what both databases
understand, with named values `:name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from chappe.errors import StoreError

Row = tuple[Any, ...]
TABLES_VERSION = 1
DAY_NS = 86_400_000_000_000
HOUR_NS = 3_600_000_000_000
SLACK = 10  # a link may have a tenth more rows than it should before they are removed

COLUMNS: dict[str, str] = {
    "link": "text NOT NULL", "node": "text NOT NULL", "stamp_ns": "bigint NOT NULL", "uri": "text NOT NULL",
    "peer": "text NOT NULL", "realm": "text NOT NULL", "user_group": "text NOT NULL", "transport": "text NOT NULL",
    "interval_ms": "double precision", "window": "bigint NOT NULL", "outliers": "bigint NOT NULL",
    "latency_ms": "double precision", "deviation_ms": "double precision", "jitter_ms": "double precision",
    "jitter": "double precision", "loss": "double precision", "bandwidth": "double precision",
    "cost": "double precision", "profile": "text NOT NULL", "published": "boolean NOT NULL",
    "origin": "text NOT NULL", "version": "bigint NOT NULL",
}  # fmt: skip
EVENT_COLUMNS = (
    "rule", "link", "node", "state", "stamp_ns", "since_ns", "severity", "realm", "uri", "peer", "text",
)  # fmt: skip
# `window` is a word of SQL
NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_DEFINED = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
_MARKS = ", ".join("?" for _ in COLUMNS)

RECORD_TABLE = f"CREATE TABLE IF NOT EXISTS perf_record ({_DEFINED}, PRIMARY KEY (link, stamp_ns, node))"
COMMON_TABLES = (
    f"CREATE TABLE IF NOT EXISTS perf_link ({_DEFINED}, first_ns bigint NOT NULL, PRIMARY KEY (link, node))",
    "CREATE TABLE IF NOT EXISTS perf_alert_rule (name text PRIMARY KEY, rule text NOT NULL, since_ns bigint NOT NULL)",
    """CREATE TABLE IF NOT EXISTS perf_alert_event (
        rule text, link text, node text, state text, stamp_ns bigint, since_ns bigint NOT NULL, severity text NOT NULL,
        realm text NOT NULL, uri text NOT NULL, peer text NOT NULL, text text NOT NULL,
        PRIMARY KEY (rule, link, node, stamp_ns, state))""",
    """CREATE TABLE IF NOT EXISTS perf_party (
        kind text, name text, realm text, heard_ns bigint NOT NULL, details text NOT NULL,
        PRIMARY KEY (kind, name, realm))""",
)
_PUT_RECORD = f"INSERT INTO perf_record ({NAMES}) VALUES ({_MARKS}) ON CONFLICT DO NOTHING"
_PUT_LINK = (
    f"INSERT INTO perf_link ({NAMES}, first_ns) VALUES ({_MARKS}, ?) ON CONFLICT (link, node) DO UPDATE SET "
    + ", ".join(f'"{name}" = excluded."{name}"' for name in COLUMNS if name not in ("link", "node"))
    + " WHERE excluded.stamp_ns > perf_link.stamp_ns"
)
_PUT_EVENT = (
    f"INSERT INTO perf_alert_event ({', '.join(EVENT_COLUMNS)}) VALUES ({', '.join('?' for _ in EVENT_COLUMNS)}) "
    "ON CONFLICT DO NOTHING"
)
_PUT_PARTY = (
    "INSERT INTO perf_party (kind, name, realm, heard_ns, details) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (kind, name, realm) DO UPDATE SET heard_ns = excluded.heard_ns, details = excluded.details"
)
_OPEN_EVENTS = f"""
    SELECT {", ".join(EVENT_COLUMNS)} FROM perf_alert_event AS event WHERE state = 'raised' AND NOT EXISTS (
        SELECT 1 FROM perf_alert_event AS later WHERE later.rule = event.rule AND later.link = event.link
            AND later.node = event.node AND later.stamp_ns > event.stamp_ns)
"""
_BEYOND = """
    DELETE FROM perf_record WHERE link = :link AND stamp_ns <= (
        SELECT stamp_ns FROM perf_record WHERE link = :link ORDER BY stamp_ns DESC LIMIT 1 OFFSET :rows)
"""
# The newest event of an alert that is raised stays however old it is: a restart must know of it.
_OLD_EVENTS = """
    DELETE FROM perf_alert_event WHERE stamp_ns < :before AND (state = 'cleared' OR EXISTS (
        SELECT 1 FROM perf_alert_event AS later WHERE later.rule = perf_alert_event.rule
            AND later.link = perf_alert_event.link AND later.node = perf_alert_event.node
            AND later.stamp_ns > perf_alert_event.stamp_ns))
"""


class Database(Protocol):
    """What differs between the two: connections, transactions, days. May raise StoreError, which changes nothing."""

    def query(self, sql: str, values: Mapping[str, Any]) -> list[Row]: ...

    def transaction(self) -> AbstractContextManager[Transaction]: ...

    def prepare_days(self, days: Iterable[int]) -> None:
        """Make room for records of these days since 1970."""

    def drop_before(self, stamp_ns: int) -> int:
        """Remove what is older; how many rows, or -1 where whole days were dropped uncounted."""

    def select(self, sql: str, limit: int) -> tuple[list[str], list[Row]]:
        """A statement of a user, which can only read: names of columns, and at most `limit` rows."""

    def close(self) -> None: ...


class Transaction(Protocol):
    """All of it or nothing, on disk at the end."""

    def run(self, sql: str, values: Mapping[str, Any]) -> int:
        """How many rows it changed."""

    def run_many(self, sql: str, rows: Sequence[Row]) -> int: ...


class RecordStore:
    """Blocking; used by one thread at a time. History is bounded by `prune` (MR-131)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._grown: dict[str, int] = {}  # rows of each link since it was last looked at

    def write(
        self, rows: Sequence[Row], events: Sequence[Row] = (), parties: Sequence[Row] = (), keep_from_ns: int = 0
    ) -> int:
        """Commit records, alert events and parties together; how many records were new. Repeating it is harmless.

        Records from before `keep_from_ns` would be pruned at once and are left out.
        """
        kept = [row for row in rows if row[2] >= keep_from_ns]
        newest: dict[tuple[str, str], Row] = {}
        for row in kept:
            place = (row[0], row[1])
            if place not in newest or row[2] > newest[place][2]:
                newest[place] = row
        self._database.prepare_days({row[2] // DAY_NS for row in kept})
        with self._database.transaction() as transaction:
            new = transaction.run_many(_PUT_RECORD, kept)
            transaction.run_many(_PUT_LINK, [(*row, row[2]) for row in newest.values()])
            transaction.run_many(_PUT_EVENT, events)
            transaction.run_many(_PUT_PARTY, parties)
        for row in kept:
            self._grown[row[0]] = self._grown.get(row[0], 0) + 1
        return new

    def rules(self, rules: Mapping[str, str], now_ns: int) -> None:
        """Make the table of alert rules say what is in force now."""
        with self._database.transaction() as transaction:
            transaction.run("DELETE FROM perf_alert_rule", {})
            put = "INSERT INTO perf_alert_rule (name, rule, since_ns) VALUES (?, ?, ?)"
            transaction.run_many(put, [(name, rule, now_ns) for name, rule in rules.items()])

    def open_events(self) -> list[Row]:
        """Alerts that were raised and not cleared, in the order of EVENT_COLUMNS."""
        return self._database.query(_OPEN_EVENTS, {})

    def prune(self, now_ns: int, age_ns: int, rows_per_link: int, everything: bool = False) -> int:
        """Remove what is older than `age_ns`, and of each link all but the newest rows; how many rows, if known.

        A link is looked at once it may have a tenth too many; `everything` looks at all links.
        """
        removed = self._database.drop_before(now_ns - age_ns)
        bound = max(1, rows_per_link // SLACK)
        links = [name for name, grown in self._grown.items() if grown >= bound]
        if everything:
            links = [row[0] for row in self._database.query("SELECT DISTINCT link FROM perf_link", {})]
        with self._database.transaction() as transaction:
            for link in links:
                removed += transaction.run(_BEYOND, {"link": link, "rows": rows_per_link})
            transaction.run(_OLD_EVENTS, {"before": now_ns - age_ns})
            transaction.run("DELETE FROM perf_party WHERE heard_ns < :before", {"before": now_ns - age_ns})
            transaction.run("DELETE FROM perf_link WHERE stamp_ns < :before", {"before": now_ns - age_ns})
        for link in links:
            self._grown.pop(link, None)
        return removed

    def query(self, sql: str, **values: Any) -> list[Row]:
        """The rows of a statement of this program, in the SQL that both databases share."""
        return self._database.query(sql, values)

    def select(self, sql: str, limit: int = 100_000) -> tuple[list[str], list[Row]]:
        """A statement of a user, which can only read: names of columns, and at most `limit` rows."""
        if not sql.strip():
            raise StoreError("the SQL is empty; write something like: select * from perf_link")
        return self._database.select(sql, limit)

    def count(self) -> int:
        """All records."""
        return int(self.query("SELECT count(*) FROM perf_record")[0][0])

    def close(self) -> None:
        self._database.close()
