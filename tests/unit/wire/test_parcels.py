"""The header of parcels: what cells write and read, and bytes that no cell would write."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chappe.errors import ProtocolError
from chappe.wire.dump import describe
from chappe.wire.parcels import MAX_HOPS, CellParcel, ParcelFlag
from chappe.wire.payloads import Parcel

HOPS = (b"\1" * 8, b"\2" * 8, b"\3" * 8)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@st.composite
def parcels(draw: st.DrawFn) -> CellParcel:
    hops = tuple(draw(st.lists(st.binary(min_size=8, max_size=8), max_size=MAX_HOPS)))
    return CellParcel(
        draw(st.integers(0, (1 << 64) - 1)), draw(st.integers(0, (1 << 32) - 1)), draw(names), draw(names),
        draw(st.binary(max_size=100)), ParcelFlag(draw(st.integers(0, 31))), draw(st.integers(0, MAX_HOPS)),
        draw(st.integers(0, len(hops))), hops,
    )  # fmt: skip


@given(parcels())
def test_decoding_gives_what_was_encoded(parcel: CellParcel) -> None:
    assert CellParcel.decode(parcel.encode()) == parcel


@given(st.binary(max_size=200))
def test_any_bytes_are_a_parcel_that_encodes_to_them_or_refused(content: bytes) -> None:
    try:
        parcel = CellParcel.decode(content)
    except ProtocolError:
        return
    assert parcel.encode() == content


def test_passing_on_changes_two_bytes_at_fixed_places() -> None:
    came = CellParcel(7, 1, "fr.paris", "de.berlin", b"body", hops_left=9, position=1, hops=HOPS).encode()
    onward = bytearray(came)
    onward[1] -= 1
    onward[2] += 1
    expected = CellParcel(7, 1, "fr.paris", "de.berlin", b"body", hops_left=8, position=2, hops=HOPS)
    assert CellParcel.decode(bytes(onward)) == expected
    # behind the frame's header and the version, the ids are aligned to eight bytes
    assert came[19 : 19 + 24] == b"".join(HOPS)
    assert (4 + 1 + 19) % 8 == 0


GOOD = CellParcel(7, 1, "fr.paris", "de.berlin", b"body", hops=HOPS).encode()
HOSTILE = {
    "empty": b"",
    "cut in its header": GOOD[:18],
    "cut in its hops": GOOD[:30],
    "cut in its names": GOOD[: 19 + 24 + 3],
    "unknown flag": bytes([0x20]) + GOOD[1:],
    "reserved byte": GOOD[:6] + b"\1" + GOOD[7:],
    "more hops left than allowed": GOOD[:1] + bytes([MAX_HOPS + 1]) + GOOD[2:],
    "position past the list": GOOD[:2] + bytes([len(HOPS) + 1]) + GOOD[3:],
    "more hops than allowed": GOOD[:3] + bytes([MAX_HOPS + 1]) + GOOD[4:19] + bytes(8 * (MAX_HOPS + 1)) + GOOD[43:],
    "no destination": GOOD[:4] + b"\0" + GOOD[5:],
    "no source": GOOD[:5] + b"\0" + GOOD[6:],
    "destination that is not UTF-8": GOOD[:43] + b"\xff" + GOOD[44:],
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_no_cell_would_write_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        CellParcel.decode(content)
    assert describe(Parcel(content)) == ({"content": content.hex()} if content else {})


@pytest.mark.parametrize(
    "parcel",
    [
        CellParcel(1, 1, "", "a"),
        CellParcel(1, 1, "a", "b" * 256),
        CellParcel(1, 1, "a", "b", hops=(b"short",)),
        CellParcel(1, 1, "a", "b", hops=(b"\0" * 8,) * (MAX_HOPS + 1)),
        CellParcel(1, 1, "a", "b", position=1),
        CellParcel(1 << 64, 1, "a", "b"),
    ],
)
def test_what_cannot_be_written_is_refused(parcel: CellParcel) -> None:
    with pytest.raises(ProtocolError):
        parcel.encode()


def test_a_dump_shows_what_cells_wrote() -> None:
    shown = describe(Parcel(GOOD))
    assert (shown["destination"], shown["source"], shown["flow"]) == ("fr.paris", "de.berlin", 7)
