"""Everything but STATUS: round trips of all payloads and refusal of broken ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import ProtocolError
from chappe.wire.control import Hello, Refused, Variable
from chappe.wire.events import Event, Issuer, Topic, TopicName, check_topic
from chappe.wire.frames import Frame, Kind
from chappe.wire.management import Path, Setup
from chappe.wire.payloads import Credit, Echo, Loss, Parcel, Payload, Probe, decode_payload, encode_payload


def unsigned(size: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << 8 * size) - 1)


def signed(size: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1)


level = st.text(st.characters(exclude_characters="/+#", exclude_categories=["Cs"]), min_size=1, max_size=8)
group = st.text(max_size=8)
topic_names = st.one_of(
    st.builds(TopicName, st.lists(level, min_size=1, max_size=5).map("/".join), st.just("s"), group),
    st.builds(TopicName, signed(4), st.just("i"), group),
    st.builds(TopicName, signed(8), st.just("l"), group),
)
properties = st.dictionaries(
    st.text(max_size=12),
    st.one_of(st.text(max_size=20), signed(8), st.floats(allow_nan=False), st.booleans(), st.binary(max_size=20)),
    max_size=4,
)
events = st.builds(
    Event,
    topic=unsigned(4),
    sequence=unsigned(4),
    body=st.binary(max_size=100),
    issuer=unsigned(3),
    priority=st.integers(0, 6),
    durable=st.booleans(),
    resent=st.booleans(),
    created=st.none() | signed(8),
    expires=st.none() | signed(8),
    reply=st.none() | topic_names,
    correlation=st.none() | unsigned(8),
    content_type=st.none() | st.text(max_size=20),
    properties=properties,
    unknown=st.lists(st.tuples(st.integers(17, 255), st.binary(max_size=20)), max_size=3).map(tuple),
)
session = st.binary(min_size=16, max_size=16)
probes = st.builds(Probe, unsigned(8), unsigned(8), st.binary(max_size=1384))
payloads: st.SearchStrategy[Payload] = st.one_of(
    events,
    st.builds(Topic, unsigned(4), topic_names),
    st.builds(Issuer, unsigned(3), unsigned(4), session),
    probes,
    st.builds(Echo, probes),
    st.builds(Loss, unsigned(8), unsigned(8)),
    st.builds(Credit, unsigned(8)),
    st.builds(Parcel, st.binary(max_size=50)),
    st.builds(Hello, role=st.sampled_from(["client", "node"]), name=st.text(max_size=20), session=session),
    st.builds(
        Setup, id=unsigned(4), epoch=unsigned(4), command=unsigned(4), paths=st.tuples(st.builds(
            Path, st.builds(Variable, unsigned(4), st.text(), st.text(), st.text(), *[unsigned(4)] * 4), unsigned(4),
            st.text(), st.text(), *[st.lists(unsigned(7), min_size=1, max_size=16).map(tuple)] * 2, unsigned(2),
        )),
    ),
)  # fmt: skip


@given(payloads)
def test_every_payload_round_trips(payload: Payload) -> None:
    assert decode_payload(encode_payload(payload)) == payload


@given(st.sampled_from(Kind), st.binary(max_size=300))
def test_hostile_bytes_end_in_one_kind_of_error(kind: Kind, payload: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_payload(Frame(kind, payload))


@given(payloads, st.data())
def test_a_mutated_payload_is_decoded_or_refused(payload: Payload, data: st.DataObject) -> None:
    kind, whole = encode_payload(payload)
    place = data.draw(st.integers(0, len(whole) - 1))
    broken = whole[:place] + data.draw(st.binary(max_size=3)) + whole[place + 1 :]
    with contextlib.suppress(ProtocolError):
        decode_payload(Frame(kind, broken))


def test_an_event_without_extension_costs_16_bytes_with_its_header() -> None:
    assert len(encode_payload(Event(1, 1)).encode()) == 16


@pytest.mark.parametrize(
    ("flags", "reason"), [(0x07, "flags 0x07"), (0x40, "flags 0x40"), (0x83, "flags 0x83"), (0x08, "extension")]
)
def test_event_flags_without_meaning_are_refused(flags: int, reason: str) -> None:
    payload = bytes(4) + bytes((flags,)) + bytes(7)
    with pytest.raises(ProtocolError, match=reason):
        decode_payload(Frame(Kind.EVENT, payload))


@pytest.mark.parametrize(
    ("extension", "reason"),
    [
        ("0100020000", "item 1: time needs 8 bytes"),
        ("01000900000000000000000000", "item 1: 1 bytes too many"),
        ("04000100", "correlation needs 8"),
        ("05000180", "content type is not UTF-8"),
        ("100003016171", "unknown type of property 'q'"),
        ("1000020561", "name needs 5 bytes"),
        ("0100", "length of item 1 needs 2 bytes"),
        ("030000", "TOPIC: type needs 1"),
    ],
)
def test_broken_extension_items_are_refused_with_their_place(extension: str, reason: str) -> None:
    raw = bytes.fromhex(extension)
    payload = bytes(4) + b"\x0b" + bytes(7) + len(raw).to_bytes(2, "big") + raw
    with pytest.raises(ProtocolError, match=reason):
        decode_payload(Frame(Kind.EVENT, payload))


@pytest.mark.parametrize("topic", ["", "/a", "a/", "a//b", "a/+", "#", "a/b#", "x" * 1025])
def test_topics_nobody_may_publish_to(topic: str) -> None:
    with pytest.raises(ProtocolError):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["a", "a/b/c", "ä/ö", "x" * 1024])
def test_topics_one_may_publish_to(topic: str) -> None:
    check_topic(topic)


def test_a_text_topic_is_not_a_number() -> None:
    with pytest.raises(ProtocolError, match="not of kind"):
        TopicName("a", "i").encode()
    with pytest.raises(ProtocolError, match="unknown type of topic"):
        TopicName(1, "q").encode()


@pytest.mark.parametrize("kind", [Kind.LOSS, Kind.CREDIT, Kind.ISSUER])
def test_fixed_payloads_have_one_length(kind: Kind) -> None:
    size = {Kind.LOSS: 16, Kind.CREDIT: 8, Kind.ISSUER: 24}[kind]
    decode_payload(Frame(kind, bytes(size)))
    for wrong in (size - 1, size + 1):
        with pytest.raises(ProtocolError):
            decode_payload(Frame(kind, bytes(wrong)))


def test_a_parcel_of_another_version_is_refused() -> None:
    parcel = encode_payload(Parcel(b"content")).payload
    with pytest.raises(ProtocolError, match="header of version 1"):
        decode_payload(Frame(Kind.PARCEL, b"\x01" + parcel[1:]))


def test_an_unknown_control_message_is_refused_by_name() -> None:
    raw = encode_payload(Refused(reason="no")).payload.replace(b"Refused", b"Refuted")
    with pytest.raises(ProtocolError, match="unknown control message 'Refuted'"):
        decode_payload(Frame(Kind.CONTROL, raw))
