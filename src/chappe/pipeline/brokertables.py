"""Rows of Spark from the histories of brokers: each broker's log is read in one go, those of several in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.pipeline.brokerlog import History, history


def from_histories(
    broker: DataFrame, schema: pa.Schema, now_ns: int, rows: Callable[[History], Iterable[Mapping[str, Any]]]
) -> DataFrame:
    """What `rows` makes of the history of each broker up to now; the column `broker` is added."""
    names = schema.names

    def told(frame: pd.DataFrame) -> pd.DataFrame:
        role = str(frame["broker"].iloc[0])
        stamps = (int(at) for at in frame["created_ns"])
        log = zip(frame["action"], frame["subject"], stamps, frame["detail"], strict=True)
        return pd.DataFrame([{"broker": role, **row} for row in rows(history(log, now_ns))], columns=names)

    logged = broker.select("broker", "action", "subject", "created_ns", "detail")
    return logged.groupBy("broker").applyInPandas(told, from_arrow_schema(schema))
