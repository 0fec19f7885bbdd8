"""Probes and trains: what measures a link, and what keeps it from being abused."""

from __future__ import annotations

import struct

import pytest

from chappe.engine._engine import Engine
from chappe.errors import ChappeError, ProtocolError
from tests.model.engine import CONTROL, ECHO, EVENT, PROBE, TRAIN, TRAINED, frame
from tests.unit.engine.test_engine import PUBLISHER, define, event, split, written

MS = 1_000_000


def link() -> tuple[Engine, Engine, int, int]:
    first, second = Engine(), Engine()
    return first, second, first.open_port(peer=True), second.open_port(peer=True)


def train(token: int, size: int, offset: int, length: int) -> bytes:
    return frame(TRAIN, struct.pack(">QII", token, size, offset) + bytes(length - 20))


def test_a_probe_carries_the_clock_and_its_echo_says_when_it_came() -> None:
    first, second, there, back = link()
    first.clock(1000, 0)
    assert first.send_probe(there, 77)
    data = written(first, there)
    assert split(data) == [(PROBE, struct.pack(">QQ", 77, 1000))]
    second.feed(back, data)
    first.clock(1500, 0)
    answer = written(second, back)
    assert split(answer)[0][0] == ECHO
    first.feed(there, answer)
    assert first.take_echoes() == [(there, 77, 1000, 1500)]
    for token in (0, 1 << 63, -1):
        with pytest.raises(ChappeError, match="token"):
            first.send_probe(there, token)
        with pytest.raises(ChappeError, match="token"):
            first.ride_probe(there, token)


def test_a_probe_can_ride_with_what_is_written_next_and_counts_from_there() -> None:
    first, second, there, back = link()
    first.clock(1000, 0)
    assert first.ride_probe(there, 77)
    assert not first.ride_probe(there, 78)  # one at a time
    assert written(first, there) == b""  # alone it does not leave
    assert first.riding(there) == 77
    first.clock(5000, 0)
    assert first.send(there, frame(CONTROL, b"anything"), 2)
    data = written(first, there)
    assert split(data) == [(PROBE, struct.pack(">QQ", 77, 5000)), (CONTROL, b"anything")]  # in front
    assert first.riding(there) == 0
    second.feed(back, data)
    first.clock(5700, 0)
    first.feed(there, written(second, back))
    assert first.take_echoes() == [(there, 77, 5000, 5700)]


def test_a_probe_that_rides_can_be_sent_at_once_after_all_and_a_parked_port_forgets_it() -> None:
    first, _, there, _ = link()
    assert first.ride_probe(there, 77)
    assert first.send_probe(there, 77)
    assert [kind for kind, _ in split(written(first, there))] == [PROBE]
    assert first.ride_probe(there, 78)
    first.park_port(there)
    assert first.riding(there) == 0
    assert not first.ride_probe(there, 79)


def test_an_echo_of_an_older_probe_says_no_time_of_its_own() -> None:
    first, second, there, back = link()
    for at, token in ((1000, 77), (2000, 78)):
        first.clock(at, 0)
        assert first.send_probe(there, token)
    second.feed(back, written(first, there))
    first.clock(2500, 0)
    first.feed(there, written(second, back))
    assert first.take_echoes() == [(there, 77, 0, 2500), (there, 78, 2000, 2500)]


