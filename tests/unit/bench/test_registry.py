"""The commands that are made of the registry."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.testing import CliRunner

from bench import app as commands
from bench.app import app, longest
from bench.registry import BENCHES, Bench, Own, named
from bench.report import Options, Report
from chappe.errors import ChappeError

BENCHES_BY_NAME = {bench.name: bench for bench in BENCHES}


def test_names_are_used_once() -> None:
    assert len(BENCHES_BY_NAME) == len(BENCHES)
    runs = [run for bench in BENCHES for run in bench.runs]
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_a_bench_runs_with_the_options_it_declares(bench: Bench) -> None:
    module = importlib.import_module(bench.module)
    assert get_type_hints(module.run) == {"options": Options, "own": bench.own, "return": Report}
    assert hasattr(module, "compared") == bench.against
    for own in bench.runs.values():
        bench.own(**own)


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_its_help_says_how_long_it_takes_and_has_the_shared_options(bench: Bench) -> None:
    said = " ".join(CliRunner().invoke(app, [bench.name, "--help"]).stdout.split())
    assert f"Takes up to {bench.minutes:g} minutes, with --quick {bench.quick_minutes:g}." in said
    assert {"--quick", "--json", "--check", "--rounds", "--charts"} <= set(re.findall(r"--\w+", said))
    assert ("--against" in said) == bench.against
    for example in bench.examples:
        assert example.split()[0] == bench.name


@pytest.mark.parametrize("words", [["--help"], ["list"]])
def test_every_bench_is_listed_with_its_times(words: list[str]) -> None:
    said = CliRunner().invoke(app, words).stdout
    for bench in BENCHES:
        assert re.search(rf"{bench.name}\b\W+{bench.minutes:g}\b.*\b{bench.quick_minutes:g}\b", said)


def test_where_a_user_says_how_long_that_counts() -> None:
    assert longest(named("soak"), {"minutes": 3.0}, quick=False) == "3 minutes"
    assert longest(named("soak"), {"minutes": None}, quick=True) == "2 minutes"


class Sample:
    """Stands for the module of a bench."""

    def __init__(self) -> None:
        self.given: list[tuple[Options, object]] = []

    def run(self, options: Options, own: object) -> Report:
        self.given.append((options, own))
        if len(self.given) == 2:
            raise ChappeError("no peer")
        report = Report("sample")
        report.compare("figure", 1, "", ">=", 2)
        return report


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Sample:
    made = Sample()
    monkeypatch.setattr(commands.importlib, "import_module", lambda _: made)
    return made


def test_options_reach_the_bench_typed(sample: Sample, tmp_path: Path) -> None:
    words = ["churn", "--nodes", "50", "--seed", "7", "--quick", "--rounds", "3", "--charts", str(tmp_path), "--check"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "takes up to 2 minutes" in done.stdout
    [(options, own)] = sample.given
    assert own == named("churn").own(nodes=50, seed=7)
    assert (options.quick, options.rounds, options.charts, options.check) == (True, 3, tmp_path, True)


def test_all_runs_every_one_of_them_and_ends_with_the_worst(sample: Sample, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["all", "--quick", "--json", str(tmp_path), "--charts", str(tmp_path)])
    assert done.exit_code == 2  # the second had no peer
    runs = [(name, bench.own(**own)) for bench in BENCHES for name, own in bench.runs.items()]
    assert [own for _, own in sample.given] == [own for _, own in runs]
    assert {path.stem for path in tmp_path.glob("*.json")} == {name for name, _ in runs} - {runs[1][0]}
    assert f"{len(runs)} of {len(runs)}" in done.stdout


def test_a_bench_without_options_of_its_own_takes_none(sample: Sample) -> None:
    assert CliRunner().invoke(app, ["growth", "--seed", "1"]).exit_code == 2
    assert CliRunner().invoke(app, ["growth"]).exit_code == 0
    assert sample.given[0][1] == Own()
