"""Clean tables for tests of jobs: rows of which only what matters is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from chappe.archive.schema import DATASETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGUN = 1_760_000_000_000_000_000
SOURCE = "plant"

QUARANTINE = [("dataset", pa.string()), ("reason", pa.string()), ("source", pa.string()), ("offset", pa.int64()),
              ("received_ns", pa.int64()), ("row", pa.string())]  # fmt: skip
_SAID: dict[str, dict[str, Any]] = {
    "status": {"node": "a", "variable": 1, "name": "pmu1/frequency", "extrapolated": False},
    "events": {
        "node": "a",
        "topic": "plant/alarm",
        "kind": "s",
        "issuer": b"i",
        "epoch": 1,
        "sequence": 0,
        "body": b"",
    },
    "measurements": {"node": "a", "link": "ab", "peer": "b", "transport": "tcp"},
    "counters": {"node": "a", "name": "chappe_up", "labels": "", "value": 0.0},
    "broker": {"broker": "leaf", "action": "publish", "subject": "pmu1/frequency"},
    "quality": {"client": "desk", "subject": "pmu1/frequency", "kind": "late", "count": 1},
}


def table(dataset: str, rows: Iterable[Mapping[str, Any]] = ()) -> pa.Table:
    """Rows of a clean table, arrived when they were created unless they say otherwise; columns may be empty."""
    if dataset == "quarantine":
        return pa.Table.from_pylist([{"source": SOURCE, "reason": "impossible time", **row} for row in rows],
                                    schema=pa.schema(QUARANTINE))  # fmt: skip
    schema = pa.schema([pa.field(each.name, each.type) for each in DATASETS[dataset]] + [("source", pa.string())])
    whole = []
    for offset, row in enumerate(rows):
        created = row.get("created_ns")
        received = row.get("received_ns", BEGUN if created is None else created)
        at = {"offset": offset, "created_ns": created, "received_ns": received, "source": SOURCE}
        seen = {"received": max(0, min(received, 1 << 61)) // 1000}
        whole.append({**_SAID[dataset], **at, **seen, **row})
    return pa.Table.from_pylist(whole, schema=schema)


def frames(spark: SparkSession, **rows: Iterable[Mapping[str, Any]]) -> dict[str, DataFrame]:
    """All datasets, those that are not given without rows."""
    return {name: spark.createDataFrame(table(name, rows.get(name, ()))) for name in (*DATASETS, "quarantine")}
