"""Cutting a stream into frames, and refusing one that breaks the contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import ProtocolError, VersionError
from chappe.wire.control import MAJOR, MINOR
from chappe.wire.frames import PREAMBLE, Frame, FrameReader, Kind, check_preamble, encode_frame

frames = st.lists(st.builds(Frame, st.sampled_from(Kind), st.binary(max_size=200)), max_size=20)


@given(frames, st.data())
def test_frames_survive_any_cut(sent: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(frame.encode() for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader()
    seen = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += reader.feed(stream[begin:end])
    assert seen == sent
    assert reader.pending == 0


def test_unknown_kind_is_refused_by_its_first_byte() -> None:
    for kind in set(range(256)) - {int(kind) for kind in Kind}:
        with pytest.raises(ProtocolError, match=f"unknown kind of frame 0x{kind:02x}"):
            FrameReader().feed(bytes((kind,)))


def test_oversized_length_is_refused_before_its_payload_arrives() -> None:
    reader = FrameReader(max_payload=100)
    assert reader.feed(encode_frame(Kind.EVENT, bytes(100))) == [Frame(Kind.EVENT, bytes(100))]
    with pytest.raises(ProtocolError, match="EVENT frame of 101 bytes is above the limit of 100"):
        reader.feed(b"\x02\x00\x00\x65")


def test_a_length_that_24_bits_cannot_say_is_not_encoded() -> None:
    with pytest.raises(ProtocolError, match="at most 16777215"):
        encode_frame(Kind.EVENT, bytes(1 << 24))


@pytest.mark.parametrize("minor", [0, MINOR, 255])
def test_any_minor_version_of_the_same_major_is_accepted(minor: int) -> None:
    check_preamble(b"CHAPPE" + bytes((MAJOR, minor)))


@pytest.mark.parametrize("major", [0, 1, 3, 255])
def test_another_major_version_is_refused_with_both_versions(major: int) -> None:
    with pytest.raises(VersionError, match=rf"version {major}\.7, this side {MAJOR}\.{MINOR}"):
        check_preamble(b"CHAPPE" + bytes((major, 7)))


@pytest.mark.parametrize("opening", [b"", PREAMBLE[:7], b"GET / HTTP/1.1\r\n", b"chappe\x01\x01"])
def test_another_protocol_is_refused(opening: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a Chappe peer"):
        check_preamble(opening)
