"""What archives and publishers tell each other about durable events, and what an archive remembers of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.archive.confirmations import DurableEvent, Identity, KnownEvents, confirmations, ranges
from chappe.errors import ChappeError
from chappe.wire.durable import (
    ResentEvent,
    StoreRequest,
    decode_confirmation,
    decode_store_request,
    encode_store_request,
)

A, B = b"a" * 16, b"b" * 16


@given(st.sets(st.integers(0, 200)))
def test_ranges_are_the_numbers_and_no_two_of_them_touch(numbers: set[int]) -> None:
    found = ranges(numbers)
    assert [number for first, last in found for number in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))


def test_each_publisher_is_told_at_its_node_and_in_one_message() -> None:
    stored = [Identity(A, 1, 3), Identity(B, 1, 9), Identity(A, 1, 2), Identity(A, 1, 7)]
    told = confirmations("plant", [DurableEvent(each, "east/n7") for each in stored])
    assert [address.text for address, _ in told] == [f"east/n7@confirm:{each.hex()}" for each in (A, B)]
    first = decode_confirmation(told[0][1])
    assert (first.archive, first.epoch, first.ranges) == ("plant", 1, ((2, 3), (7, 7)))


def test_who_has_moved_is_told_at_both_nodes() -> None:
    told = confirmations("plant", [DurableEvent(Identity(A, 1, 1), "n1"), DurableEvent(Identity(A, 1, 2), "n2")])
    assert [address.text.partition("@")[0] for address, _ in told] == ["n1", "n2"]


@pytest.mark.parametrize("origin", ["", "a@b", "a//b", "+", "#", "x" * 2000, "a\0", f"n1@{A.hex()}"])
def test_a_publisher_at_no_node_is_told_nothing(origin: str) -> None:
    assert confirmations("plant", [DurableEvent(Identity(A, 1, 1), origin)]) == []


@pytest.mark.parametrize("body", [b"", b"\xff", b"{}", b'{"archive": "a", "epoch": 1, "ranges": [[1]]}'])
def test_what_is_no_message_of_an_archive_is_refused(body: bytes) -> None:
    with pytest.raises(ChappeError, match="is no message of an archive"):
        decode_confirmation(body)


def test_events_that_are_sent_again_say_what_they_were() -> None:
    events = (ResentEvent(5, "a/b", "s", 1, b"x"), ResentEvent(6, "7", "i", 2, b""))
    assert decode_store_request(encode_store_request(1, events)) == StoreRequest(1, events)
    wrong = [ResentEvent(1 << 32, "a", "s", 1, b""), ResentEvent(1, "", "s", 1, b""), ResentEvent(1, "a", "x", 1, b"")]
    for body in (b"", b"\xc1", *(encode_store_request(1, [each]) for each in wrong)):
        with pytest.raises(ChappeError, match="does not say what is to be stored"):
            decode_store_request(body)


def test_an_event_is_new_then_on_its_way_then_stored() -> None:
    known = KnownEvents()
    identity = Identity(A, 1, 5)
    assert known.record_arrival(identity) is None
    assert known.record_arrival(identity) is False
    known.settle([identity], stored=True)
    assert known.record_arrival(identity) is True
    assert known.record_arrival(Identity(A, 2, 5)) is None
    assert known.record_arrival(Identity(B, 1, 5)) is None


def test_an_event_that_was_not_taken_may_come_again() -> None:
    known = KnownEvents()
    identity = Identity(A, 1, 5)
    known.record_arrival(identity)
    known.settle([identity, Identity(B, 1, 1)], stored=False)
    assert known.record_arrival(identity) is None


def test_only_the_newest_events_and_sessions_are_remembered() -> None:
    known = KnownEvents(issuers=2, remembered=3)
    for sequence in range(4):
        known.record_arrival(Identity(A, 1, sequence))
    assert known.record_arrival(Identity(A, 1, 1)) is False
    assert known.record_arrival(Identity(A, 1, 0)) is None  # it was forgotten
    known.record_arrival(Identity(B, 1, 0))
    known.record_arrival(Identity(b"c" * 16, 1, 0))
    assert known.record_arrival(Identity(B, 1, 0)) is False
    assert known.record_arrival(Identity(A, 1, 3)) is None
