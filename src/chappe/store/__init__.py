"""Durable state of brokers: SQLite for one machine, PostgreSQL for processes on several."""

from chappe.store.interface import Changed, Item, Store
from chappe.store.opening import open_store

__all__ = ["Changed", "Item", "Store", "open_store"]
