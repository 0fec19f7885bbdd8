"""RecordBatches around buffers that compiled code has filled; nothing here runs once a row."""

from __future__ import annotations

from functools import cache
from typing import Any

VALUE_TYPES = ("float", "int", "bool", "bytes")


def type_code(publisher: str, variable: str, kind: str) -> int:
    """How values of the type are kept; a user type travels as bytes."""
    if kind.startswith("struct:"):
        return VALUE_TYPES.index("bytes")
    if kind not in VALUE_TYPES:
        raise ValueError(f"type {kind!r} of {publisher}/{variable} is not one of {', '.join(VALUE_TYPES)}, struct:…")
    return VALUE_TYPES.index(kind)


@cache
def _arrow() -> Any:
    import pyarrow  # only a client that asks for Arrow pays for loading it

    return pyarrow


@cache
def event_schema() -> Any:
    """Columns of `Subscription.arrow()`."""
    pa = _arrow()
    return pa.schema(
        [
            ("topic", pa.dictionary(pa.int32(), pa.string())),
            ("issuer", pa.dictionary(pa.int32(), pa.binary())),
            ("sequence", pa.uint32()),
            ("body", pa.binary()),
        ]
    )


@cache
def status_schema(value: str) -> Any:
    """Columns of `Watch.arrow()` for values of that type."""
    pa = _arrow()
    types = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "bytes": pa.binary(8)}
    stamp = pa.timestamp("ns", "UTC")
    return pa.schema(
        [
            ("variable", pa.uint32()),
            ("name", pa.dictionary(pa.int32(), pa.string())),
            ("created", stamp),
            ("received", stamp),
            ("value", types[value]),
        ]
    )


def event_batch(
    rows: int,
    topics: list[str],
    topic: bytes,
    issuers: list[bytes],
    issuer: bytes,
    sequence: bytes,
    offsets: bytes,
    bodies: bytes,
) -> Any:
    """The batch of these columns; `topic` and `issuer` are int32 places in their lists."""
    pa = _arrow()
    columns = [
        _dictionary(rows, topic, pa.array(topics, pa.string())),
        _dictionary(rows, issuer, pa.array(issuers, pa.binary())),
        _fixed(pa.uint32(), rows, sequence),
        pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(bodies)]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=event_schema())


def names_array(names: list[str]) -> Any:
    """The dictionary of the `name` column, made once for each change of a stream's variables."""
    pa = _arrow()
    return pa.array(names, pa.string())


def status_batch(
    rows: int, kind: str, names: Any, name: bytes, variable: bytes, created: bytes, received: bytes, value: bytes
) -> Any:
    """The batch of these columns; `value` holds 8 bytes a row, or one bit a row for bool."""
    pa = _arrow()
    schema, types = status_schema(kind), _status_types(kind)
    columns = [
        _fixed(types[0], rows, variable),
        _dictionary(rows, name, names),
        _fixed(types[2], rows, created),
        _fixed(types[3], rows, received),
        _fixed(types[4], rows, value),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@cache
def _status_types(kind: str) -> list[Any]:
    return list(status_schema(kind).types)


def value_column(kind: str, bits: bytes, places: bytes, codes: bytes | None) -> bytes:
    """Values of 8 bytes as their Arrow type wants them: bool as bits, bytes in order, mixed numbers as doubles.

    `codes` has the type of each watch, if they differ, and `places` the watch of each row.
    """
    import numpy  # only a client that asks for Arrow pays for loading it

    words = numpy.frombuffer(bits, numpy.uint64)
    if kind == "bool":
        return numpy.packbits(words >> 56 != 0, bitorder="little").tobytes()
    if kind == "bytes":
        return words.byteswap().tobytes()
    assert codes is not None
    types = numpy.frombuffer(codes, numpy.uint8)[numpy.frombuffer(places, numpy.uint32)]
    numbers = words.view(numpy.float64).copy()
    whole, truth = types == VALUE_TYPES.index("int"), types == VALUE_TYPES.index("bool")
    numbers[whole] = words.view(numpy.int64)[whole]
    numbers[truth] = words[truth] >> 56 != 0
    return numbers.tobytes()


def _fixed(kind: Any, rows: int, content: bytes) -> Any:
    pa = _arrow()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(content)])


def _dictionary(rows: int, places: bytes, words: Any) -> Any:
    pa = _arrow()
    return pa.DictionaryArray.from_arrays(_fixed(pa.int32(), rows, places), words, safe=False)
