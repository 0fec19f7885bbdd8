"""STATUS payloads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import ProtocolError
from chappe.wire.status import (
    BLOCK_LIMIT,
    Record,
    decode_status,
    decode_value,
    encode_status,
    encode_value,
    record,
    variable_id,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
records = st.builds(
    Record,
    INT64,
    st.integers(1, (1 << 32) - 1),
    st.binary(min_size=8, max_size=8),
    st.integers(0, 4).flatmap(lambda count: st.binary(min_size=24 * count, max_size=24 * count)),
)


@given(st.lists(records, min_size=1, max_size=30))
def test_records_round_trip(run: list[Record]) -> None:
    assert decode_status(encode_status(run)) == run


@pytest.mark.spec("GS-001")
def test_a_record_is_24_bytes_big_endian_with_fields_in_their_places() -> None:
    raw = record(0x0102030405060708, 0x0A0B0C0D, 0x1112131415161718).encode()
    assert raw.hex() == "01020304050607080a0b0c0d000000001112131415161718"


@pytest.mark.spec("GS-002")
@pytest.mark.parametrize("count", [0, 1, 2, 254, 255])
def test_up_to_255_option_blocks_follow_their_record(count: int) -> None:
    large = Record(5, 6, bytes(8), bytes(range(24)) * count)
    raw = large.encode()
    assert len(raw) == 24 + 24 * count
    assert raw[12] == count
    assert decode_status(raw + record(7, 8, 9).encode()) == [large, record(7, 8, 9)]


@pytest.mark.spec("GS-002")
def test_bytes_fill_the_value_and_then_option_blocks() -> None:
    longest = bytes(range(1, 9)) + bytes(24 * BLOCK_LIMIT)
    assert record(0, 1, longest).blocks == longest[8:]
    assert record(0, 1, b"123456789").blocks == b"9" + bytes(23)
    assert record(0, 1, b"12345678").blocks == b""
    with pytest.raises(ProtocolError, match="at most 6128 bytes, not 6129"):
        record(0, 1, longest + b"x")


@pytest.mark.spec("GS-007")
@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_a_record_that_reaches_past_the_frame_is_refused(run: list[Record], data: st.DataObject) -> None:
    whole = encode_status(run)
    ends = {len(encode_status(run[:count])) for count in range(len(run) + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda size: size not in ends))
    with pytest.raises(ProtocolError, match="STATUS: "):
        decode_status(whole[:cut])


@pytest.mark.spec("GS-007")
def test_an_option_count_that_lies_does_not_shift_the_next_record() -> None:
    raw = bytearray(record(1, 2, 3).encode() + record(4, 5, 6).encode())
    raw[24 + 12] = 1
    with pytest.raises(ProtocolError, match="1 option blocks needs 24 bytes at 48, the payload has 48"):
        decode_status(bytes(raw))


def test_a_frame_without_records_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no record"):
        decode_status(b"")


@pytest.mark.spec("GS-020")
@given(INT64, st.floats(allow_nan=False), st.booleans())
def test_int_float_and_bool_round_trip(integer: int, number: float, truth: bool) -> None:
    assert record(0, 1, integer).value_as("int") == integer
    assert record(0, 1, number).value_as("float") == number
    assert record(0, 1, truth).value_as("bool") is truth


@pytest.mark.spec("GS-020")
def test_the_built_in_types_have_one_form_each() -> None:
    assert encode_value(-2).hex() == "fffffffffffffffe"
    assert encode_value(1.5).hex() == "3ff8000000000000"
    assert encode_value(True).hex() == "0100000000000000"
    assert math.isnan(float(decode_value("float", encode_value(math.nan))))
    with pytest.raises(ProtocolError, match="does not fit"):
        encode_value(1 << 63)


@pytest.mark.parametrize(
    "bad",
    [
        Record(0, 0, bytes(8)),
        Record(0, 1, bytes(7)),
        Record(0, 1, bytes(8), bytes(23)),
        Record(0, 1, bytes(8), bytes(24 * 256)),
        Record(1 << 63, 1, bytes(8)),
        Record(0, 1 << 32, bytes(8)),
    ],
)
def test_what_the_wire_cannot_say_is_not_encoded(bad: Record) -> None:
    with pytest.raises(ProtocolError):
        bad.encode()


def test_a_variable_id_is_ten_bits_of_leaf_and_22_of_counter() -> None:
    assert variable_id(1, 1) == 0x0040_0001
    assert variable_id(1023, (1 << 22) - 1) == 0xFFFF_FFFF
    with pytest.raises(ProtocolError):
        variable_id(1024, 0)
