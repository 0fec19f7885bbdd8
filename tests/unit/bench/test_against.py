"""Two commits side by side: what is built, and when a difference counts as a loss."""

from __future__ import annotations

import io
import math
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench import client, commits, peers_bench, status
from bench.against import Compared, Interval, Measure, Pair, Sample, run, summarise
from bench.app import app
from bench.registry import Own, PeersOptions, StatusOptions
from bench.report import Options, Report
from chappe.errors import ChappeError


def pairs(*rates: tuple[float, float], lost: int = 0) -> list[Pair]:
    return [Pair(Sample({"delivered": ours}, lost), Sample({"delivered": theirs})) for ours, theirs in rates]


def verdict(values: dict[str, list[Pair]]) -> int:
    report = Report("sample")
    summarise(report, list(values), values)
    return report.finish(Options(check=True, console=Console(file=io.StringIO())))


def test_interval_of_ratios_is_that_of_their_logarithms() -> None:
    interval = Interval.of([0.5, 2.0])
    assert interval.ratio == pytest.approx(1.0)
    # t(0.975, 1) = 12.706, standard error of the mean of ln 0.5 and ln 2 = ln 2
    assert math.log(interval.high) == pytest.approx(12.706 * math.log(2), rel=1e-4)
    assert interval.low == pytest.approx(1 / interval.high)


def test_noise_around_one_is_no_loss() -> None:
    assert verdict({"row": pairs((98, 100), (101, 100), (97, 100), (102, 100))}) == 0


def test_a_steady_loss_of_a_tenth_is_one() -> None:
    assert verdict({"row": pairs((90, 100), (91, 100), (89, 100), (90, 100))}) == 1


def test_one_figure_of_one_cell_that_lost_is_enough() -> None:
    good = pairs((100, 100), (101, 100), (99, 100))
    slow = [Pair(Sample({"1 / p50": 1 / us}), Sample({"1 / p50": 1 / 20})) for us in (25, 25.1, 24.9)]
    assert verdict({"row": good, "ping": slow}) == 1


def test_a_message_lost_is_one_too_many() -> None:
    assert verdict({"row": pairs((100, 100), (101, 100), (99, 100), lost=1)}) == 1


def test_a_pair_in_which_nothing_was_delivered_is_left_out() -> None:
    assert verdict({"row": pairs((100, 100), (0, 100), (100, 0), (101, 100), (99, 100))}) == 0


@pytest.mark.parametrize("few", [[], pairs((100, 100))])
def test_fewer_than_two_pairs_prove_nothing(few: list[Pair]) -> None:
    assert verdict({"row": few}) == 1


def test_sides_take_turns_and_each_is_opened_once(checkout: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    @contextmanager
    def side(tree: Path | None) -> Iterator[Measure]:
        name = "ours" if tree is None else "theirs"
        seen.append(f"open {name}")

        def measured(cell: str) -> Sample:
            seen.append(f"{name} {cell}")
            return Sample({"rate": 2.0 if tree is None else 1.0})

        yield measured
        seen.append(f"close {name}")

    options = Options(quick=True, console=Console(file=io.StringIO()))
    report = run(options, "sample", "HEAD~1", Compared(["a", "b"], side))
    assert seen == [
        "open ours", "open theirs",
        "ours a", "theirs a", "ours b", "theirs b",
        "theirs b", "ours b", "theirs a", "ours a",
        "close theirs", "close ours",
    ]  # fmt: skip
    figures = {result.name: result.value for result in report.results}
    assert figures["a: rate, of the other commit's"] == pytest.approx(2.0)
    assert report.versions["against"] == commits.build("HEAD~1", commits.trees()).sha[:12]


@pytest.mark.parametrize("bench", ["peers", "status", "client"])
def test_an_unknown_commit_is_named(tmp_path: Path, bench: str) -> None:
    done = CliRunner().invoke(app, [bench, "--against", "no-such-commit", "--charts", str(tmp_path)])
    assert done.exit_code == 2
    assert "no-such-commit" in done.stderr


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two commits whose build leaves a file."""
    top = tmp_path / "checkout"
    (top / "src").mkdir(parents=True)
    monkeypatch.setattr(commits, "checkout", lambda: top)
    monkeypatch.setattr(commits, "GENERATOR", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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
    assert (tree.folder / "src" / "made").read_text() == "x"
    assert (tree.folder / "src" / "number").read_text() == "0"
    assert not (checkout / "src" / "made").exists()


def test_a_commit_that_does_not_build_says_why_and_is_tried_again(checkout: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ChappeError, match=r"does not build.*cannot be built"):
            commits.build("HEAD", tmp_path / "trees")


def test_where_benches_were_in_the_package_their_modules_have_that_name(tmp_path: Path) -> None:
    assert commits.module("bench.worker", tmp_path) == "chappe.bench.worker"
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").touch()
    assert commits.module("bench.worker", tmp_path) == "bench.worker"
    assert commits.module("bench.worker") == "bench.worker"


@pytest.mark.parametrize(
    "compared",
    [
        peers_bench.compared(Options(quick=True), PeersOptions()),
        status.compared(Options(quick=True), StatusOptions()),
        client.compared(Options(quick=True), Own()),
    ],
    ids=["peers", "status", "client"],
)
def test_a_tree_has_figures_of_which_more_is_better(compared: Compared) -> None:
    """The last cell of each bench, on this tree."""
    with compared.side(None) as measured:
        sample = measured(compared.cells[-1])
    assert sample.lost == 0
    assert sample.figures
    assert all(0 < value < math.inf for value in sample.figures.values())
