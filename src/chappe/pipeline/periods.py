"""Minutes, hours, days and weeks (UTC, weeks from Monday), and the hours of a week."""

from __future__ import annotations

from typing import Any

from chappe.aggregation.averages import MONDAY_NS, PERIODS, WEEK_NS
from chappe.store.records import DAY_NS, HOUR_NS

MINUTE_NS = 60_000_000_000
LENGTHS = {"minute": MINUTE_NS, **PERIODS}

__all__ = ["DAY_NS", "HOUR_NS", "LENGTHS", "MINUTE_NS", "MONDAY_NS", "WEEK_NS", "hour_of_week", "number", "start_ns"]


def number(at_ns: Any, length_ns: int) -> Any:
    """Which period of that length a time is in; over arrays and columns as well as over numbers."""
    return (at_ns - MONDAY_NS) // length_ns


def start_ns(numbers: Any, length_ns: int) -> Any:
    """When a period begins."""
    return numbers * length_ns + MONDAY_NS


def hour_of_week(at_ns: Any) -> Any:
    """0 is Monday from midnight to one, 167 Sunday from eleven on."""
    return number(at_ns, HOUR_NS) % 168