@pytest.mark.parametrize("size", [40, 276, 1024, 5000, 100_000, 1_000_003])
def test_a_train_of_any_size_arrives_whole_and_is_answered(size: int) -> None:
    first, second, there, back = link()
    assert first.send_train(there, 5, size)
    assert not first.send_train(there, 6, size)
    data = written(first, there)
    assert len(data) == size
    assert {kind for kind, _ in split(data)} == {TRAIN}
    assert max(len(payload) + 4 for _, payload in split(data)) <= 16384
    for start in range(0, size, 1000):
        second.clock(start * 10, 0)
        second.feed(back, data[start : start + 1000])
    first.feed(there, written(second, back))
    ((port, token, half_bytes, half_ns, first_ns, last_ns),) = first.take_trained()
    assert (port, token, last_ns) == (there, 5, (size - 1) // 1000 * 10_000)
    assert first_ns <= last_ns
    assert half_bytes <= size // 2
    if size > 20_000:
        assert half_bytes > size // 2 - 2 * 16384
        assert half_bytes / half_ns == pytest.approx(0.1, rel=0.1), "bytes a ns at which it was fed"
    assert first.port_counters(there)["trains_out"] == second.port_counters(back)["trains_in"] == 1
    assert first.send_train(there, 6, size)


@pytest.mark.parametrize("size", [5000, 12_000, 14_000, 100_000])
@pytest.mark.parametrize("piece", [536, 1200, 1448])
def test_pieces_that_cut_frames_do_not_make_a_link_look_faster(size: int, piece: int) -> None:
    first, second, there, back = link()
    first.send_train(there, 5, size)
    data = written(first, there)
    for start in range(0, size, piece):
        second.clock(min(start + piece, size) * 10, 0)  # a piece is there when its last byte is
        second.feed(back, data[start : start + piece])
    first.feed(there, written(second, back))
    ((_, _, half_bytes, half_ns, _, _),) = first.take_trained()
    assert half_bytes * 10 == half_ns > 0


def test_everything_else_goes_before_the_rest_of_a_train() -> None:
    engine = Engine()
    port, publisher = engine.open_port(peer=True), engine.open_port(issuer=PUBLISHER)
    engine.topics.subscribe(port, "a")
    engine.feed(publisher, define(1, "a"))
    engine.send_train(port, 5, 200_000)
    started = written(engine, port, 20_000)
    engine.feed(publisher, b"".join(event(i, bytes(1000), priority=6) for i in range(1, 101)))
    kinds = [kind for kind, _ in split(started + written(engine, port))]
    assert kinds.count(EVENT) == 100
    last = len(kinds) - 1 - kinds[::-1].index(EVENT)
    assert kinds[:last].count(TRAIN) <= 3
    assert kinds.count(TRAIN) == 13


def test_bytes_that_were_read_together_are_not_timed() -> None:
    _, second, _, back = link()
    second.clock(MS, 0)
    second.feed(back, b"".join(train(5, 1000, at, 100) for at in range(0, 700, 100)))
    second.clock(4 * MS, 0)
    second.feed(back, b"".join(train(5, 1000, at, 100) for at in range(700, 1000, 100)))
    answer = struct.pack(">QQQqq", 5, 300, 3 * MS, MS, 4 * MS)
    assert split(written(second, back)) == [(TRAINED, answer)]


def test_an_incomplete_train_is_forgotten() -> None:
    _, second, _, back = link()
    second.feed(back, train(5, 1000, 0, 100) + train(5, 1000, 200, 800))
    second.feed(back, train(6, 1000, 0, 500) + train(7, 1000, 500, 500))
    second.feed(back, train(8, 1000, 0, 500))
    second.park_port(back)
    second.resume_port(back)
    second.feed(back, train(8, 1000, 500, 500))
    assert written(second, back) == b""
    second.feed(back, train(9, 1000, 0, 1000))
    assert len(split(written(second, back))) == 1


def test_a_lost_connection_ends_the_train_under_way() -> None:
    first, _, there, _ = link()
    first.send_train(there, 5, 100_000)
    written(first, there, 20_000)
    first.park_port(there)
    assert not first.send_train(there, 6, 100)
    first.resume_port(there)
    assert written(first, there) == b""
    assert first.send_train(there, 6, 100)


def test_more_trains_than_a_second_allows_are_not_answered() -> None:
    _, second, _, back = link()
    second.clock(MS, 0)
    for token in range(40):
        second.feed(back, b"".join(train(token, 1 << 20, at, 16384) for at in range(0, 1 << 20, 16384)))
    assert len(split(written(second, back))) == 32
    second.clock(MS + 1_000_000_000, 0)
    for token in range(4):
        second.feed(back, b"".join(train(token, 1 << 20, at, 16384) for at in range(0, 1 << 20, 16384)))
    assert len(split(written(second, back))) == 4


def test_trains_are_for_peers_and_have_limits() -> None:
    engine = Engine()
    client, peer = engine.open_port(issuer=PUBLISHER), engine.open_port(peer=True)
    with pytest.raises(ChappeError, match="peer"):
        engine.send_train(client, 1, 1000)
    for size in (39, (1 << 26) + 1):
        with pytest.raises(ChappeError, match="bytes"):
            engine.send_train(peer, 1, size)
    with pytest.raises(ProtocolError, match="client"):
        engine.feed(client, train(1, 100, 0, 100))
    other = engine.open_port(issuer=b"o" * 16)
    with pytest.raises(ProtocolError, match="client"):
        engine.feed(other, frame(TRAINED, bytes(40)))


def test_answers_nobody_asked_for_are_bounded() -> None:
    engine = Engine()
    peer = engine.open_port(peer=True)
    for _ in range(5):
        engine.feed(peer, frame(TRAINED, bytes(40)) * 1000)
    assert len(engine.take_trained()) == 4096
    engine.feed(peer, frame(TRAINED, bytes(40)))
    assert len(engine.take_trained()) == 1
