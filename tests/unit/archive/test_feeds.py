"""Feeds: events in which nodes, brokers and clients tell of themselves become rows, or nothing and a reason."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from chappe.archive.feeds import FEEDS, FeedError
from chappe.archive.schema import complete, input_schema
from chappe.errors import ChappeError
from chappe.measure import record
from chappe.measure.messages import report_topic
from chappe.measure.record import Record, link_of
from chappe.wire import feeds
from chappe.wire.patterns import Pattern, overlaps

NOW = 1_760_000_000_000_000_000
RAW = msgspec.Raw(b'{"mode":0}')


def reading(**changes: Any) -> Record:
    fields: dict[str, Any] = {
        "link": link_of("tcp://b"), "node": "a", "stamp_ns": NOW - 5, "realm": "east", "peer": "b", "transport": "tcp",
        "latency_ms": 1.5, "loss": 0.25, "window": 16, "outliers": 1, **changes,
    }  # fmt: skip
    return Record(**fields)


GOOD: dict[str, tuple[str, bytes]] = {
    "measurements": (report_topic("east", "a", "agg"), record.encode([reading(), reading(latency_ms=None)])),
    "counters": (
        feeds.counters_topic("a"),
        msgspec.json.encode(
            feeds.Counters(created_ns=NOW - 5, counters={"chappe_mode": {'node="a"': 3.0, 'node="ä"': -1.5}})
        ),
    ),
    "broker": (
        feeds.broker_topic("leaf"),
        msgspec.json.encode(feeds.Actions(epoch=2, actions=(feeds.Action("lead", "leaf", NOW - 5, RAW),) * 3)),
    ),
    "quality": (
        feeds.quality_topic("client/1"),
        msgspec.json.encode(feeds.Quality(breaches=(feeds.Breach("p/v", "late", NOW - 5, 7, 12, RAW),))),
    ),
}


def arrow(dataset: str, rows: list[dict[str, object]]) -> pa.RecordBatch:
    return complete(dataset, pa.RecordBatch.from_pylist(rows, schema=input_schema(dataset)), 0)


@pytest.mark.parametrize("name", FEEDS)
def test_rows_have_the_columns_of_their_dataset(name: str) -> None:
    feed, (topic, body) = FEEDS[name], GOOD[name]
    rows = feed.rows(topic, body, NOW)
    assert rows
    assert all(set(row) == set(input_schema(feed.dataset).names) for row in rows)
    table = arrow(feed.dataset, rows)
    assert table.column("created_ns").to_pylist() == [NOW - 5] * len(rows)
    assert table.column("received_ns").to_pylist() == [NOW] * len(rows)


@pytest.mark.parametrize("name", FEEDS)
def test_what_is_published_is_subscribed_to(name: str) -> None:
    topic = Pattern("s", GOOD[name][0])
    assert any(overlaps(Pattern("s", wanted), topic) for wanted in FEEDS[name].topics)


def test_measurements_say_what_was_measured_and_what_was_not() -> None:
    first, second = FEEDS["measurements"].rows(*GOOD["measurements"], NOW)
    assert (first["node"], first["peer"], first["realm"], first["transport"]) == ("a", "b", "east", "tcp")
    assert (first["latency_ms"], first["loss"], first["cost"]) == (1.5, 0.25, None)
    assert second["latency_ms"] is None


def test_counters_have_their_labels() -> None:
    rows = FEEDS["counters"].rows(*GOOD["counters"], NOW)
    assert [(row["node"], row["name"], row["labels"], row["value"]) for row in rows] == [
        ("a", "chappe_mode", 'node="a"', 3.0),
        ("a", "chappe_mode", 'node="ä"', -1.5),
    ]


def test_actions_keep_their_order_and_detail() -> None:
    actions = [feeds.Action("path", f"r{number}", NOW + number, RAW) for number in range(4)]
    body = msgspec.json.encode(feeds.Actions(epoch=1, actions=tuple(actions)))
    rows = FEEDS["broker"].rows("broker/log/leaf", body, NOW)
    assert [row["subject"] for row in rows] == ["r0", "r1", "r2", "r3"]
    assert json.loads(str(rows[0]["detail"])) == {"mode": 0}


def test_breaches_are_counted() -> None:
    (row,) = FEEDS["quality"].rows(*GOOD["quality"], NOW)
    assert (row["client"], row["subject"], row["kind"], row["count"], row["latency_ns"]) == (
        "client_1", "p/v", "late", 7, 12,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "topic", "body", "reason"),
    [
        ("measurements", "PBR/Report/east", b"", "no topic of reports"),
        ("measurements", "PBR/Report/east/a", b'{"link":1}', "line 1: is no record"),
        ("measurements", "PBR/Report/east/other", GOOD["measurements"][1], "record 1 is of 'a'"),
        ("measurements", "PBR/Report/west/a", GOOD["measurements"][1], "in 'east'"),
        ("measurements", "PBR/Report/east/a", GOOD["measurements"][1] + b"x" * (1 << 20), "at most"),
        ("measurements", "PBR/Report/east/a", record.encode([reading(stamp_ns=1 << 63)]), "64 bits"),
        ("counters", "node/counters", b"{}", "no topic of this feed"),
        ("counters", "node/counters/a/b", b"{}", "no topic of this feed"),
        ("counters", "node/counters/a", b"[]", "is no Counters"),
        ("counters", "node/counters/a", b'{"created_ns":1,"counters":{"x":{"":"1"}}}', "is no Counters"),
        ("counters", "node/counters/a", b'{"created_ns":9223372036854775808,"counters":{}}', "created_ns"),
        ("counters", "node/counters/a", b" " * ((4 << 20) + 1), "at most"),
        ("broker", "broker/log/x", b'{"epoch":1,"actions":[["a","b",1]]}', "is no Actions"),
        ("broker", "broker/log/x", b'{"epoch":1,"actions":[["a","b",1,"text"]]}', "no JSON object"),
        ("broker", "broker/log/x", b'{"epoch":1,"actions":[["a","b",1,{"a":\xff}]]}', "is no Actions"),
        ("broker", "broker/log/x", b'{"epoch":1,"actions":[["a","b",1,{"a":"\xff"}]]}', "broker/log/x: "),
        ("quality", "quality/c", b'{"breaches":[["s","late",1,0,null,{}]]}', "is no Quality"),
        ("quality", "quality/c", b"\xff\xfe", "is no Quality"),
    ],
)
def test_what_is_malformed_gives_no_rows_but_a_reason(name: str, topic: str, body: bytes, reason: str) -> None:
    with pytest.raises(FeedError, match=reason):
        FEEDS[name].rows(topic, body, NOW)


def test_one_bad_line_spoils_a_report() -> None:
    topic, body = GOOD["measurements"]
    with pytest.raises(FeedError, match="line 3"):
        FEEDS["measurements"].rows(topic, body + b"{}\n", NOW)


def test_detail_may_be_missing() -> None:
    body = b'{"epoch":1,"actions":[["a","b",1,null]]}'
    assert FEEDS["broker"].rows("broker/log/x", body, NOW)[0]["detail"] is None


@examples(body=st.binary(max_size=200), name=st.sampled_from(list(FEEDS)), at=st.integers(0, 400), to=st.binary())
def test_nothing_but_a_chappe_error_leaves_and_every_row_fits(body: bytes, name: str, at: int, to: bytes) -> None:
    topic, good = GOOD[name]
    for hostile in (body, good[:at] + to + good[at:]):
        try:
            rows = FEEDS[name].rows(topic, hostile, NOW)
        except ChappeError:
            continue
        arrow(FEEDS[name].dataset, rows)


@pytest.mark.parametrize(
    ("topic", "reserved"),
    [
        (b"node/counters", True), (b"node/counters/a", True), (b"broker/log/x/y", True),
        (b"node/counter", False), (b"node/countersx", False), (b"broker", False), (b"quality/c", False),
    ],
)  # fmt: skip
def test_nodes_and_brokers_alone_tell_of_themselves(topic: bytes, reserved: bool) -> None:
    assert feeds.reserved("s", topic) is reserved
    assert not feeds.reserved("i", topic)
