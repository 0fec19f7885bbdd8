"""Which store a text names."""

from __future__ import annotations

from pathlib import Path

from chappe.errors import StoreError
from chappe.store.interface import Store
from chappe.store.records import RecordStore
from chappe.store.sqlite import SqliteStore

POSTGRES = ("postgresql://", "postgres://")


def open_store(url_or_path: str | Path) -> Store:
    """The store at a path (SQLite; made if it is not there) or a postgresql:// url; StoreError says what to do."""
    text = str(url_or_path)
    if text.startswith(POSTGRES):
        from chappe.store.postgres import PostgresStore  # an extra: whoever uses SQLite needs no driver

        return PostgresStore(text)
    if "://" in text:
        raise StoreError(f"store {text.partition('://')[0]}://…: give a path of a file or a postgresql:// url")
    if not text.strip():
        raise StoreError("store: is empty; give a path of a file or a postgresql:// url")
    return SqliteStore(text)


def open_records(url_or_path: str | Path) -> RecordStore:
    """The tables at a path (SQLite; made if they are not there) or a postgresql:// url; StoreError says what to do."""
    text = str(url_or_path)
    if text.startswith(POSTGRES):
        from chappe.store.records_postgres import PostgresRecords  # an extra: whoever uses SQLite needs no driver

        return RecordStore(PostgresRecords(text))
    if "://" in text or not text.strip():
        raise StoreError(f"store {text.partition('://')[0]!r}: give a path of a file or a postgresql:// url")
    from chappe.store.records_sqlite import SqliteRecords

    return RecordStore(SqliteRecords(text))
