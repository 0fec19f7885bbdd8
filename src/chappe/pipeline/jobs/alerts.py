"""Alerts: the aggregator's rules over all measurements, raised and cleared, published as events (SJ-04)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from chappe.aggregation.alerts import Rule
from chappe.aggregation.messages import AlertEvent
from chappe.measure.record import METRICS
from chappe.pipeline.alerting import End, judge, next_ns, records, row, rules
from chappe.pipeline.job import Frames, Publish, StreamJob, Table, parameter

_MS = 1_000_000
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
_STATE = pa.schema([pa.field("end", pa.string())])
_READ = ("node", "link", "peer", "transport", "realm", "created_ns", *METRICS)


@dataclass(frozen=True)
class Alerts(StreamJob):
    """Each end of a link has a state of its own; time is that of the measurements."""

    id: ClassVar[str] = "SJ-04"
    name: ClassVar[str] = "alerts"
    line: ClassVar[str] = "thresholds with duration and hysteresis over the metrics of links, published as events"
    reads: ClassVar[tuple[str, ...]] = ("measurements",)
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

    def stream(self, inputs: Frames) -> Frames:
        """As measurements come, and as time goes by where a rule asks for it."""
        of = rules(self.rules)
        # Without such a rule a trigger without measurements is no batch at all.
        silence = any("age_s" in rule.when for rule in of)
        judged = _ends(inputs["measurements"]).applyInPandasWithState(
            partial(_go_on, of), from_arrow_schema(ALERTS), from_arrow_schema(_STATE), "append",
            GroupStateTimeout.ProcessingTimeTimeout if silence else GroupStateTimeout.NoTimeout,
        )  # fmt: skip
        return {"alerts": judged}


def _ends(measurements: DataFrame) -> GroupedData:
    return measurements.select(*_READ).groupBy("node", "link")


def _history(of: Sequence[Rule], now_ns: int, frame: pd.DataFrame) -> pd.DataFrame:
    events, _ = judge(of, End(), records(_columns(frame)), now_ns)
    return _frame(events)


def _go_on(
    of: Sequence[Rule], key: tuple[str, str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The measurements of one end in one trigger, or none when silence is due to be judged."""
    end = msgspec.json.decode(state.get[0], type=End) if state.exists else End()
    now_ns = state.getCurrentProcessingTimeMs() * _MS if state.hasTimedOut else 0
    # All of one trigger together: between two of its pieces nothing is in order.
    new = [record for frame in frames for record in records(_columns(frame))]
    events, end = judge(of, end, sorted(new, key=lambda record: record.stamp_ns), now_ns)
    state.update((msgspec.json.encode(end).decode(),))
    due_ns = next_ns(of, end)
    if due_ns is not None:
        wait_ms = due_ns // _MS + 1 - state.getCurrentProcessingTimeMs()
        state.setTimeoutDuration(max(int(wait_ms), 1))
    yield _frame(events)


def _columns(frame: pd.DataFrame) -> dict[str, list[object]]:
    return {name: frame[name].tolist() for name in frame.columns}


def _frame(events: Iterable[AlertEvent]) -> pd.DataFrame:
    return pd.DataFrame([row(event) for event in events], columns=ALERTS.names)
