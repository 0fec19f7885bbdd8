"""Rows of what a client receives: whole columns, every type of value, exact integers and times."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from chappe.archive.rows import FEW, StoredEvent, event_rows, status_rows, stored_event, struct_content, value_rows
from chappe.archive.schema import complete
from chappe.client.columns import status_schema
from chappe.client.topics import Long
from chappe.errors import ConfigError

BIG = (1 << 53) + 1  # no double can say it


def batch(kind: str, values: list[object]) -> pa.RecordBatch:
    count = len(values)
    times = pa.array(range(count), pa.int64()).cast(pa.timestamp("ns", "UTC"))
    columns = [
        pa.array([7] * count, pa.uint32()),
        pa.array(["m/v"] * count).dictionary_encode(),
        times,
        times,
        pa.array(values, status_schema(kind).field("value").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=status_schema(kind))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("float", 1.5, (1.5, None, None)),
        ("int", BIG, (float(BIG), BIG, None)),
        ("bool", True, (1.0, 1, None)),
        ("bytes", b"12345678", (None, None, b"12345678")),
    ],
)
def test_columns_of_every_type_fit_the_dataset(kind: str, value: object, expected: tuple[object, ...]) -> None:
    rows = complete("status", status_rows(batch(kind, [value, value]), "a", 2), 10).to_pylist()
    assert [(row["value"], row["whole"], row["content"]) for row in rows] == [expected] * 2
    assert [(row["offset"], row["created_ns"], row["mode"]) for row in rows] == [(10, 0, 2), (11, 1, 2)]
    assert {(row["node"], row["name"], row["variable"], row["extrapolated"]) for row in rows} == {
        ("a", "m/v", 7, False)
    }


def test_values_one_by_one_may_be_of_any_type() -> None:
    events = [
        SimpleNamespace(
            variable_id=1, publisher="m", variable="v", created=5, received=6, extrapolated=False, value=value
        )
        for value in (2.5, BIG, False, b"raw")
    ]
    rows = complete("status", value_rows(events, "a", 0), 0).to_pylist()
    assert [(row["value"], row["whole"], row["content"]) for row in rows] == [
        (2.5, None, None), (float(BIG), BIG, None), (0.0, 0, None), (None, None, b"raw"),
    ]  # fmt: skip


def test_the_content_of_a_user_type_ends_where_its_length_says() -> None:
    assert struct_content(b"\x00\x03abc\0\0\0") == b"abc"


@pytest.mark.parametrize(("topic", "text", "kind"), [("a/b", "a/b", "s"), (7, "7", "i"), (Long(9), "9", "l")])
def test_an_event_keeps_topic_kind_and_identity(topic: object, text: str, kind: str) -> None:
    message = SimpleNamespace(topic=topic, identifier=(b"i" * 16, 1, 4_000_000_000), created=None, body=b"x")
    one = stored_event(message, durable=True)
    assert one == StoredEvent(text, kind, b"i" * 16, 1, 4_000_000_000, None, b"x", True)
    (row,) = complete("events", event_rows([one], "a", 99), 3).to_pylist()
    assert (row["offset"], row["node"], row["sequence"], row["received_ns"]) == (3, "a", 4_000_000_000, 99)
    assert (row["created_ns"], row["durable"]) == (None, True)


def test_few_and_many_events_make_the_same_rows() -> None:
    events = [StoredEvent(f"t/{n}", "s", b"i" * 16, 1, n, n or None, b"x" * n, n % 2 == 0) for n in range(FEW + 1)]
    few = complete("events", event_rows(events[:FEW], "a", 1_700_000_000_123_456_789), 5)
    many = complete("events", event_rows(events, "a", 1_700_000_000_123_456_789), 5)
    assert few.schema.equals(many.schema)
    assert few.equals(many.slice(0, FEW))


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"topic": None}, "'topic' has no value"), ({"colour": 1}, "'colour' is unknown"), ({"topic": ...}, "missing")],
)
def test_a_row_that_does_not_fit_names_its_column(change: dict[str, object], problem: str) -> None:
    (row,) = event_rows([StoredEvent("t", "s", b"i" * 16, 1, 1, 1, b"x", True)], "a", 1)
    changed = {name: value for name, value in {**row, **change}.items() if value is not ...}
    with pytest.raises(ConfigError, match=problem):
        complete("events", [changed], 0)
