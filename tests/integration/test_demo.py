"""The demo checks exactly what it says, and notices when something is wrong."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest

from chappe.cli._deployment import read
from chappe.demo import grid, phasors
from chappe.demo.checks import ValueCheck
from chappe.demo.latencies import Latencies
from chappe.demo.schedule import Schedule
from tests.support.commands import chappe, read_until, started


@pytest.mark.timeout(240)
def test_the_whole_story_is_told_and_nothing_goes_wrong() -> None:
    done = chappe("demo", "--seconds", 21, timeout_s=230)
    assert "nothing lost, nothing repeated, nothing filtered wrongly" in done.stdout
    for words in ("condensation grid/total", "mode 1 in both clouds", "mode 0 in both clouds", "grid/alert is flooded",
                  "grid/alert is no longer flooded"):  # fmt: skip
        assert words in done.stdout
    assert "there was no time" not in done.stdout
    table = {
        row[0]: [int(cell.replace(",", "")) for cell in row[1:4]]
        for row in re.findall(r"│ (\S+) +│ +([\d,]+) │ +([\d,]+) │ +([\d,]+) │", done.stdout)
    }
    assert table.keys() == {"full", "third", "tenth", "condensed", "alerts"}
    for due, received, extra in table.values():
        assert received == due + extra
        assert due > 0
    full, third, tenth = (table[name][1] // phasors.VARIABLES for name in ("full", "third", "tenth"))
    assert full > 500
    assert full / 3 < third < full  # an emergency gave it everything for a while
    assert tenth < full / 10  # and this one nothing
    assert table["alerts"][1] % len(grid.ROUTERS) == 0  # the same at every router


@pytest.mark.timeout(240)
def test_a_process_that_dies_fails_the_demo() -> None:
    with started("demo", "--seconds", 100) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        read_until(demo.stdout, "drops")
        children = psutil.Process(demo.pid).children(recursive=True)
        routers = next(child for child in children if _last_argument(child) == "routers-north")
        routers.kill()
        assert demo.wait(100) == 1
        assert "process routers-north was killed by SIGKILL" in demo.stderr.read()
    _, alive = psutil.wait_procs(children, 30)
    assert not alive


def _last_argument(process: psutil.Process) -> str:
    """Empty for a process that is just ending: the demo has some that are short."""
    try:
        return str((process.cmdline() or [""])[-1])
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.timeout(240)
def test_ctrl_c_ends_it_with_the_summary() -> None:
    with started("demo") as demo:
        assert demo.stdout is not None
        read_until(demo.stdout, "drops")
        demo.send_signal(signal.SIGINT)
        text = demo.stdout.read()
        assert "nothing lost" in text
        assert "there was no time for a flood" in text
        assert demo.wait(100) == 0


def test_the_example_is_the_deployment_of_the_demo() -> None:
    file = Path(__file__).parents[2] / "examples" / "two-clouds.toml"
    assert file.read_text() == grid.deployment([7500, 7501, 7502, *range(7601, 7607)])
    topology = read(file).topology
    assert topology is not None
    assert [router.name for router in topology.router] == [*grid.ROUTERS]
    assert [topology.level(channel) for channel in topology.channel] == [1] * 6 + [2] * 2


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
    check = ValueCheck(Schedule(1, 3), 2, phasors.value)
    check.take(*arrivals(3, 6, 9, 12, place=1))
    check.take(*arrivals(*numbers))
    assert check.expected(13) == 4 * 2
    check.finish(13)
    assert check.findings.counts == counts


@pytest.mark.parametrize(
    ("numbers", "counts", "extra"),
    [
        ((3, 6, 9, 10, 12, 13, 14, 15, 16), {}, 2),  # the new rule since 10: 10 and 13 could come and did
        ((3, 6, 9, 12, 14, 15, 16), {}, 0),  # since 14
        ((3, 6, 9, 14, 15, 16), {"lost": 1}, 0),  # 12 is due by both rules
        ((3, 4, 6, 9, 12, 14, 15, 16), {"wrongly filtered": 1}, 0),  # too early
        ((3, 6, 9, 12, 15, 16), {"lost": 1}, 0),  # 14 is due by the new rule
        ((3, 6, 9, 10, 10, 12, 14, 15, 16), {"repeated": 1}, 1),
    ],
)
def test_the_check_while_a_mode_changes(numbers: tuple[int, ...], counts: dict[str, int], extra: int) -> None:
    check = ValueCheck(Schedule(1, 3), 1, phasors.value)
    check.take(*arrivals(*numbers[:2]))
    check.change(8, 3, 1)
    check.settle(14, 1)
    check.take(*arrivals(*numbers[2:]))
    check.finish(16)
    assert check.findings.counts == counts
    assert check.extra == extra
    assert check.expected(16) == 4 + 3  # 3 6 9 12, 14 15 16


def test_the_check_of_a_subscription_that_pauses() -> None:
    check = ValueCheck(Schedule(0, 10), 1, phasors.value)
    check.change(25, 10, 0)
    check.settle(45, 0)
    check.take(*arrivals(0, 10, 20, 30))
    assert check.missing(100) == 0
    check.change(95, 0, 10)
    check.settle(115, 10)
    check.take(*arrivals(110, 120, 130))
    check.finish(135)
    assert check.findings.counts == {}
    assert (check.expected(135), check.extra) == (5, 2)
    check.take(*arrivals(50))
    assert check.findings.counts == {"wrongly filtered": 1}


def test_the_check_sees_a_wrong_value() -> None:
    check = ValueCheck(Schedule(5, 1), 1, phasors.value)
    places, stamps, values = arrivals(5)
    check.take(places, stamps, [values[0] + 0.001])
    assert check.findings.counts == {"wrong value": 1}


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
