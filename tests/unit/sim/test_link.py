"""A modelled line against its formulas; every byte is delivered, lost, dropped or on its way."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.errors import ConfigError
from chappe.sim.clock import START_NS, Clock
from chappe.sim.link import PACKET, Pipe, Quality


def line(quality: Quality, seed: int = 1) -> tuple[Clock, Pipe, list[tuple[float, bytes]]]:
    """A pipe, and what it delivers with the time in ms."""
    clock = Clock()
    got: list[tuple[float, bytes]] = []
    pipe = Pipe(clock, random.Random(seed), quality, lambda piece: got.append(((clock.now_ns - START_NS) / 1e6, piece)))
    return clock, pipe, got


def test_a_piece_arrives_after_the_delay() -> None:
    clock, pipe, got = line(Quality(delay_ms=12.5))
    pipe.push(b"abc")
    assert pipe.in_flight == 3
    clock.run(1.0)
    assert got == [(12.5, b"abc")]
    assert (pipe.delivered, pipe.in_flight, pipe.balance) == (3, 0, 0)


def test_a_line_of_a_rate_serves_one_packet_after_the_other() -> None:
    clock, pipe, got = line(Quality(delay_ms=10, rate=1e6, queue_bytes=1 << 20))
    pipe.push(bytes(10 * PACKET))
    clock.run(1.0)
    times = [when for when, _ in got]
    assert times == pytest.approx([10 + (n + 1) * PACKET / 1e3 for n in range(10)], abs=1e-3)
    assert b"".join(piece for _, piece in got) == bytes(10 * PACKET)


def test_the_queue_of_a_line_is_bounded_and_drains() -> None:
    clock, pipe, _ = line(Quality(delay_ms=1, rate=1e6, queue_bytes=100_000))
    pipe.push(bytes(100_000))
    assert pipe.room() == 0
    assert not pipe.push_datagram(bytes(1000))
    assert (pipe.overflows, pipe.dropped) == (1, 1000)
    half_ns = pipe.room_ns()
    assert half_ns == pytest.approx(START_NS + 50_000_000, abs=10_000)
    clock.run_until(half_ns)
    assert pipe.room() == pytest.approx(50_000, abs=100)
    assert pipe.push_datagram(bytes(1000))
    clock.run(1.0)
    assert pipe.balance == 0
    assert pipe.delivered == 101_000


@pytest.mark.parametrize("shape", ["exponential", "normal", "uniform"])
def test_jitter_has_the_mean_it_says_and_never_shortens_the_delay(shape: str) -> None:
    clock, pipe, got = line(Quality(delay_ms=20, jitter_ms=4, jitter=shape))
    for number in range(4000):
        clock.at(START_NS + number * 1_000_000_000, pipe.push_datagram, number.to_bytes(4, "big"))
    clock.run(5000)
    delays = [when - 1000 * int.from_bytes(piece, "big") for when, piece in got]
    assert len(delays) == 4000
    assert min(delays) >= 20
    assert statistics.fmean(delays) == pytest.approx(24, rel=0.02)


def test_datagrams_are_lost_at_the_rate_it_says_and_overtake_each_other() -> None:
    clock, pipe, got = line(Quality(delay_ms=5, jitter_ms=5, loss=0.1))
    for number in range(5000):
        clock.at(START_NS + number * 100_000, pipe.push_datagram, number.to_bytes(4, "big"))
    clock.run(10)
    numbers = [int.from_bytes(piece, "big") for _, piece in got]
    assert len(numbers) == pytest.approx(4500, abs=4 * math.sqrt(5000 * 0.1 * 0.9))
    assert numbers != sorted(numbers)
    assert pipe.lost == 4 * (5000 - len(numbers))
    assert pipe.balance == 0


def test_loss_turns_into_delay_on_a_stream() -> None:
    """A packet is late by one round trip with probability p, by three with p squared, and so on: rtt * p / (1 - 2p)."""
    clock, pipe, got = line(Quality(delay_ms=10, loss=0.2))
    for number in range(20_000):
        clock.at(START_NS + number * 1_000_000_000, pipe.push, number.to_bytes(4, "big"))
    clock.run(30_000)
    numbers = [int.from_bytes(piece, "big") for _, piece in got]
    assert numbers == list(range(20_000))
    late = statistics.fmean(when - 1000 * number - 10 for (when, _), number in zip(got, numbers, strict=True))
    assert late == pytest.approx(20 * 0.2 / (1 - 2 * 0.2), rel=0.08)
    assert pipe.resent == pytest.approx(20_000 * 0.25, rel=0.1)
    assert pipe.lost == 0


@settings(max_examples=60)
@given(
    pieces=st.lists(st.tuples(st.integers(1, 5000), st.booleans(), st.integers(0, 20)), max_size=40),
    cuts=st.lists(st.integers(0, 300), max_size=3),
    loss=st.sampled_from([0.0, 0.3]),
    rate=st.sampled_from([math.inf, 5e5]),
)
def test_every_byte_is_accounted_for_at_any_time(
    pieces: list[tuple[int, bool, int]], cuts: list[int], loss: float, rate: float
) -> None:
    clock, pipe, got = line(Quality(delay_ms=7, jitter_ms=3, loss=loss, rate=rate, queue_bytes=20_000))
    when = START_NS
    for size, datagram, pause_ms in pieces:
        when += pause_ms * 1_000_000
        clock.at(when, pipe.push_datagram if datagram else pipe.push, bytes(size))
    for cut_ms in cuts:
        clock.at(START_NS + cut_ms * 1_000_000, pipe.cut)
    for _ in range(50):
        clock.run(0.01)
        assert pipe.balance == 0
        assert pipe.delivered == sum(len(piece) for _, piece in got)
    clock.run(100)
    assert pipe.in_flight == 0
    assert pipe.sent == pipe.delivered + pipe.lost + pipe.dropped


def test_a_stream_keeps_its_order_when_the_line_gets_faster() -> None:
    clock, pipe, got = line(Quality(delay_ms=100))
    pipe.push(b"slow")
    pipe.quality = Quality(delay_ms=1)
    pipe.push(b"fast")
    clock.run(1.0)
    assert [piece for _, piece in got] == [b"slow", b"fast"]
    assert got[1][0] == 100.0


def test_a_cut_loses_what_is_on_the_way_and_no_more() -> None:
    clock, pipe, got = line(Quality(delay_ms=10))
    pipe.push(b"lost")
    clock.run(0.005)
    pipe.cut()
    pipe.push(b"after")
    clock.run(1.0)
    assert [piece for _, piece in got] == [b"after"]
    assert (pipe.lost, pipe.delivered, pipe.balance) == (4, 5, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"delay_ms": -1}, "delay"),
        ({"delay_ms": math.inf}, "delay"),
        ({"jitter": "cauchy", "jitter_ms": 1}, "cauchy"),
        ({"loss": 0.5}, "loss of 0.5"),
        ({"rate": 0}, "bytes/s"),
        ({"queue_bytes": 10}, "queue of 10"),
    ],
)
def test_a_line_that_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Quality(**wrong)  # type: ignore[arg-type]
