from __future__ import annotations

import json
import math
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.measure.record import AHEAD_NS, FIELDS, Record, RecordError, check_record, decode, encode, link_of, problem
from chappe.store.records import COLUMNS
from tests.support.records import LINK, NOW, record

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/+#"), max_size=20).map(
    lambda text: "".join(letter for letter in text if letter.isprintable()).strip()
)
NUMBERS = st.none() | st.floats(0, 1e12, allow_nan=False)
RECORDS = st.builds(
    Record,
    link=st.uuids().map(str), node=NAMES.map(lambda name: name or "n"),
    stamp_ns=st.integers(1, NOW), uri=NAMES, peer=NAMES, realm=NAMES,
    user_group=NAMES, transport=NAMES, interval_ms=NUMBERS, window=st.integers(5, 100), outliers=st.integers(0, 5),
    latency_ms=NUMBERS, deviation_ms=NUMBERS, jitter_ms=NUMBERS, jitter=NUMBERS, loss=st.none() | st.floats(0, 1),
    bandwidth=NUMBERS, cost=NUMBERS, profile=NAMES, published=st.booleans(),
    origin=st.sampled_from(["measured", "foreign:pscheduler"]),
)  # fmt: skip


@given(st.lists(RECORDS, max_size=5))
def test_what_was_encoded_is_decoded(records: list[Record]) -> None:
    assert decode(encode(records), NOW) == (records, [])


@pytest.mark.spec("MR-077")
def test_a_link_has_a_uuid_and_a_uri() -> None:
    found = record()
    assert uuid.UUID(found.link).int.bit_length() <= 128
    assert found.uri == "tcp://host:9000"
    assert link_of("tcp://host:9000") == link_of("tcp://host:9000") != link_of("tcp://host:9001")


@pytest.mark.spec("MR-106")
def test_every_record_says_for_which_group_it_is() -> None:
    assert record().user_group == ""  # open to everybody
    ((kept,), _) = decode(encode([record(user_group="A")]), NOW)
    assert kept.user_group == "A"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deviation_ms": -1.2}, "deviation_ms: -1.2 is negative"),  # the sample of the source
        ({"latency_ms": math.nan}, "latency_ms: nan is no number"),
        ({"cost": math.inf}, "cost: inf is no number"),
        ({"loss": 2.0}, "loss: 2 is above 1; it is a share"),
        ({"stamp_ns": NOW + AHEAD_NS + 1}, "stamp_ns: is 120 s in the future; set the clock of a"),
        ({"stamp_ns": 0}, "stamp_ns: 0 is not after 1970"),
        ({"link": "17"}, "link: '17' is no UUID"),
        ({"link": LINK.upper()}, "is not written as a UUID"),
        ({"node": ""}, "node: is empty"),
        ({"node": "a/b"}, "node: 'a/b' has / \\+ #"),
        ({"realm": "x\x00"}, "realm: .* control characters"),
        ({"user_group": "x" * 300}, "user_group: .* over 255"),
        ({"window": 3, "outliers": 4}, "outliers: 4 of a window of 3 cannot be"),
        ({"version": 9}, "version: 9 is not known here"),
        ({"origin": "rumour"}, "origin: 'rumour' is neither"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        check_record(record(**fields), NOW)


def test_one_bad_line_does_not_cost_the_others() -> None:
    good = [record(node="a"), record(node="b")]
    first, second = encode(good).splitlines()
    body = b"\n".join([first, b"{", b'{"link": 3}', b"\xff\xfe", b"[" * 5000, b"x" * 9000, b"", second])
    taken, refused = decode(body, NOW)
    assert taken == good
    assert [line for line, _ in refused] == [2, 3, 4, 5, 6]
    assert "Expected `str`, got `int` - at `$.link`" in refused[1].reason
    assert "9000 bytes" in refused[4].reason


def test_a_body_that_is_too_large_is_not_read() -> None:
    taken, refused = decode(b" " * (1 << 20) + b"!", NOW)
    assert taken == []
    assert "send several reports" in refused[0].reason


def test_unknown_fields_of_a_later_program_are_passed_over() -> None:
    text = json.loads(encode([record()])) | {"colour": "green"}
    assert decode(json.dumps(text).encode(), NOW) == ([record()], [])


def test_tables_have_the_fields_of_a_record() -> None:
    assert tuple(COLUMNS) == FIELDS
    assert problem(record(), NOW) == ""
