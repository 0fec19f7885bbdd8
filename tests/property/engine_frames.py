"""What a port may send to an engine: whole frames of every kind, most of them good."""

from __future__ import annotations

import struct

import hypothesis.strategies as st

from tests.model.engine import CONTROL, ECHO, EVENT, ISSUER, PROBE, ROUTE, STATUS, TOPIC, TRAIN, TRAINED, frame

WALL_NS = 10_000_000_000
SOURCE_ROUTES = [b"w", b"x", b"yy", b"z"]
TOPICS = [b"a", b"a/b", b"a/b/c", b"d"]
VARIABLES = [1, 2, (5 << 22) | 3]

source_routes = st.sampled_from(SOURCE_ROUTES)
variables = st.sampled_from(VARIABLES)
stamps = st.one_of(st.integers(-30, 60).map(lambda step: step * 10), st.just(WALL_NS + 10**10))
topics = st.sampled_from(["a", "a/b", "a/b/c", "d", "d/b"])
ID = "0123456789abcdef" * 2
ADDRESSES = ["a", "a/b", f"a/b@{ID}", f"d@{ID}", f"b@confirm:{ID}", "d"]
patterns = st.sampled_from(
    ["a", "a/#", "+/b", "#", "a/+/c", "d", "d/b", "+", "n:a/b", f"n:a/b@{ID}", "n:b@", "n:d@", "n:@"]
)
numbers = st.integers(0, 3)


def record(variable: int, created: int, options: int) -> bytes:
    return struct.pack(">qIB3xd", created, variable, options, 1.5) + b"o" * (24 * options)


records = st.builds(record, variables, stamps, st.sampled_from([0, 0, 0, 1, 2]))
status_frames = st.lists(records, min_size=1, max_size=5).map(lambda found: frame(STATUS, b"".join(found)))
topic_frames = st.builds(
    lambda number, topic: frame(TOPIC, struct.pack(">IBB", number, ord("s"), 0) + topic.encode()), numbers, topics
)
typed_frames = st.builds(
    lambda number, key: frame(TOPIC, struct.pack(">IBB", number, *key[:2]) + key[2:]),
    numbers,
    st.sampled_from([b"i\0" + struct.pack(">i", key) for key in (7, -7)] + [b"n\0" + a.encode() for a in ADDRESSES]),
)
issuer_frames = st.builds(
    lambda number, who: frame(ISSUER, struct.pack(">II", number, 1) + bytes([who]) * 16), numbers, st.integers(0, 8)
)


def extension(kind: int, expires: int) -> bytes:
    item = struct.pack(">BHq", 2, 8, expires) if kind == 0 else struct.pack(">BH", 5, 4) + b"text"
    return struct.pack(">H", len(item)) + item


def event(number: int, issuer: int, sequence: int, priority: int, ext: bytes, body: bytes) -> bytes:
    flags = priority | (8 if ext else 0)
    return frame(EVENT, struct.pack(">IIII", number, flags << 24 | issuer, sequence, 0)[:12] + ext + body)


extensions = st.one_of(
    st.just(b""), st.just(b""), st.builds(extension, st.integers(0, 1), st.sampled_from([WALL_NS - 1, WALL_NS + 1]))
)
events = st.builds(event, numbers, numbers, st.integers(1, 40), st.integers(0, 6), extensions, st.binary(max_size=20))
route_frames = st.builds(
    lambda number, by, topic: frame(ROUTE, struct.pack(">IBBH", number, 115, 0, len(by)) + by + topic.encode()),
    numbers,
    source_routes,
    topics,
)
typed_route_frames = st.builds(
    lambda number, by: frame(ROUTE, struct.pack(">IBBHq", number, 108, 0, len(by), 0)[:8] + by + bytes(8)),
    numbers,
    source_routes,
)
train_frames = st.builds(
    lambda size, offset, length: frame(TRAIN, struct.pack(">QII", 3, size, offset) + bytes(length - 20)),
    st.sampled_from([100, 101]),
    st.sampled_from([0, 0, 40]),
    st.sampled_from([40, 60]),
)
trained_frames = st.builds(
    lambda token: frame(TRAINED, struct.pack(">QQQqq", token, 1, 2, -3, 4)), st.integers(0, 1 << 64 - 1)
)
others = st.one_of(
    st.builds(lambda token: frame(PROBE, struct.pack(">QQ", token, 5)), st.integers(0, 9)),
    st.builds(lambda token: frame(ECHO, struct.pack(">QQ", token, 5)), st.integers(0, 9)),
    st.binary(max_size=8).map(lambda text: frame(CONTROL, text)),
)
for_all = (status_frames, topic_frames, typed_frames, events, events, events, events, others)
for_peers = (
    *for_all,
    events,
    events,
    issuer_frames,
    route_frames,
    route_frames,
    typed_route_frames,
    train_frames,
    trained_frames,
)
client_bytes = st.lists(st.one_of(*for_all), min_size=1, max_size=8).map(b"".join)
peer_bytes = st.lists(st.one_of(*for_peers), min_size=1, max_size=8).map(b"".join)
whole_trains = st.sampled_from([100, 101]).flatmap(
    lambda size: st.sampled_from([40, 60]).map(
        lambda cut: (
            frame(TRAIN, struct.pack(">QII", 3, size, 0) + bytes(cut - 20))
            + frame(TRAIN, struct.pack(">QII", 3, size, cut) + bytes(size - cut - 20))
        )
    )
)
