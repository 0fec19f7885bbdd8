"""When a function fires: tables of events and times in, firings out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.status.condensation.calculators import Setup
from chappe.status.condensation.triggers import Trigger, trigger_of
from chappe.wire.base import Variable
from chappe.wire.management import Function, Input

MS = 1_000_000


def made(
    trigger: str, *, alerts: tuple[int, ...] = (), inputs: int = 3, interval_ns: int = 0, count: int = 0
) -> Trigger:
    variables = tuple(
        Variable(at + 1, "p", f"v{at}", "float", 0 if at in alerts else 1, 1 if at in alerts else 10 * MS, 3, 0)
        for at in range(inputs)
    )
    function = Function(
        publisher="o", variable="v", inputs=tuple(Input(each.publisher, each.variable) for each in variables),
        calculator="builtin:sum", trigger=trigger, interval_ns=interval_ns, count=count,
    )  # fmt: skip
    return trigger_of(Setup(function, variables[0], variables))


def firings(trigger: Trigger, arrivals: list[int]) -> list[bool]:
    return [trigger.arrived(position, 0) for position in arrivals]


@pytest.mark.spec("GS-131")
def test_a_time_trigger_fires_at_multiples_of_its_interval() -> None:
    trigger = made("time", interval_ns=2 * MS)
    assert trigger.deadline_ns() == 0
    assert trigger.due(7 * MS) is None
    assert trigger.deadline_ns() == 8 * MS
    assert trigger.due(7_999_999) is None
    assert trigger.due(8 * MS + 5) == 8 * MS
    assert trigger.deadline_ns() == 10 * MS
    assert not any(firings(trigger, [0, 1, 2]))


@pytest.mark.spec("GS-138")
def test_a_late_firing_delays_no_other() -> None:
    trigger = made("time", interval_ns=2 * MS)
    trigger.due(0)
    trigger.due(1)
    stamps = [trigger.due(2 * MS * turn + MS) for turn in range(1, 1001)]
    assert stamps == [2 * MS * turn for turn in range(1, 1001)]
    assert trigger.missed == 0


def test_late_firings_are_made_up_for_each_with_its_own_stamp() -> None:
    trigger = made("time", interval_ns=2 * MS)
    trigger.due(10 * MS)
    now_ns = 18 * MS + 7
    assert [trigger.due(now_ns) for _ in range(5)] == [12 * MS, 14 * MS, 16 * MS, 18 * MS, None]
    assert trigger.missed == 0


def test_firings_that_are_more_than_a_second_late_are_counted_and_left_out() -> None:
    trigger = made("time", interval_ns=2 * MS)
    trigger.due(0)
    trigger.due(1)
    assert [trigger.due(2 * MS * 1000 + 3), trigger.due(2 * MS * 1000 + 4)] == [2 * MS * 1000, None]
    assert trigger.missed == 999


def test_a_clock_that_was_set_back_does_not_stop_a_time_trigger() -> None:
    trigger = made("time", interval_ns=2 * MS)
    trigger.due(1_000_000 * MS)
    assert trigger.due(500 * MS) is None
    assert trigger.deadline_ns() == 502 * MS
    assert trigger.due(502 * MS) == 502 * MS


@given(st.lists(st.integers(0, 9 * MS) | st.integers(0, 3000 * MS), min_size=1, max_size=20))
def test_a_time_trigger_never_stamps_the_future_nor_twice_and_counts_what_it_leaves_out(steps: list[int]) -> None:
    trigger = made("time", interval_ns=2 * MS)
    trigger.due(1)
    now, stamps = 1, []
    for step in steps:
        now += step
        while (stamp := trigger.due(now)) is not None:
            stamps.append(stamp)
            assert stamp <= now
            assert stamp % (2 * MS) == 0
    assert stamps == sorted(set(stamps))
    assert len(stamps) + trigger.missed == now // (2 * MS)


@pytest.mark.spec("GS-131")
@pytest.mark.parametrize(
    ("count", "arrivals", "fires"),
    [
        (0, [0, 1, 2, 0, 1, 2], [False, False, True, False, False, True]),
        (3, [0, 0, 0, 1, 1, 2], [False, False, False, False, False, True]),
        (2, [0, 0, 1, 1, 1, 0], [False, False, True, False, False, True]),
        (1, [0, 0, 2], [True, True, True]),
    ],
)
def test_an_event_trigger_counts_distinct_inputs_since_it_fired(
    count: int, arrivals: list[int], fires: list[bool]
) -> None:
    assert firings(made("event", count=count), arrivals) == fires


@pytest.mark.spec("GS-131")
@pytest.mark.parametrize(
    ("alerts", "count", "arrivals", "fires"),
    [
        ((2,), 0, [0, 1, 0, 2, 1, 2], [False, False, False, True, False, True]),
        ((1, 2), 1, [1, 0, 2], [True, False, True]),
        ((0, 1, 2), 2, [0, 0, 1, 2, 1], [False, False, True, False, True]),
        ((1, 2), 0, [0, 1, 1, 2], [False, False, False, True]),
    ],
)
def test_an_alert_trigger_fires_on_alerts_alone(
    alerts: tuple[int, ...], count: int, arrivals: list[int], fires: list[bool]
) -> None:
    trigger = made("alert", alerts=alerts, count=count)
    assert firings(trigger, arrivals) == fires
    assert [trigger.hears(position) for position in range(3)] == [position in alerts for position in range(3)]
