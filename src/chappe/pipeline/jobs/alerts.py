"""Alerts: the aggregator's rules over all measurements, raised and cleared, published as events (SJ-04)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.aggregation.alerts import Rule
from chappe.archive.schema import DATASETS
from chappe.measure.messages import AlertEvent
from chappe.measure.record import METRICS
from chappe.pipeline.alerting import End, judge, next_ns, records, row, rules
from chappe.pipeline.job import Frames, Going, KeyedJob, Publish, Table, Went, parameter

RULES = """
[[alert]]
name = "lossy"
when = "loss > 0.05"
for_s = 5

[[alert]]
name = "slow"
when = "latency_ms > 100"
for_s = 2
"""
ALERTS = pa.schema([
    *(pa.field(name, pa.string(), nullable=False) for name in ("rule", "state", "link", "node", "peer", "realm")),
    pa.field("severity", pa.string(), nullable=False),
    pa.field("stamp_ns", pa.int64(), nullable=False),
    pa.field("since_ns", pa.int64(), nullable=False),
    *(pa.field(name, pa.string(), nullable=False) for name in ("text", "topic", "body")),
])  # fmt: skip


@dataclass(frozen=True)
class Alerts(KeyedJob):
    """Each end of a link has a state of its own; time is that of the measurements."""

    id: ClassVar[str] = "SJ-04"
    name: ClassVar[str] = "alerts"
    line: ClassVar[str] = "thresholds with duration and hysteresis over the metrics of links, published as events"
    reads: ClassVar[tuple[str, ...]] = ("measurements",)
    keys: ClassVar[tuple[str, ...]] = ("node", "link")
    columns: ClassVar[tuple[str, ...]] = (*keys, "peer", "transport", "realm", "created_ns", *METRICS)
    writes: ClassVar[dict[str, Table]] = {
        "alerts": Table(ALERTS, ("rule", "link", "node", "stamp_ns", "state"), Publish.EVENTS)
    }

    rules: str = parameter(
        RULES, "[[alert]] tables as an aggregator has them: as TOML text, or the name of a .toml file"
    )

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """What the rules would have said over the whole history, and of silence until now."""
        of = rules(self.rules)
        judged = _ends(inputs["measurements"]).applyInPandas(
            lambda frame: _history(of, now_ns, frame), from_arrow_schema(ALERTS)
        )
        return {"alerts": judged}

    def schema(self) -> pa.Schema:
        names = DATASETS["measurements"]
        return pa.schema([names.field(name).with_nullable(True) for name in self.columns])

    def going(self) -> Going:
        """As measurements come, and as time goes by where a rule asks for it."""
        return partial(_go_on, rules(self.rules))


def _ends(measurements: DataFrame) -> GroupedData:
    return measurements.select(*Alerts.columns).groupBy(*Alerts.keys)


def _history(of: Sequence[Rule], now_ns: int, frame: pd.DataFrame) -> pd.DataFrame:
    events, _ = judge(of, End(), records(_columns(frame)), now_ns)
    return _frame(events)


def _go_on(of: Sequence[Rule], rows: pa.Table | None, known: str, now_ns: int) -> Went:
    """The measurements of one end, or none when silence is due to be judged."""
    end = msgspec.json.decode(known, type=End) if known else End()
    new = [] if rows is None else records(rows.to_pydict())
    events, end = judge(of, end, new, now_ns)
    return Went([row(event) for event in events], msgspec.json.encode(end).decode(), next_ns(of, end))


def _columns(frame: pd.DataFrame) -> dict[str, list[object]]:
    return {name: frame[name].tolist() for name in frame.columns}


def _frame(events: Iterable[AlertEvent]) -> pd.DataFrame:
    return pd.DataFrame([row(event) for event in events], columns=ALERTS.names)
