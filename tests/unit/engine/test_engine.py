"""What the engine does with ports, queues and promises; forwarding is compared with a model in tests/property."""

from __future__ import annotations

import struct

import pytest

from chappe.engine._engine import Engine
from chappe.errors import ProtocolError
from tests.model.engine import CREDIT, DENIAL, ECHO, EVENT, ISSUER, LOSS, PROBE, STATUS, TOPIC, frame

PUBLISHER, SUBSCRIBER, OTHER = b"p" * 16, b"s" * 16, b"o" * 16


def define(number: int, topic: str) -> bytes:
    return frame(TOPIC, struct.pack(">IBB", number, ord("s"), 0) + topic.encode())


def event(sequence: int, body: bytes = b"body", *, number: int = 1, priority: int = 3, issuer: int = 0) -> bytes:
    return frame(EVENT, struct.pack(">III", number, priority << 24 | issuer, sequence) + body)


def record(variable: int, created: int, value: float = 0.0, options: bytes = b"") -> bytes:
    return struct.pack(">qIB3xd", created, variable, len(options) // 24, value) + options


def split(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        size = 4 + int.from_bytes(data[1:4], "big")
        found.append((data[0], data[4:size]))
        data = data[size:]
    return found


def written(engine: Engine, port: int, count: int | None = None) -> bytes:
    """Everything (or `count` bytes) the port writes."""
    out = b""
    while count is None or len(out) < count:
        shown = bytes(engine.peek(port))
        if not shown:
            break
        shown = shown if count is None else shown[: count - len(out)]
        engine.consumed(port, len(shown))
        out += shown
    return out


def kinds(engine: Engine, port: int, wanted: int) -> list[bytes]:
    return [payload for kind, payload in split(written(engine, port)) if kind == wanted]


def pair(**subscriber: object) -> tuple[Engine, int, int]:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER)
    port = engine.open_port(issuer=SUBSCRIBER, **subscriber)  # type: ignore[arg-type]
    engine.topics.subscribe(port, "a/#")
    engine.feed(publisher, define(1, "a/b"))
    return engine, publisher, port


@pytest.mark.spec("NS-001", "NS-002")
def test_event_reaches_subscribers_only() -> None:
    engine, publisher, port = pair()
    bystander = engine.open_port(issuer=OTHER)
    engine.topics.subscribe(bystander, "b/#")
    engine.feed(publisher, event(1))
    assert [payload[12:] for payload in kinds(engine, port, EVENT)] == [b"body"]
    assert written(engine, bystander) == b""


def test_empty_engine_is_small() -> None:
    """A simulator holds ten thousand of them."""
    assert Engine().memory_bytes() < 64 * 1024


@pytest.mark.spec("GS-072")
def test_fan_out_allocates_nothing_in_steady_state() -> None:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER)
    ports = [engine.open_port(issuer=bytes([i]) * 16) for i in range(8)]
    for variable in range(1, 101):
        engine.status.set_variable(variable, 3, 100_000_000, [publisher])
        for path, port in enumerate(ports):
            engine.status.setup_path(variable, port, path, [0], [3], 0xFFFF)
    for port in ports:
        engine.topics.subscribe(port, "#")
    engine.feed(publisher, define(1, "a"))

    def second(number: int) -> None:
        engine.feed(publisher, frame(STATUS, b"".join(record(v, number * 33_333_333) for v in range(1, 101))))
        engine.feed(publisher, b"".join(event(number * 50 + i) for i in range(1, 51)))
        for port in ports:
            written(engine, port)

    for warm in range(3):
        second(warm)
    before = engine.allocations
    for number in range(3, 50):
        second(number)
    assert engine.allocations == before
    assert engine.port_counters(ports[0])["status_out"] == 5000
    for port in (publisher, ports[0]):
        counts = engine.port_counters(port)
        assert engine.traffic(port) == sum(
            counts[f"{what}_{way}"] for what in ("status", "events") for way in ("in", "out")
        )
        assert engine.traffic(port) > 5000


