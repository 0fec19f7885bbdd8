"""Definitions of topics ask Python code: a buffer of them is looked at in slices, so that nothing else waits for it."""

from __future__ import annotations

import pytest

from chappe.engine._engine import Engine
from chappe.errors import ProtocolError
from chappe.wire.frames import Kind, encode_frame
from tests.model.engine import EVENT
from tests.unit.engine.test_engine import OTHER, PUBLISHER, SUBSCRIBER, define, event, kinds

SLICE = 64  # questions of one turn
MANY = 1_000


class Asked:
    """Counts the questions of an engine; topics below `no` are not allowed."""

    def __init__(self) -> None:
        self.questions = 0

    def __call__(self, port: int, kind: str, topic: bytes) -> bool:
        self.questions += 1
        return not topic.startswith(b"no/")

    def taken(self) -> int:
        found, self.questions = self.questions, 0
        return found


def burst(count: int) -> bytes:
    """Definitions, each with an event."""
    return b"".join(define(number, f"a/{number}") + event(number, number=number) for number in range(1, count + 1))


def test_a_buffer_asks_a_bounded_number_of_questions_a_turn_and_loses_nothing() -> None:
    asked = Asked()
    engine = Engine(authorize=asked)
    publisher, subscriber = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(subscriber, "a/#")
    data = burst(MANY)
    engine.feed(publisher, data)
    assert asked.taken() == SLICE
    assert engine.attention
    turns = 1
    arrived = len(kinds(engine, subscriber, EVENT))
    while engine.deferred:
        assert engine.deferred == [publisher]
        assert engine.feed_deferred() == []
        assert asked.taken() <= SLICE
        arrived += len(kinds(engine, subscriber, EVENT))
        turns += 1
    assert (turns, arrived) == (-(-MANY // SLICE), MANY)
    assert engine.port_counters(publisher)["bytes_in"] == len(data)
    assert engine.port_counters(publisher)["events_in"] == MANY


def test_what_comes_meanwhile_waits_behind_it_cut_anywhere() -> None:
    engine = Engine(authorize=Asked())
    publisher, subscriber = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(subscriber, "a/#")
    data = burst(MANY)
    for start in range(0, len(data), 1_501):
        engine.feed(publisher, data[start : start + 1_501])
    bodies = kinds(engine, subscriber, EVENT)
    while engine.deferred:
        engine.feed_deferred()
        bodies += kinds(engine, subscriber, EVENT)
    assert [int.from_bytes(body[8:12], "big") for body in bodies] == list(range(1, MANY + 1))


def test_ports_take_turns_and_others_do_not_wait() -> None:
    asked = Asked()
    engine = Engine(authorize=asked)
    first, second = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=OTHER)
    subscriber = engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(subscriber, "a/#")
    engine.feed(first, burst(MANY))
    engine.feed(second, burst(MANY))
    assert engine.deferred == [first, second]
    asked.taken()
    engine.feed_deferred()
    assert asked.taken() == SLICE
    assert engine.deferred == [second, first]
    calm = engine.open_port(issuer=b"c" * 16)
    engine.feed(calm, define(1, "a/calm") + event(1, b"calm"))
    assert any(body.endswith(b"calm") for body in kinds(engine, subscriber, EVENT))


def test_a_bad_frame_among_them_is_found_in_its_turn() -> None:
    engine = Engine(authorize=Asked())
    publisher = engine.open_port(issuer=PUBLISHER)
    engine.feed(publisher, burst(SLICE + 1) + b"\x7f\x00\x00\x01x")
    failed = []
    while engine.deferred:
        failed += engine.feed_deferred()
    assert [(port, type(error)) for port, error in failed] == [(publisher, ProtocolError)]


def test_a_port_that_goes_on_sending_is_ended_and_one_that_is_closed_is_forgotten() -> None:
    engine = Engine(authorize=Asked())
    publisher, other = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=OTHER)
    for port in (publisher, other):
        engine.feed(port, burst(MANY))
    for _ in range(3):
        engine.feed(publisher, bytes(1 << 20))
    with pytest.raises(ProtocolError, match="wait for definitions"):
        engine.feed(publisher, bytes(1 << 20))
    engine.close_port(other)
    assert other not in engine.deferred
    engine.feed_deferred()


def test_a_patient_port_asks_nothing_by_itself_and_goes_on_where_it_stopped() -> None:
    asked = Asked()
    engine = Engine(authorize=asked)
    publisher, subscriber = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(subscriber, "a/#")
    engine.feed(publisher, burst(2))
    assert engine.take_asked() == [(publisher, 2)]
    assert engine.take_asked() == []
    kinds(engine, subscriber, EVENT)
    engine.be_patient(publisher, True)
    data = event(3, number=1) + define(3, "a/3") + event(4, number=3) + define(4, "a/4") + event(5, number=4)
    for start in range(0, len(data), 7):  # cut anywhere
        engine.feed(publisher, data[start : start + 7])
    assert asked.taken() == 2  # those before
    assert len(kinds(engine, subscriber, EVENT)) == 1  # what asks nothing is not kept waiting
    assert engine.feed_deferred() == []
    assert asked.taken() == 0  # nor by those who go on with all
    assert engine.feed_deferred([publisher], 1) == []
    assert asked.taken() == 1
    assert engine.deferred == [publisher]
    engine.feed_deferred([publisher], 1)
    assert engine.deferred == []
    assert len(kinds(engine, subscriber, EVENT)) == 2
    engine.be_patient(publisher, False)
    engine.feed(publisher, define(5, "a/5"))
    assert asked.taken() == 2


def test_a_buffer_brings_a_bounded_number_of_control_messages() -> None:
    engine = Engine()
    port = engine.open_port(issuer=PUBLISHER)
    frames = encode_frame(Kind.CONTROL, b"x") * 1_000
    engine.feed(port, frames)
    assert len(engine.take_control()) == 256
    turns = 0
    while engine.deferred:
        engine.feed_deferred()
        assert len(engine.take_control()) <= 256
        turns += 1
    assert turns == 3
    engine.be_patient(port, True)
    engine.feed(port, frames)
    assert len(engine.take_control()) == 16
