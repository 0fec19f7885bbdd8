"""Rows for tests of the archive."""

from __future__ import annotations

import pyarrow as pa

from chappe.archive.schema import input_schema

START_NS = 1_790_000_000_000_000_000


def readings(numbers: range, step_ns: int = 1_000_000, start_ns: int = START_NS) -> pa.RecordBatch:
    """Counters whose values are these numbers, received `step_ns` after each other."""
    rows = [
        {"node": "a", "name": "events", "labels": "", "created_ns": number, "value": float(number),
         "received_ns": start_ns + number * step_ns}
        for number in numbers
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=input_schema("counters"))