@pytest.mark.spec("GS-070")
def test_alert_overtakes_data_at_a_frame_boundary() -> None:
    engine, publisher, port = pair()
    engine.feed(publisher, b"".join(event(i, b"x" * 100) for i in range(1, 400)))
    taken = written(engine, port, 1000)
    engine.feed(publisher, event(1000, b"alarm", priority=0))
    rest = written(engine, port)
    bodies = [payload[12:] for kind, payload in split(taken + rest) if kind == EVENT]
    assert len(bodies) == 400
    # one segment of 32 KiB is finished first, then the alert passes everything else
    assert bodies.index(b"alarm") < 32768 // 116 + 2


@pytest.mark.spec("GS-071")
def test_full_queue_drops_for_that_port_only_and_tells_it() -> None:
    engine, publisher, port = pair(queue_bytes=1000)
    roomy = engine.open_port(issuer=OTHER)
    engine.topics.subscribe(roomy, "a/#")
    engine.feed(publisher, b"".join(event(i, b"x" * 80) for i in range(1, 31)))
    assert len(kinds(engine, roomy, EVENT)) == 30
    counts = engine.port_counters(port)
    assert counts["events_out"] == 1000 // 96
    assert counts["drop_queue_full"] == 30 - 1000 // 96
    assert ("topic", "a/b", "drop_queue_full", 20) in engine.address_drops()
    frames = split(written(engine, port))
    assert struct.pack(">QQ", 0, 20) in [payload for kind, payload in frames if kind == LOSS]


def test_backpressure_subscriber_loses_nothing_and_stops_credit() -> None:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER, credit=2000)
    port = engine.open_port(issuer=SUBSCRIBER, queue_bytes=1000)
    engine.topics.subscribe(port, "a/#", backpressure=True)
    engine.feed(publisher, define(1, "a/b"))
    sent = 0
    while sent < 20:  # all the credit there is
        sent += 1
        engine.feed(publisher, event(sent, b"x" * 84))
    assert kinds(engine, publisher, CREDIT) == []
    assert engine.port_counters(port)["drop_queue_full"] == 0
    assert len(kinds(engine, port, EVENT)) == 20
    assert kinds(engine, publisher, CREDIT) == [struct.pack(">Q", 20 * 100 + 2000)]


def test_publisher_gets_credit_while_nobody_holds_it() -> None:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER, credit=1000)
    engine.feed(publisher, define(1, "a"))
    for sequence in range(1, 5):
        engine.feed(publisher, event(sequence, b"x" * 84))
    assert kinds(engine, publisher, CREDIT) == []
    engine.feed(publisher, event(5, b"x" * 84))
    assert kinds(engine, publisher, CREDIT) == [struct.pack(">Q", 1500)]


def chain() -> tuple[Engine, Engine, int, int, int]:
    """A publisher's node and the next one, with a retaining link between them."""
    first, second = Engine(), Engine()
    publisher = first.open_port(issuer=PUBLISHER)
    there = first.open_port(peer=True, retain=True)
    back = second.open_port(peer=True, retain=True)
    first.topics.subscribe(there, "#")
    first.feed(publisher, define(1, "a"))
    return first, second, publisher, there, back


def test_link_keeps_events_until_the_other_engine_has_them() -> None:
    first, second, publisher, there, back = chain()
    first.feed(publisher, b"".join(event(i) for i in range(1, 11)))
    data = written(first, there)
    assert first.unacknowledged(there) > 0
    second.feed(back, data)
    answer = written(second, back)
    assert ECHO in [kind for kind, _ in split(answer)]
    first.feed(there, answer)
    assert first.unacknowledged(there) == 0
    # and then both are quiet: an acknowledgement needs no acknowledgement
    assert written(first, there) == b""
    assert written(second, back) == b""


def test_lost_connection_loses_and_repeats_nothing() -> None:
    first, second, publisher, there, back = chain()
    end = second.open_port(issuer=SUBSCRIBER)
    second.topics.subscribe(end, "#")
    first.feed(publisher, b"".join(event(i) for i in range(1, 101)))
    second.feed(back, written(first, there, 1500))  # cut in the middle of a frame, the answer never arrives
    first.park_port(there)
    second.park_port(back)
    first.feed(publisher, b"".join(event(i) for i in range(101, 121)))
    first.resume_port(there)
    second.resume_port(back)
    second.feed(back, written(first, there))
    sequences = [struct.unpack(">I", payload[8:12])[0] for payload in kinds(second, end, EVENT)]
    assert sequences == list(range(1, 121))
    assert 0 < second.port_counters(back)["drop_duplicate"] <= first.port_counters(there)["resent"] < 100


