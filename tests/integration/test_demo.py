"""The demo checks exactly what it says, and notices when something is wrong."""

from __future__ import annotations

import re
import signal

import psutil
import pytest

from chappe.demo import phasors
from chappe.demo.checks import EventCheck, ValueCheck
from chappe.demo.latencies import Latencies
from tests.support.commands import chappe, read_until, started


@pytest.mark.timeout(120)
def test_nothing_is_lost_or_filtered_wrongly() -> None:
    done = chappe("demo", "--seconds", 5, timeout_s=110)
    assert "nothing lost, nothing repeated, nothing filtered wrongly" in done.stdout
    table = {
        row[0]: [int(cell.replace(",", "")) for cell in row[1:3]]
        for row in re.findall(r"│ (\S+) +│ +([\d,]+) │ +([\d,]+) │", done.stdout)
    }
    assert table.keys() == {"full", "third", "tenth", "alarms/#", "jobs/#"}
    for expected, received in table.values():
        assert expected == received > 0
    full, third, tenth = (table[name][0] // phasors.VARIABLES for name in ("full", "third", "tenth"))
    assert full > 60
    assert abs(full / 3 - third) <= 1
    assert abs(full / 10 - tenth) <= 1


@pytest.mark.timeout(120)
def test_a_node_that_dies_fails_the_demo() -> None:
    with started("demo", "--seconds", 60) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        read_until(demo.stdout, "drops")
        children = psutil.Process(demo.pid).children()
        middle = next(child for child in children if any(word.endswith("b.toml") for word in child.cmdline()))
        middle.kill()
        assert demo.wait(60) == 1
        assert "node b ended with code -9" in demo.stderr.read()
    assert not any(child.is_running() for child in children)


@pytest.mark.timeout(120)
def test_ctrl_c_ends_it_with_the_summary() -> None:
    with started("demo") as demo:
        assert demo.stdout is not None
        read_until(demo.stdout, "drops")
        demo.send_signal(signal.SIGINT)
        assert "nothing lost" in demo.stdout.read()
        assert demo.wait(60) == 0


def arrivals(*numbers: int, place: int = 0) -> tuple[list[int], list[int], list[float]]:
    """Values of one variable in these rounds, as a subscriber gets them."""
    return [place] * len(numbers), [phasors.stamp(number) for number in numbers], [
        phasors.value(place, number) for number in numbers
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "counts"),
    [
        ((3, 6, 9, 12), {}),
        ((3, 6, 12), {"lost": 1}),
        ((3, 6, 7, 9, 12), {"wrongly filtered": 1}),
        ((3, 6, 6, 9, 12), {"repeated": 1}),
        ((3, 9, 6, 12), {"out of order": 1}),
        ((3, 6), {"lost": 2}),
    ],
)
def test_the_check_of_values(numbers: tuple[int, ...], counts: dict[str, int]) -> None:
    check = ValueCheck(3, 1)
    for place in range(1, phasors.VARIABLES):
        check.take(*arrivals(3, 6, 9, 12, place=place))
    check.take(*arrivals(*numbers))
    assert check.expected(13) == 4 * phasors.VARIABLES
    check.finish(13)
    assert check.findings.counts == counts


def test_the_check_sees_a_wrong_value() -> None:
    check = ValueCheck(1, 5)
    places, stamps, values = arrivals(5)
    check.take(places, stamps, [values[0] + 0.001])
    assert check.findings.counts == {"wrong value": 1}


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        (((0, 1), (1, 2), (0, 3)), {}),
        (((0, 1), (1, 3), (0, 2)), {}),
        (((0, 1), (0, 3), (0, 2)), {"out of order": 1}),
        (((0, 1), (1, 1), (0, 2), (0, 3)), {"repeated": 1}),
        (((0, 1),), {"lost": 2}),
    ],
)
def test_the_check_of_events(events: tuple[tuple[int, int], ...], counts: dict[str, int]) -> None:
    check = EventCheck(2)
    for receiver, number in events:
        check.take(receiver, number)
    check.finish(3)
    assert check.findings.counts == counts


def test_rounds_and_stamps_agree() -> None:
    for number in (0, 1, 2, 53_843_787_482, 53_843_787_483, 53_843_787_484):
        assert phasors.round_of(phasors.stamp(number)) == number
    assert phasors.stamp(30) == 1_000_000_000


def test_percentiles() -> None:
    latencies = Latencies()
    latencies.add(range(1_000_000, 101_000_000, 1_000_000))
    assert 47 < latencies.percentile_ms(0.5) < 54
    assert 98 < latencies.percentile_ms(0.99) < 106
    assert Latencies().percentile_ms(0.5) == 0
