"""The experiments of the source as a user runs them: real processes, figures beside the source's, targets judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import gridstat, gridstat_source
from bench.shaped_pair import ShapedPair
from tests.support.commands import chappe

# sections 9.1 and 9.3 to 9.7, and what the source never measured
EXPERIMENTS = {"lower-bound", "load", "hops", "multicast", "filtering", "condensation", "management"}
SATURATED = {"filtering-saturated", "condensation-saturated"}  # the same effects where there is no capacity left


@pytest.mark.spec("GS-173")
def test_the_lower_bound_is_measured_and_judged(tmp_path: Path) -> None:
    file = tmp_path / "gridstat.json"
    options = ("--quick", "--json", file, "--charts", tmp_path)
    done = chappe("bench", "gridstat", *options, "--case", "lower-bound", timeout_s=60)
    written = json.loads(file.read_text())
    assert written["bench"] == "gridstat"
    figures = {result["name"]: result for result in written["results"]}
    shown = {f"two edges, idle: {what}" for what in ("mean", "deviation", "p99", "most", "delivered")}
    assert shown <= set(figures)
    assert all(figures[name]["value"] > 0 for name in shown - {"two edges, idle: deviation"})
    assert figures["two edges, idle: p99"]["value"] <= figures["two edges, idle: most"]["value"]
    assert figures["two edges, idle: delivered"]["value"] == pytest.approx(20, rel=0.2)  # one event in 50 ms
    (judged,) = [result for result in written["results"] if result["target"] is not None]
    assert "the source's 0.419 ms" in judged["name"]
    assert (judged["relation"], judged["target"], judged["met"]) == ("<=", 1, judged["value"] <= 1)
    assert judged["value"] == pytest.approx(figures["two edges, idle: mean"]["value"] / 419)
    assert "s measured" in " ".join(written["environment"]["notes"])
    assert "two edges, idle" in done.stdout


@pytest.mark.spec("GS-173")
def test_every_experiment_of_the_source_is_a_case_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    assert set(gridstat.CASES) == EXPERIMENTS | SATURATED
    said = chappe("bench", "gridstat", "--quick", "--charts", tmp_path, "--case", "hopps", code=2).stderr
    assert "--case hopps: there is no such case; choose from lower-bound, load, hops" in " ".join(said.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("GS-173")
def test_a_chart_has_our_points_beside_the_source_s(tmp_path: Path) -> None:
    ours = [(routers, 100.0 * routers) for routers in range(1, 8)]
    table = gridstat_source.Table("hops at 50,000 events/s", "routers", "mean (us)", ours, gridstat_source.HOPS)
    chart = gridstat_source.chart(tmp_path, table)
    assert chart.parent == tmp_path
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert [routers for routers, _ in table.theirs] == [routers for routers, _ in ours]


def measured(case: str, folder: Path) -> dict[str, float]:
    """The figures of a case by their names."""
    file = folder / "gridstat.json"
    chappe("bench", "gridstat", "--quick", "--json", file, "--charts", folder, "--case", case, timeout_s=150)
    return {result["name"]: result["value"] for result in json.loads(file.read_text())["results"]}


@pytest.mark.timeout(200)
def test_the_input_rate_of_a_router_of_one_core_is_measured_with_and_without_a_filter(tmp_path: Path) -> None:
    figures = measured("filtering-saturated", tmp_path)
    every, second = (
        figures[f"one core, 10 subscribers of every {which}: input"] for which in ("event", "second event")
    )
    assert figures["filtering half at saturation: input rate, of that without"] == pytest.approx(second / every)
    assert figures["filtering at saturation: lost, out of order"] == 0  # and so it passed exactly the half


@pytest.mark.timeout(200)
def test_a_shaped_channel_carries_what_its_token_bucket_allows_and_serves_more_by_averages(tmp_path: Path) -> None:
    if obstacle := ShapedPair.obstacle():
        pytest.skip(obstacle)
    figures = measured("condensation-saturated", tmp_path)
    delivered = figures["shaped channel: events delivered"]
    assert 0 < 24 * delivered <= 1.3 * figures["shaped channel: rate of its token bucket"]  # and a burst
    averages = figures["shaped channel: averages of 40 delivered"]
    served = figures["condensing 40 to 1 on a shaped channel: events served, of those without"]
    assert served == pytest.approx(40 * averages / delivered)
    assert served > 1
