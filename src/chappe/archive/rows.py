"""Rows of the archive made of what a client receives: whole columns where it gives columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from chappe.archive.schema import Rows, input_schema
from chappe.client._inbox import Message
from chappe.client._status import StatusEvent
from chappe.client.topics import topic_name

FEW = 16  # events that are cheaper as rows
LENGTH_BYTES = 2  # before the content of a user's type


def status_rows(batch: pa.RecordBatch, node: str, mode: int) -> pa.RecordBatch:
    """Values that a client gave as columns: of one type, or of several that are all numbers."""
    count = batch.num_rows
    value = batch.column("value")
    numbers, whole, content = None, None, None
    if pa.types.is_floating(value.type):
        numbers = value
    elif pa.types.is_integer(value.type):
        numbers, whole = value.cast(pa.float64(), safe=False), value
    elif pa.types.is_boolean(value.type):
        whole = value.cast(pa.int64())
        numbers = whole.cast(pa.float64())
    else:
        content = value
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(node, count),
            batch.column("variable"),
            batch.column("name"),
            batch.column("created").cast(pa.int64()),
            pa.nulls(count, pa.float64()) if numbers is None else numbers,
            pa.nulls(count, pa.int64()) if whole is None else whole,
            pa.nulls(count, pa.binary()) if content is None else content,
            pa.repeat(pa.scalar(mode, pa.int8()), count),
            pa.repeat(pa.scalar(False), count),
            pa.nulls(count, pa.string()),
            batch.column("received").cast(pa.int64()),
        ],
        names=input_schema("status").names,
    )


def value_rows(events: Sequence[StatusEvent], node: str, mode: int) -> pa.RecordBatch:
    """Values that a client gave one by one: of any type."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "node": node, "variable": event.variable_id, "name": f"{event.publisher}/{event.variable}",
                "created_ns": event.created, "mode": mode, "extrapolated": event.extrapolated,
                "received_ns": event.received, **_value(event.value),
            }
            for event in events
        ],
        schema=input_schema("status"),
    )  # fmt: skip


def _value(value: object) -> dict[str, object]:
    match value:
        case bytes():
            return {"content": value}
        case int():  # bool, too
            return {"value": float(value), "whole": int(value)}
    return {"value": value}


def struct_content(raw: bytes) -> bytes:
    """What a user's type holds, as MessagePack, without what fills the last block."""
    length = int.from_bytes(raw[:LENGTH_BYTES], "big")
    return raw[LENGTH_BYTES : LENGTH_BYTES + length]


class StoredEvent(NamedTuple):
    """An event to keep; (issuer, epoch, sequence) is its identity."""

    topic: str
    kind: str
    issuer: bytes
    epoch: int
    sequence: int
    created_ns: int | None
    body: bytes
    durable: bool


def stored_event(message: Message, durable: bool = False) -> StoredEvent:
    """What is kept of a message of a client."""
    topic = message.topic
    if isinstance(topic, str):
        kind, text = "s", topic
    else:
        name = topic_name(topic)
        kind, text = name.kind, str(name.name)
    issuer, epoch, sequence = message.identifier
    return StoredEvent(text, kind, issuer, epoch, sequence, message.created, message.body, durable)


def event_rows(events: Sequence[StoredEvent], node: str, received_ns: int) -> Rows:
    """Events as rows: of many their columns, because rows cost four times as much then."""
    if len(events) <= FEW:
        return [{"node": node, **each._asdict(), "received_ns": received_ns} for each in events]
    schema, count = input_schema("events"), len(events)
    columns = zip(*events, strict=True)
    arrays = [
        pa.array(column, schema.field(name).type) for name, column in zip(StoredEvent._fields, columns, strict=True)
    ]  # the columns of the dataset have the names of the fields of StoredEvent
    return pa.RecordBatch.from_arrays(
        [pa.repeat(node, count), *arrays, pa.repeat(pa.scalar(received_ns, pa.int64()), count)], schema=schema
    )