def test_restarted_neighbour_gets_definitions_again() -> None:
    first, _, publisher, there, _ = chain()
    first.feed(publisher, event(1))
    written(first, there)
    first.park_port(there)
    fresh = Engine()
    back = fresh.open_port(peer=True)
    end = fresh.open_port(issuer=SUBSCRIBER)
    fresh.topics.subscribe(end, "a")
    first.resume_port(there)
    fresh.feed(back, written(first, there))
    assert [payload[12:] for payload in kinds(fresh, end, EVENT)] == [b"body"]


@pytest.mark.spec("GS-054")
def test_redundant_paths_deliver_once() -> None:
    engine = Engine()
    left, right = engine.open_port(peer=True), engine.open_port(peer=True)
    end = engine.open_port(issuer=SUBSCRIBER)
    engine.status.set_variable(7, 1, 10, [left, right])
    engine.status.setup_path(7, end, 1, [0], [3], 0xFFFF)
    for port in (left, right):
        engine.feed(port, frame(STATUS, record(7, 10) + record(7, 20)))
    assert b"".join(kinds(engine, end, STATUS)) == record(7, 10) + record(7, 20)
    assert engine.port_counters(right)["drop_duplicate"] == 2


@pytest.mark.spec("GS-005")
def test_datagrams_are_packed_by_limit() -> None:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER)
    control = engine.open_port(peer=True)
    datagrams = engine.open_port(peer=True, datagram=True, partner=control)
    engine.status.set_variable(7, 0, 1, [publisher])
    engine.status.setup_path(7, control, 1, [0], [3], 0xFFFF)
    engine.feed(publisher, frame(STATUS, b"".join(record(7, i) for i in range(10))))
    frames = engine.peek_datagrams(datagrams)
    assert [len(data) for data in frames] == [4 + 4 * 24, 4 + 4 * 24, 4 + 2 * 24]
    engine.consumed_datagrams(datagrams, 1)
    assert engine.peek_datagrams(datagrams) == frames[1:]
    assert written(engine, control) == b""


def test_status_arriving_by_datagram_counts_as_its_link() -> None:
    engine = Engine()
    control = engine.open_port(peer=True)
    datagrams = engine.open_port(peer=True, datagram=True, partner=control)
    end = engine.open_port(issuer=SUBSCRIBER)
    engine.status.set_variable(7, 0, 1, [control])
    engine.status.setup_path(7, end, 1, [0], [3], 0xFFFF)
    assert engine.feed_datagram(datagrams, frame(STATUS, record(7, 1)))
    assert not engine.feed_datagram(datagrams, frame(STATUS, record(7, 1))[:-3])
    assert not engine.feed_datagram(datagrams, frame(EVENT, b"x" * 20))
    assert kinds(engine, end, STATUS) == [record(7, 1)]
    assert engine.port_counters(datagrams)["bad_frames"] == 2


def test_new_watcher_sees_the_present_value() -> None:
    engine = Engine()
    publisher, end = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    engine.status.set_variable(7, 1, 10, [publisher])
    engine.feed(publisher, frame(STATUS, record(7, 10, 2.5)))
    engine.watch(end, 7, 1, [0], [3], 0xFFFF)
    assert kinds(engine, end, STATUS) == [record(7, 10, 2.5)]


@pytest.mark.spec("GS-161")
def test_injected_record_of_another_publisher_is_refused() -> None:
    engine = Engine()
    publisher, forger = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=OTHER)
    end = engine.open_port(issuer=SUBSCRIBER)
    engine.status.set_variable(7, 1, 10, [publisher])
    engine.status.setup_path(7, end, 1, [0], [3], 0xFFFF)
    engine.feed(forger, frame(STATUS, record(7, 10)))
    assert written(engine, end) == b""
    assert engine.port_counters(forger)["drop_not_permitted"] == 1


