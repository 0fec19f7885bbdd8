"""Two commits side by side: what is built, and when a difference counts as a loss."""

from __future__ import annotations

import io
import math
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from chappe.bench import commits
from chappe.bench.app import app
from chappe.bench.load import Figures
from chappe.bench.peers_against import Interval, Pair, summarise
from chappe.bench.peers_bench import PING, SMALL
from chappe.bench.report import Options, Report
from chappe.errors import ChappeError


def pairs(*rates: tuple[float, float]) -> list[Pair]:
    return [
        Pair(Figures(delivered_per_s=ours, cpu_ns=1e9 / ours), Figures(delivered_per_s=theirs, cpu_ns=1e9 / theirs))
        for ours, theirs in rates
    ]


def verdict(values: dict[str, list[Pair]]) -> int:
    report = Report("sample")
    summarise(report, values)
    return report.finish(Options(check=True, console=Console(file=io.StringIO())))


def test_interval_of_ratios_is_that_of_their_logarithms() -> None:
    interval = Interval.of([0.5, 2.0])
    assert interval.ratio == pytest.approx(1.0)
    # t(0.975, 1) = 12.706, standard error of the mean of ln 0.5 and ln 2 = ln 2
    assert math.log(interval.high) == pytest.approx(12.706 * math.log(2), rel=1e-4)
    assert interval.low == pytest.approx(1 / interval.high)


def test_noise_around_one_is_no_loss() -> None:
    assert verdict({SMALL.name: pairs((98, 100), (101, 100), (97, 100), (102, 100))}) == 0


def test_a_steady_loss_of_a_tenth_is_one() -> None:
    assert verdict({SMALL.name: pairs((90, 100), (91, 100), (89, 100), (90, 100))}) == 1


def test_a_slower_answer_is_a_loss() -> None:
    slow = [Pair(Figures(p50_us=us, cpu_ns=1), Figures(p50_us=20, cpu_ns=1)) for us in (25, 25.1, 24.9)]
    assert verdict({PING.name: slow}) == 1


def test_a_message_lost_is_one_too_many() -> None:
    good = pairs((100, 100), (101, 100), (99, 100))
    good[1].ours.lost = 1
    assert verdict({SMALL.name: good}) == 1


def test_a_single_pair_proves_nothing() -> None:
    assert verdict({SMALL.name: pairs((100, 100))}) == 1


def test_an_unknown_commit_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["peers", "--against", "no-such-commit", "--charts", str(tmp_path)])
    assert done.exit_code == 2
    assert "no-such-commit" in done.stderr


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two commits whose build leaves a file."""
    top = tmp_path / "checkout"
    (top / "src").mkdir(parents=True)
    monkeypatch.setattr(commits, "checkout", lambda: top)
    git = ["git", "-C", str(top), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number, setup in enumerate(("open('src/made', 'a').write('x')", "raise SystemExit('cannot be built')")):
        (top / "setup.py").write_text(setup)
        (top / "src" / "number").write_text(str(number))
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"{number}"], check=True)
    return top


def test_a_commit_is_built_once_and_apart(checkout: Path, tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    tree = commits.build("HEAD~1", trees)
    assert commits.build("HEAD~1", trees) == tree
    assert (tree.source / "made").read_text() == "x"
    assert (tree.source / "number").read_text() == "0"
    assert not (checkout / "src" / "made").exists()


def test_a_commit_that_does_not_build_says_why_and_is_tried_again(checkout: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ChappeError, match=r"does not build.*cannot be built"):
            commits.build("HEAD", tmp_path / "trees")
