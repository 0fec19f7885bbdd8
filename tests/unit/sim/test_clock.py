"""Virtual time happens in order, and randomness comes from one seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import ChappeError
from chappe.sim.clock import START_NS, Clock, Streams


@given(st.lists(st.integers(0, 50), max_size=60))
def test_everything_happens_in_order_of_time_then_of_asking(delays: list[int]) -> None:
    clock = Clock()
    seen: list[tuple[int, int]] = []
    for number, delay in enumerate(delays):
        clock.at(START_NS + delay, lambda number=number: seen.append((clock.now_ns, number)))
    clock.run_until(START_NS + 25)
    early = [(START_NS + delay, number) for number, delay in enumerate(delays) if delay <= 25]
    assert seen == sorted(early)
    assert clock.now_ns == START_NS + 25
    clock.run_until(START_NS + 50)
    assert len(seen) == len(delays) == clock.happened


def test_what_is_cancelled_does_not_happen() -> None:
    clock = Clock()
    seen: list[str] = []
    first = clock.after(1.0, seen.append, "first")
    clock.after(2.0, seen.append, "second")
    assert first.waits
    first.cancel()
    assert not first.waits
    assert clock.next_ns() == START_NS + 2_000_000_000
    clock.run(3.0)
    assert seen == ["second"]
    assert clock.seconds == 3.0


def test_an_instant_settles_once_after_everything_in_it() -> None:
    rounds: list[int] = []
    clock = Clock(lambda: rounds.append(clock.happened))
    for _ in range(10):
        clock.after(1.0, lambda: None)
    clock.after(2.0, lambda: None)
    clock.run(5.0)
    assert rounds == [10, 11]


def test_a_time_that_has_passed_means_at_once() -> None:
    clock = Clock()
    clock.run(1.0)
    seen: list[int] = []
    clock.at(START_NS, lambda: seen.append(clock.now_ns))
    clock.run(0.0)
    assert seen == [START_NS + 1_000_000_000]


def test_time_that_stands_still_is_said() -> None:
    clock = Clock()

    def again() -> None:
        clock.at(clock.now_ns, again)

    again()
    with pytest.raises(ChappeError, match="stands still"):
        clock.run(1.0)


def test_streams_of_a_seed_repeat_and_do_not_touch_each_other() -> None:
    streams, same, other = Streams(7), Streams(7), Streams(8)
    one = streams.of("link", "a", "b")
    for _ in range(1000):
        one.random()
    second = streams.of("churn")
    assert [second.random() for _ in range(5)] == [x.random() for x in [same.of("churn")] for _ in range(5)]
    assert same.of("link", "a", "b").random() != same.of("link", "ab", "").random()
    assert same.of("churn").random() != other.of("churn").random()
