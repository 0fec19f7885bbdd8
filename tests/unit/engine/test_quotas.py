"""What one identity, one stalled port or one full queue may cost the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chappe.engine._engine import Engine, ForwardingDecision
from chappe.wire.frames import Kind, encode_frame
from tests.support.clientpeer import event, topic


def client(engine: Engine, number: int, **options: object) -> int:
    return engine.open_port(issuer=number.to_bytes(16, "big"), **options)  # type: ignore[arg-type]


def drain(engine: Engine, port: int) -> bytes:
    taken = b""
    while piece := bytes(engine.peek(port)):
        taken += piece
        engine.consumed(port, len(piece))
    return taken


def frames(data: bytes) -> Iterator[bytes]:
    while data:
        size = 4 + int.from_bytes(data[1:4], "big")
        yield data[:size]
        data = data[size:]


def publish_each(engine: Engine, port: int, names: list[str], first: int = 1) -> None:
    """One event for each topic, all under one number of the link, which each definition gives another meaning."""
    for place, name in enumerate(names):
        engine.feed(port, topic(0, name) + event(0, first + place, b"x"))


# --- numbers


def test_a_stalled_subscriber_does_not_keep_numbers_from_being_reused() -> None:
    engine = Engine(max_topics=16)
    publisher, stalled, quick = (client(engine, number) for number in range(1, 4))
    engine.topics.subscribe(stalled, "first")
    engine.topics.subscribe(quick, "#")
    publish_each(engine, publisher, ["first"])
    for number in range(200):
        publish_each(engine, publisher, [f"t/{number}"], 2 + number)
        drain(engine, quick)
    assert engine.port_counters(publisher)["drop_no_room"] == 0
    assert engine.port_counters(quick)["events_out"] == 201
    assert b"first" in drain(engine, stalled)


def test_a_peer_that_is_down_does_not_either_and_gets_what_was_kept() -> None:
    engine = Engine(max_topics=16)
    publisher, quick = client(engine, 1), client(engine, 2)
    down = engine.open_port(peer=True, retain=True)
    engine.topics.subscribe(down, "kept/+")
    engine.topics.subscribe(quick, "#")
    publish_each(engine, publisher, ["kept/a", "kept/b"])
    engine.park_port(down)
    for number in range(200):
        publish_each(engine, publisher, [f"t/{number}"], 3 + number)
        drain(engine, quick)
    assert engine.port_counters(publisher)["drop_no_room"] == 0
    engine.resume_port(down)
    again = drain(engine, down)
    assert again.index(b"kept/a") < again.index(b"kept/b")
    assert engine.port_counters(down)["events_out"] == 2


def test_a_stalled_port_keeps_the_numbers_in_its_queue() -> None:
    """Its events must not get another meaning while they wait; definitions overtake them."""
    engine = Engine(max_topics=8)
    publisher, stalled = client(engine, 1), client(engine, 2)
    engine.topics.subscribe(stalled, "kept/+")
    sequence = 1
    for kept in range(6):
        publish_each(engine, publisher, [f"kept/{kept}"], sequence)
        publish_each(engine, publisher, [f"other/{kept}/{number}" for number in range(50)], sequence + 1)
        sequence += 51
    meaning: dict[bytes, bytes] = {}
    got = []
    for frame in frames(drain(engine, stalled)):
        if frame[0] == Kind.TOPIC:
            assert frame[4:8] not in meaning
            meaning[frame[4:8]] = frame[10:]
        elif frame[0] == Kind.EVENT:
            got.append(meaning[frame[4:8]])
    assert got == [b"kept/%d" % kept for kept in range(6)]


def test_issuers_of_queued_events_keep_their_numbers() -> None:
    engine = Engine(max_issuers=4)
    stalled = client(engine, 1000)
    engine.topics.subscribe(stalled, "kept")
    for number in range(1, 60):
        port = client(engine, number)
        engine.feed(port, topic(0, "other" if number % 10 else "kept") + event(0, 1, b"x"))
        engine.close_port(port)
        assert engine.free_port(port)
    issuers: dict[bytes, int] = {}
    got = []
    for frame in frames(drain(engine, stalled)):
        if frame[0] == Kind.ISSUER:
            assert frame[5:8] not in issuers
            issuers[frame[5:8]] = int.from_bytes(frame[12:28], "big")
        elif frame[0] == Kind.EVENT:
            got.append(issuers[frame[9:12]])
    assert got == [10, 20, 30, 40, 50]


def test_one_identity_leaves_numbers_for_others() -> None:
    engine = Engine(max_topics=100)
    greedy, other = client(engine, 1, account="greedy"), client(engine, 2, account="other")
    for number in range(200):
        engine.feed(greedy, topic(number, f"g/{number}"))
    for number in range(30):
        engine.feed(other, topic(number, f"o/{number}"))
    usage = engine.accounts.usage()
    assert usage["greedy"]["topics"] == 50, "as many as are left"
    assert usage["greedy"]["refused"] >= 150
    assert (usage["other"]["topics"], usage["other"]["refused"]) == (25, 10)


def test_a_quota_of_topics_holds_over_all_ports_of_an_identity_and_is_given_back() -> None:
    engine = Engine(account_topics=10)
    ports = [client(engine, number, account="alice") for number in (1, 2)]
    for number in range(8):
        for port in ports:
            engine.feed(port, topic(number, f"{port}/{number}"))
    assert engine.accounts.usage()["alice"]["topics"] == 10
    engine.feed(ports[1], event(7, 1, b"x"))
    assert engine.port_counters(ports[1])["drop_no_room"] == 1
    engine.close_port(ports[0])
    engine.free_port(ports[0])
    engine.feed(ports[1], topic(7, "again") + event(7, 2, b"x"))
    assert engine.port_counters(ports[1])["drop_no_room"] == 1
    assert engine.accounts.usage()["alice"]["topics"] <= 10


def test_forwarding_entries_are_charged_to_whoever_made_the_topic() -> None:
    engine = Engine(max_routed_topics=8, plan_route=lambda kind, name: ForwardingDecision(True, [(0, b"way")]))
    peer = engine.open_port(peer=True, retain=True)
    assert peer == 0
    greedy, other = client(engine, 1, account="greedy"), client(engine, 2, account="other")
    for number in range(20):
        engine.feed(greedy, topic(number, f"g/{number}") + event(number, number + 1, b"x"))
    assert engine.accounts.usage()["greedy"]["routed_topics"] == 4
    engine.feed(other, topic(0, "o") + event(0, 1, b"x"))
    assert engine.accounts.usage()["other"]["routed_topics"] == 1
    assert engine.port_counters(greedy)["drop_no_route"] == 16
    assert engine.port_counters(other)["drop_no_route"] == 0


# --- queues


def test_definitions_stay_within_the_bound_of_a_port() -> None:
    engine = Engine()
    publisher, stalled, quick = client(engine, 1), client(engine, 2, queue_bytes=65_536), client(engine, 3)
    engine.topics.subscribe(stalled, "#")
    engine.topics.subscribe(quick, "#")
    names = [f"{number}/" + "x" * 900 for number in range(500)]
    for place, name in enumerate(names):
        publish_each(engine, publisher, [name], place + 1)
        drain(engine, quick)
    assert engine.pending(stalled) <= 2 * 65_536
    counts = engine.port_counters(stalled)
    assert counts["events_out"] + counts["drop_queue_full"] == 500
    assert engine.port_counters(quick)["events_out"] == 500
    drain(engine, stalled)
    publish_each(engine, publisher, names[-3:], 501)
    assert engine.port_counters(stalled)["events_out"] == counts["events_out"] + 3, "it takes events again"
    assert all(name.encode() in drain(engine, stalled) for name in names[-1:])


def test_a_conflating_port_counts_the_bytes_it_keeps() -> None:
    engine = Engine()
    publisher = client(engine, 1)
    watcher = client(engine, 2, conflate=True, queue_bytes=65_536)
    large = bytes(8) + b"\0\0\0\0" + bytes([255]) + bytes(3) + bytes(8) + bytes(24 * 255)
    for variable in range(1, 101):
        engine.status.set_variable(variable, 1, 1, inputs=[publisher])
        engine.status.setup_path(variable, watcher, 1, [0], [3], 1)
        record = large[:8] + variable.to_bytes(4, "big") + large[12:]
        engine.feed(publisher, encode_frame(Kind.STATUS, record))
    assert engine.pending(watcher) <= 65_536
    assert engine.port_counters(watcher)["drop_queue_full"] == 90


def test_a_publisher_that_reads_nothing_is_granted_credit_within_its_bound() -> None:
    engine = Engine()
    port = client(engine, 1, credit=64, queue_bytes=120)
    engine.feed(port, topic(0, "a"))
    for number in range(1, 400):
        engine.feed(port, event(0, number, b"x" * 64))
    assert engine.pending(port) <= 120
    drain(engine, port)
    assert engine.pending(port) == 0


# --- memory


def test_a_memory_budget_refuses_first_who_holds_most() -> None:
    engine = Engine(memory_bytes=8 << 20)
    publisher = client(engine, 1)
    stalled = [client(engine, number) for number in range(2, 12)]
    quick = client(engine, 100)
    for port in (*stalled, quick):
        engine.topics.subscribe(port, "#")
    engine.feed(publisher, topic(0, "a"))
    for number in range(1, 3000):
        engine.feed(publisher, event(0, number, b"x" * 4000))
        drain(engine, quick)
        assert engine.memory.bytes <= engine.memory.limit
    assert engine.port_counters(quick)["events_out"] == 2999, "who reads loses nothing"
    for port in stalled:
        counts = engine.port_counters(port)
        assert counts["drop_no_memory"] > 0
        assert counts["events_out"] + counts["drop_no_memory"] + counts["drop_queue_full"] == 2999
    assert engine.memory.refused > 0


def test_an_identity_is_bounded_over_all_its_queues() -> None:
    engine = Engine(account_bytes=1 << 20)
    publisher = client(engine, 1)
    ports = [client(engine, number, account="alice") for number in range(2, 8)]
    other = client(engine, 100, account="bob")
    for port in (*ports, other):
        engine.topics.subscribe(port, "#")
    engine.feed(publisher, topic(0, "a"))
    for number in range(1, 1000):
        engine.feed(publisher, event(0, number, b"x" * 2000))
    assert engine.accounts.usage()["alice"]["queued_bytes"] <= 1 << 20
    assert engine.accounts.usage()["bob"]["queued_bytes"] <= 1 << 20
    assert sum(engine.port_counters(port)["drop_no_memory"] for port in ports) > 0


def test_closed_ports_give_everything_back() -> None:
    engine = Engine(account_topics=100)
    publisher = client(engine, 1)
    before = engine.memory.bytes
    for _ in range(5):
        port = client(engine, 2, account="alice")
        engine.topics.subscribe(port, "#")
        engine.feed(publisher, topic(0, "a") + event(0, 1, b"x" * 100_000))
        engine.close_port(port)
        while not engine.free_port(port):
            pass
    assert engine.accounts.usage()["alice"]["queued_bytes"] == 0
    assert engine.memory.bytes < before + (1 << 20)


# --- rates


@pytest.mark.parametrize(
    "frame",
    [topic(0, "a"), *(encode_frame(kind, bytes(16)) for kind in (Kind.PROBE, Kind.CONTROL, Kind.PARCEL))],
    ids=["TOPIC", "PROBE", "CONTROL", "PARCEL"],
)
def test_every_frame_counts_in_the_rate(frame: bytes) -> None:
    engine = Engine()
    engine.clock(1, 1)
    port = client(engine, 1)
    engine.limit_rate(port, 10, 10)
    for _ in range(10):
        engine.feed(port, frame)
    assert engine.throttled_ns(port) == 0
    engine.feed(port, frame * 20)
    assert engine.throttled_ns(port) == pytest.approx(2e9)
    assert engine.port_counters(port)["throttled"] == 1


def test_unknown_variables_do_not_take_the_place_of_other_drops() -> None:
    """Of more numbers than the table of drops has room for, the first half is counted by number."""
    engine, room = Engine(), 1 << 21
    port = client(engine, 1)
    for start in range(1, room + 5_000, 50_000):
        numbers = (number.to_bytes(4, "big") for number in range(start, start + 50_000))
        records = b"".join(bytes(8) + number + bytes(12) for number in numbers)
        engine.feed(port, encode_frame(Kind.STATUS, records[:600_000]) + encode_frame(Kind.STATUS, records[600_000:]))
    engine.feed(port, topic(0, "a") + event(0, 1, b"x") + event(0, 1, b"x"))
    drops = engine.address_drops()
    assert ("topic", "a", "drop_duplicate", 1) in drops
    assert room // 2 - 10 < len(drops) < room // 2 + 10
    assert sum(row[3] for row in drops) == engine.port_counters(port)["drop_unknown"] + 1
