"""Which store a text names."""

from __future__ import annotations

from pathlib import Path

from chappe.errors import StoreError
from chappe.store.interface import Store
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
