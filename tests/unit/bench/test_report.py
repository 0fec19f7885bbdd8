"""What every bench ends with: the shape, the verdicts, the exit code; and the arithmetic below it."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.app import app
from bench.charts import bars, curves, exponent
from bench.load import Figures
from bench.peers_bench import LARGE, SMALL, Cell, best, summarise
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, spread
from chappe.errors import ChappeError


def report(value: float) -> Report:
    made = Report("sample", versions={"peer": "1.0"})
    made.compare("rate, of the other's", value, "times", ">=", 5)
    made.show("rate", 1234.5, "messages/s")
    return made


@pytest.mark.parametrize(("value", "code"), [(5.0, 0), (4.9, 1), (math.nan, 1)])
def test_check_fails_where_a_target_is_missed_or_not_measured(value: float, code: int, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "result.json"
    out = io.StringIO()
    options = Options(check=True, json=file, console=Console(file=out, width=140))
    assert report(value).finish(options) == code
    written = json.loads(file.read_text())
    assert set(written) == {"bench", "environment", "results"}
    assert written["bench"] == "sample"
    assert {"cpu", "cores", "kernel", "python", "versions"} <= set(written["environment"])
    assert [set(result) for result in written["results"]] == [
        {"name", "value", "unit", "relation", "target", "met"},
    ] * 2
    assert written["results"][0]["met"] is (code == 0)
    assert written["results"][1]["met"] is None
    assert ("missed" in out.getvalue()) is (code == 1)


def test_without_check_a_missed_target_is_only_shown() -> None:
    assert report(1.0).finish(Options(console=Console(file=io.StringIO()))) == 0


def test_rounds_are_interleaved_and_a_failure_does_not_end_them() -> None:
    seen: list[str] = []

    def measured(cell: str) -> float:
        seen.append(cell)
        if cell == "b":
            raise ChappeError("refused")
        return float(len(seen))

    rounds: Rounds[str, float] = Rounds(Report("sample"), Console(file=io.StringIO()), Ceiling())
    rounds.run(2, ["a", "b", "c"], measured, "rounds")
    assert seen == ["a", "b", "c", "c", "b", "a"]
    assert rounds.values == {"a": [1.0, 6.0], "c": [3.0, 4.0]}
    assert rounds.failures == {"b": "refused"}
    assert rounds.report.notes == ["b failed once or more: refused"]


def test_rounds_end_before_the_ceiling() -> None:
    rounds: Rounds[str, float] = Rounds(Report("sample"), Console(file=io.StringIO()), Ceiling(0.0))
    rounds.run(5, ["a"], lambda _: 1.0, "rounds")
    assert rounds.done == 1


def test_medians_and_spreads() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert math.isnan(median([]))
    assert spread([90.0, 100.0, 110.0]) == pytest.approx(0.1)


def test_the_exponent_of_a_power_law() -> None:
    assert exponent([(x, 7 * x**0.3) for x in (10.0, 100.0, 1000.0)]) == pytest.approx(0.3)
    assert math.isnan(exponent([(10.0, math.nan)]))


def test_the_better_variant_of_a_system_counts() -> None:
    values = {
        Cell(SMALL.name, "nats-server"): [Figures(delivered_per_s=100, cpu_ns=50)],
        Cell(SMALL.name, "nats-server", pinned=True): [Figures(delivered_per_s=80, cpu_ns=40)],
        Cell(SMALL.name, "chappe"): [Figures(delivered_per_s=600, cpu_ns=5)],
    }
    assert best(values, SMALL, "nats-server", "delivered_per_s")[0] == 100
    assert best(values, SMALL, "nats-server", "cpu_ns")[0] == 40
    made = Report("peers")
    summarise(made, values, 100)
    verdicts = {result.name: result for result in made.results}
    assert verdicts[f"{SMALL.name}: delivered, of nats-server's"].value == 6
    assert verdicts[f"{SMALL.name}: delivered, of nats-server's"].met
    lesser = f"{LARGE.name}: delivered, of the lesser of 2 times nats-server's and 0.8 of a splice relay's"
    assert verdicts[lesser].met is False  # never measured


@pytest.mark.parametrize(("ours", "met"), [(250, True), (205, True), (110, True), (79, False)])
def test_1_kib_is_to_reach_twice_nats_server_or_most_of_a_bare_relay(ours: float, met: bool) -> None:
    values = {
        Cell(LARGE.name, "nats-server"): [Figures(delivered_per_s=100)],
        Cell(LARGE.name, "splice relay"): [Figures(delivered_per_s=130)],
        Cell(LARGE.name, "chappe"): [Figures(delivered_per_s=ours)],
    }
    made = Report("peers")
    summarise(made, values, 100)
    (verdict,) = [result for result in made.results if "the lesser of" in result.name]
    assert verdict.met is met


def test_a_busy_generator_is_named_as_the_bottleneck() -> None:
    assert Figures(publisher_cores=0.99, broker_cores=0.5).bottleneck == "generator"
    assert Figures(publisher_cores=0.99, broker_cores=0.95).bottleneck == "broker"


def test_charts_are_png_files(tmp_path: Path) -> None:
    one = bars(tmp_path / "b.png", "title", "unit", {"row": {"a": (10.0, 0.1), "b": (math.nan, 0.0)}})
    two = curves(tmp_path / "c.png", "title", "across", "up", {"line": [(1, 2), (10, 3)], "empty": [(1, math.nan)]})
    for path in (one, two):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments", [["peers", "--clients", "java"], ["status", "--layout", "loose"], ["growth", "--rounds", "0"]]
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 2
