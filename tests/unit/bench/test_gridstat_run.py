"""The experiments of the source as a user runs them: real processes, figures beside the source's, targets judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chappe.bench import gridstat, gridstat_source
from tests.support.commands import chappe

# sections 9.1 and 9.3 to 9.7, and what the source never measured
EXPERIMENTS = {"lower-bound", "load", "hops", "multicast", "filtering", "condensation", "management"}


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
    assert set(gridstat.CASES) == EXPERIMENTS
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