@pytest.mark.spec("GS-007")
def test_bad_option_count_touches_nothing() -> None:
    engine = Engine()
    publisher, end = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    engine.status.set_variable(7, 1, 10, [publisher])
    engine.status.setup_path(7, end, 1, [0], [3], 0xFFFF)
    bad = bytearray(record(7, 10) + record(7, 20))
    bad[24 + 12] = 3
    with pytest.raises(ProtocolError, match="3 option blocks"):
        engine.feed(publisher, frame(STATUS, bytes(bad)))
    assert written(engine, end) == b""
    engine.feed(publisher, frame(STATUS, record(7, 30)))  # the port is closed for input
    assert written(engine, end) == b""


def test_rate_limit_says_how_long_to_wait() -> None:
    engine, publisher, _ = pair()
    engine.limit_rate(publisher, 1000.0, 10)
    engine.feed(publisher, b"".join(event(i) for i in range(1, 31)))
    assert engine.throttled_ns(publisher) == pytest.approx(20_000_000)
    engine.clock(30_000_000, 0)
    engine.feed(publisher, event(31))
    assert engine.throttled_ns(publisher) == 0


def test_group_member_with_room_gets_the_message() -> None:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER)
    full = engine.open_port(issuer=SUBSCRIBER, queue_bytes=10)
    ready = engine.open_port(issuer=OTHER)
    for port in (full, ready):
        engine.topics.subscribe(port, "job", group="workers")
    engine.feed(publisher, define(1, "job") + b"".join(event(i) for i in range(1, 6)))
    assert len(kinds(engine, ready, EVENT)) == 5
    assert engine.port_counters(full)["drop_queue_full"] == 0


def test_topic_numbers_are_reused_only_after_everything_was_written() -> None:
    engine = Engine(max_topics=4)
    publisher, end = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(end, "#")
    names: dict[bytes, bytes] = {}
    for generation in range(30):
        engine.feed(publisher, define(0, f"t{generation}") + event(generation + 1, b"t%d" % generation, number=0))
        if generation % 3 == 0:
            for kind, payload in split(written(engine, end)):
                if kind == TOPIC:
                    names[payload[:4]] = payload[6:]
                elif kind == EVENT:
                    assert names[payload[:4]] == payload[12:]
    counts = engine.port_counters(publisher)
    assert counts["drop_no_room"] < 30
    assert engine.port_counters(end)["events_out"] + counts["drop_no_room"] == 30


def test_issuers_that_left_are_forgotten_in_time() -> None:
    engine = Engine(max_issuers=8)
    end = engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(end, "#")
    known: dict[int, bytes] = {}
    for number in range(200):
        session = number.to_bytes(16, "big")
        port = engine.open_port(issuer=session)
        engine.feed(port, define(1, "a") + event(1, session))
        for kind, payload in split(written(engine, end)):
            if kind == ISSUER:
                known[int.from_bytes(payload[:4], "big")] = payload[8:]
            elif kind == EVENT:
                assert known[int.from_bytes(payload[5:8], "big")] == payload[12:]
        engine.feed(port, event(1, session))
        assert engine.port_counters(port)["drop_duplicate"] == 1
        assert engine.free_port(port)
    assert max(known) < 20


def test_heartbeat_is_answered_inside_the_engine() -> None:
    left, right = Engine(), Engine()
    there, back = left.open_port(peer=True), right.open_port(peer=True)
    left.clock(5, 0)
    assert left.heartbeat(there)
    right.clock(77, 0)
    right.feed(back, written(left, there))
    assert right.last_heard(back) == 77
    left.clock(99, 0)
    left.feed(there, written(right, back))
    assert left.last_heard(there) == 99
    assert left.take_echoes() == []


