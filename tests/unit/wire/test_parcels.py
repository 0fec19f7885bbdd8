"""The header of parcels: what cells write and read, and bytes that no cell would write."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chappe.errors import ProtocolError
from chappe.wire.dump import describe
from chappe.wire.parcels import ACK_BYTES, MAX_HOPS, MAX_RANGES, AckFlag, Acknowledgement, CellParcel, ParcelFlag
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
    "unknown flag": bytes([0x40]) + GOOD[1:],
    "absent and not returned": bytes([0x20]) + GOOD[1:],
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


# --- acknowledgements


@st.composite
def acknowledgements(draw: st.DrawFn) -> Acknowledgement:
    expected = draw(st.integers(0, (1 << 32) - 1))
    edges = sorted(draw(st.sets(st.integers(0, 65_535), max_size=2 * MAX_RANGES)))
    pairs = zip(edges[::2], edges[1::2], strict=False)
    ranges = tuple(((expected + start) % (1 << 32), (expected + end) % (1 << 32)) for start, end in pairs)
    flags = AckFlag(draw(st.integers(0, 7)))
    text = draw(st.text(st.characters(codec="utf-8"), max_size=100)) if flags & ~AckFlag.RESET else ""
    return Acknowledgement(
        expected, draw(st.integers(0, (1 << 64) - 1)), draw(st.integers(0, (1 << 32) - 1)),
        draw(st.integers(0, (1 << 64) - 1)), ranges, flags, text,
    )  # fmt: skip


@given(acknowledgements())
def test_decoding_gives_the_acknowledgement_that_was_encoded(ack: Acknowledgement) -> None:
    assert Acknowledgement.decode(ack.encode()) == ack


@given(st.binary(max_size=120).map(lambda rest: b"\x01" + rest) | st.binary(max_size=40))
def test_any_bytes_are_an_acknowledgement_that_encodes_to_them_or_refused(body: bytes) -> None:
    try:
        ack = Acknowledgement.decode(body)
    except ProtocolError:
        return
    assert ack.encode() == body


def test_the_longest_acknowledgement_fits_into_its_parcel() -> None:
    ranges = tuple((2 * place, 2 * place + 1) for place in range(MAX_RANGES))
    ack = Acknowledgement(0, 0, ranges=ranges, flags=AckFlag.REFUSED, text="é" * 400)
    assert len(ack.encode()) + 1 + 19 + 2 * 255 <= ACK_BYTES
    assert Acknowledgement.decode(ack.encode()).text == "é" * 256


@pytest.mark.parametrize(
    "ranges", [((5, 5),), ((5, 4),), ((3, 9),), ((6, 9), (8, 10)), ((6, 65_541),)], ids=lambda ranges: str(ranges)
)
def test_ranges_ascend_behind_what_has_arrived(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ProtocolError, match="not behind"):
        Acknowledgement(5, 0, ranges=ranges).encode()
