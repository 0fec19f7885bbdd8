"""What a pipeline is told: by a file, by options, by parameters of its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from chappe.errors import ConfigError
from chappe.pipeline import catalogue
from chappe.pipeline.job import Frames, Job, configured, parameter, parameters
from chappe.pipeline.settings import assigned, load


@dataclass(frozen=True)
class Counting(Job):
    id: ClassVar[str] = "SJ-99"
    name: ClassVar[str] = "counting"
    line: ClassVar[str] = "counts"
    reads: ClassVar[tuple[str, ...]] = ("events",)
    writes: ClassVar[dict[str, object]] = {"counts": None}  # type: ignore[assignment]

    limit: int = parameter(3, "how far")
    share: float = parameter(0.5, "of all")
    loud: bool = parameter(False, "says so")
    topic: str = parameter("plant/#", "of what")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        return {}


class Deriving(Counting):
    name = "deriving"
    reads = ("counts", "sums")
    writes: ClassVar[dict[str, object]] = {"derived": None}  # type: ignore[assignment]


class Summing(Counting):
    name = "summing"
    reads = ("counts",)
    writes: ClassVar[dict[str, object]] = {"sums": None}  # type: ignore[assignment]


def test_parameters_come_from_text_and_from_toml() -> None:
    assert parameters(Counting)["limit"] == (3, "how far")
    job = configured(Counting, {"limit": "7", "share": 1, "loud": "true", "topic": "a"})
    assert job == Counting(limit=7, share=1.0, loud=True, topic="a")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"size": 1}, "no parameter 'size'; there are: limit, share, loud, topic"),
        ({"limit": "many"}, "limit = 'many' must be int, like 3"),
        ({"loud": "maybe"}, "loud = 'maybe' must be bool"),
        ({"limit": True}, "limit = True must be int"),
    ],
)
def test_a_wrong_parameter_is_told_with_what_there_is(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        configured(Counting, given)


def test_a_file_says_what_options_say(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[pipeline]\narchive = "history"\njobs = ["ingest"]\n[pipeline.set.alerts]\nlatency_ms = 20\n')
    settings = load(file)
    assert (settings.archive, settings.work, settings.jobs) == ("history", "work", ("ingest",))
    assert assigned(["alerts.latency_ms=50", "links.week=no"], settings.set) == {
        "alerts": {"latency_ms": "50"}, "links": {"week": "no"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[pipeline]\narchiv = 'a'", "unknown field `archiv`"),
        ("[pipeline]\nmax_rows = 'a'", "max_rows"),
        ("pipeline = [", "Invalid value"),
        ("[node]", "one table .pipeline. is wanted, found node"),
    ],
)
def test_a_wrong_file_is_told_by_name_and_key(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"wrong.toml.*{reason}"):
        load(file)


def test_an_assignment_names_a_job() -> None:
    with pytest.raises(ConfigError, match=r"must be JOB\.NAME=VALUE"):
        assigned(["latency_ms=50"], {})


def test_jobs_run_after_those_whose_tables_they_read() -> None:
    jobs = [Deriving(), Summing(), Counting()]
    assert [job.name for job in catalogue.in_order(jobs)] == ["counting", "summing", "deriving"]
    assert [job.name for job in catalogue.in_order([Deriving()])] == ["deriving"]


def test_jobs_that_wait_for_each_other_are_named() -> None:
    class Circular(Counting):
        name = "circular"
        reads = ("derived",)

    with pytest.raises(ConfigError, match="wait for each other: deriving, circular"):
        catalogue.in_order([Deriving(), Circular()])


def test_an_unknown_job_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no job 'lynx'; there are: ingest, links"):
        catalogue.find(["lynx"])
