"""Which durable events are sent again, and when: as a table of times, without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from chappe.client import durable
from chappe.client.durable import Event, Outstanding
from chappe.client.topics import Long, Topic
from chappe.wire.durable import Confirmation, ResentEvent


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def event(loop: asyncio.AbstractEventLoop, sequence: int, topic: Topic = "a", deadline: float = 30.0) -> Event:
    return Event(topic, b"body", 3, {"created": 7}, deadline, loop.create_future(), sequence)


def confirmed(*spans: tuple[int, int], epoch: int = 1) -> Confirmation:
    return Confirmation(archive="plant", epoch=epoch, ranges=spans)


def numbers(events: list[Event]) -> list[int]:
    return [each.sequence for each in events]


def test_what_an_archive_confirms_is_taken_out_once(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Outstanding()
    for number in range(1, 6):
        waiting.add(event(loop, number), 0.0)
    assert waiting.bytes == 20
    assert numbers(waiting.confirm(confirmed((2, 3), (5, 1 << 31)), 1.0)) == [2, 3, 5]
    assert numbers(waiting.confirm(confirmed((1, 5), epoch=2), 1.0)) == []
    assert numbers(waiting.confirm(confirmed((1, 5)), 1.0)) == [1, 4]
    assert (len(waiting), waiting.bytes) == (0, 0)


def test_one_of_which_nothing_is_heard_is_sent_again_ever_more_rarely(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Outstanding()
    waiting.add(event(loop, 1), 0.0)
    times = [step / 4 for step in range(60) if waiting.due(step / 4)]
    assert times == [0.5, 1.5, 3.5, 7.5, 12.5]
    assert numbers(waiting.expired(29.9)) == []
    assert numbers(waiting.expired(30.0)) == [1]


def test_those_behind_what_was_confirmed_are_missing_and_the_others_wait(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Outstanding()
    for number in (1, 2, 3, 4):
        waiting.add(event(loop, number), 0.0)
    waiting.confirm(confirmed((2, 2)), 0.9)
    assert numbers(waiting.due(1.0)) == [1]
    assert numbers(waiting.due(1.3)) == []  # an archive confirmed something a moment ago
    assert numbers(waiting.due(1.6)) == [3, 4]


def test_a_slow_archive_is_waited_for(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Outstanding()
    for number in range(8):
        waiting.add(event(loop, number), float(number))
        waiting.confirm(confirmed((number, number)), number + 1.0)
    waiting.add(event(loop, 9), 20.0)
    assert numbers(waiting.due(22.0)) == []
    assert numbers(waiting.due(23.0)) == [9]


def test_few_are_sent_again_at_a_time(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Outstanding()
    for number in range(durable.AT_ONCE + 5):
        waiting.add(event(loop, number), 0.0)
    assert len(waiting.due(1.0)) == durable.AT_ONCE
    assert waiting.due(1.0) == []  # those are on their way
    waiting.confirm(confirmed((0, 2)), 1.1)
    assert len(waiting.due(5.0)) == durable.AT_ONCE  # the oldest once more, and three that have not been
    waiting.confirm(confirmed((0, durable.AT_ONCE)), 5.1)
    assert numbers(waiting.due(6.2)) == [durable.AT_ONCE + number for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("topic", "text", "kind"), [("a/b", "a/b", "s"), (-7, "-7", "i"), (Long(1 << 40), str(1 << 40), "l")]
)
def test_an_event_that_is_sent_again_says_what_it_was(
    loop: asyncio.AbstractEventLoop, topic: Topic, text: str, kind: str
) -> None:
    assert event(loop, 9, topic).again() == ResentEvent(9, text, kind, 7, b"body")