def test_probe_of_an_application_comes_back() -> None:
    engine = Engine()
    port = engine.open_port(issuer=PUBLISHER)
    engine.feed(port, frame(PROBE, struct.pack(">QQ", 42, 7) + b"padding"))
    assert split(written(engine, port)) == [(ECHO, struct.pack(">QQ", 42, 7) + b"padding")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x77", "unknown frame kind 0x77"),
        (b"\x02\xff\xff\xff", "accepts at most"),
        (frame(EVENT, b"short"), "header alone has 12"),
        (event(1, number=9), "topic number 9 that was never defined"),
        (frame(TOPIC, struct.pack(">IBB", 1, ord("s"), 0) + b"a//b"), "empty"),
        (frame(TOPIC, struct.pack(">IBB", 70000, ord("s"), 0) + b"a"), "below 65536"),
        (frame(ISSUER, bytes(24)), "ISSUER from a client"),
        (frame(CREDIT, bytes(8)), "only sent by nodes"),
        (frame(STATUS, b""), "without a record"),
        (frame(STATUS, bytes(23)), "cut at 23 of 24"),
        (frame(PROBE, bytes(8)), "16 to 1400"),
    ],
)
def test_bad_frame_names_its_reason(data: bytes, reason: str) -> None:
    engine = Engine()
    port = engine.open_port(issuer=PUBLISHER)
    with pytest.raises(ProtocolError, match=reason):
        engine.feed(port, data)
    assert engine.port_counters(port)["bad_frames"] == 1


def test_writing_nothing_does_not_tear_a_half_written_frame() -> None:
    engine, publisher, port = pair()
    engine.feed(publisher, event(1, b"x" * 100))
    out = written(engine, port, 60)
    assert len(engine.peek(port)) > 0
    engine.consumed(port, 0)
    engine.feed(publisher, event(2, b"alarm", priority=0))
    bodies = [payload[12:] for kind, payload in split(out + written(engine, port)) if kind == EVENT]
    assert bodies == [b"x" * 100, b"alarm"]


def test_a_publisher_hears_before_the_echo_what_was_not_taken() -> None:
    engine = Engine(max_topics=1, authorize=lambda port, kind, topic: not topic.startswith(b"closed"))
    publisher = engine.open_port(issuer=PUBLISHER)
    names = {1: b"open", 2: b"closed/a", 3: b"more", 4: b"closed/b"}
    for number, name in names.items():
        engine.feed(publisher, frame(TOPIC, struct.pack(">IBB", number, 115, 0) + name))
    for sequence, number in enumerate((1, 2, 2, 3, 4), 1):
        engine.feed(publisher, frame(EVENT, struct.pack(">III", number, 3 << 24, sequence)))
    for _ in range(2):
        engine.feed(publisher, frame(PROBE, struct.pack(">Qq", 9, 0)))
    told = [kind for kind, _ in split(written(engine, publisher))]
    assert told == [DENIAL, ECHO, ECHO]  # said once
    assert engine.refusing() == [publisher]
    assert sorted(engine.take_refusals(publisher)) == [("s", b"closed/a", 2), ("s", b"closed/b", 1)]
    assert (engine.refusing(), engine.take_refusals(publisher)) == ([], [])
    engine.feed(publisher, frame(EVENT, struct.pack(">III", 2, 3 << 24, 2)))  # sent again it is refused again
    engine.feed(publisher, frame(TOPIC, struct.pack(">IBB", 2, 115, 0) + b"closed/c"))
    engine.feed(publisher, frame(EVENT, struct.pack(">III", 2, 3 << 24, 7)))
    engine.feed(publisher, frame(PROBE, struct.pack(">Qq", 9, 0)))
    assert split(written(engine, publisher))[0] == (DENIAL, struct.pack(">QQ", 5, 1))
    assert sorted(engine.take_refusals(publisher)) == [("s", b"closed/a", 1), ("s", b"closed/c", 1)]


def test_refused_topics_beyond_the_limit_are_counted_without_a_name() -> None:
    engine = Engine(authorize=lambda port, kind, topic: False)
    publisher = engine.open_port(issuer=PUBLISHER)
    for number in range(1000):
        engine.feed(publisher, frame(TOPIC, struct.pack(">IBB", number, 115, 0) + b"t/%d" % number))
        engine.feed(publisher, frame(EVENT, struct.pack(">III", number, 3 << 24, number + 1)))
    taken = engine.take_refusals(publisher)
    assert len(taken) == 65
    assert sum(count for _, _, count in taken) == 1000
    engine.close_port(publisher)
    assert engine.free_port(publisher)
    assert engine.refusing() == []
