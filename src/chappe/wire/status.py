"""STATUS payloads: runs of 24-byte records with option blocks (GS-001, GS-002)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from chappe.errors import ProtocolError
from chappe.wire.frames import Cursor, signed, unsigned

RECORD_SIZE = 24
BLOCK_SIZE = 24
BLOCK_LIMIT = 255
VALUE_SIZE = 8
LEAF_BITS, COUNTER_BITS = 10, 22

ValueType = Literal["int", "float", "bool", "bytes"]
Value = int | float | bool | bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One timestamped value of a variable; `value` holds eight bytes, `blocks` a multiple of 24."""

    created: int
    variable: int
    value: bytes
    blocks: bytes = b""

    def encode(self) -> bytes:
        """The record and its option blocks."""
        count, left = divmod(len(self.blocks), BLOCK_SIZE)
        if left or count > BLOCK_LIMIT:
            raise ProtocolError(f"option blocks are up to {BLOCK_LIMIT} times 24 bytes, not {len(self.blocks)} bytes")
        if len(self.value) != VALUE_SIZE:
            raise ProtocolError(f"the value of a record is {VALUE_SIZE} bytes, not {len(self.value)}")
        if self.variable == 0:
            raise ProtocolError("variable 0 is reserved")
        head = signed(self.created, 8, "created") + unsigned(self.variable, 4, "variable")
        return head + bytes((count, 0, 0, 0)) + self.value + self.blocks

    def value_as(self, type_: ValueType) -> Value:
        """The value as the type that the variable was registered with (GS-020)."""
        return decode_value(type_, self.value + self.blocks)


def record(created: int, variable: int, value: Value) -> Record:
    """A record that holds this value; bytes longer than eight continue in option blocks, padded with zeros."""
    raw = encode_value(value)
    return Record(created, variable, raw[:VALUE_SIZE], raw[VALUE_SIZE:])


def encode_value(value: Value) -> bytes:
    """Eight bytes of an int, float or bool; eight bytes and whole option blocks of bytes."""
    if isinstance(value, bool):
        return bytes((value,)) + bytes(VALUE_SIZE - 1)
    if isinstance(value, int):
        return signed(value, VALUE_SIZE, "value")
    if isinstance(value, float):
        return struct.pack(">d", value)
    blocks = -(-max(len(value) - VALUE_SIZE, 0) // BLOCK_SIZE)
    if blocks > BLOCK_LIMIT:
        raise ProtocolError(f"a value holds at most {VALUE_SIZE + BLOCK_LIMIT * BLOCK_SIZE} bytes, not {len(value)}")
    return value.ljust(VALUE_SIZE + blocks * BLOCK_SIZE, b"\0")


def decode_value(type_: ValueType, raw: bytes) -> Value:
    """The value in the bytes of a record; for `bytes` with its padding."""
    match type_:
        case "int":
            return int.from_bytes(raw[:VALUE_SIZE], "big", signed=True)
        case "float":
            number: float = struct.unpack(">d", raw[:VALUE_SIZE])[0]
            return number
        case "bool":
            return raw[0] != 0
        case "bytes":
            return raw


def encode_status(records: Iterable[Record]) -> bytes:
    """The payload of a STATUS frame."""
    return b"".join(record.encode() for record in records)


def decode_status(payload: bytes) -> list[Record]:
    """The records of a STATUS payload; ProtocolError if one reaches past the end (GS-007)."""
    if not payload:
        raise ProtocolError("STATUS: no record in the frame")
    cursor = Cursor(payload, "STATUS")
    records = []
    while cursor:
        created = cursor.signed(8, "created")
        variable = cursor.unsigned(4, "variable")
        count = cursor.unsigned(1, "option count")
        cursor.take(3, "padding")
        value = cursor.take(VALUE_SIZE, "value")
        records.append(Record(created, variable, value, cursor.take(count * BLOCK_SIZE, f"{count} option blocks")))
    return records


def variable_id(leaf: int, counter: int) -> int:
    """The identifier of a variable: ten bits of leaf, 22 of counter."""
    if not 0 <= leaf < 1 << LEAF_BITS or not 0 <= counter < 1 << COUNTER_BITS:
        raise ProtocolError(f"leaf {leaf} and counter {counter} do not fit into {LEAF_BITS} and {COUNTER_BITS} bits")
    return leaf << COUNTER_BITS | counter
