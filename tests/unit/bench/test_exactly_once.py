"""Who is killed when, and how rows are counted afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.exactly_once import BODY, TARGETS, Course, judged, plan, waves
from bench.killed import Killed
from chappe.errors import ChappeError
from tests.support.nodes import eventually


def test_a_seed_is_a_plan_and_every_kind_of_process_is_killed() -> None:
    assert plan(3, 5) == plan(3, 5)
    assert plan(3, 5) != plan(4, 5)
    for seed in range(50):
        kills = plan(seed, 5)
        assert len(kills) == 5
        assert {kill.target for kill in kills} == set(TARGETS)
        assert all(0.0 < kill.share < 1.0 for kill in kills)
    assert (len(plan(1, 0)), len(plan(1, 2))) == (0, 2)


@pytest.mark.parametrize(("rows", "count"), [(10, 3), (1, 6), (20_000, 6)])
def test_waves_are_all_rows_once(rows: int, count: int) -> None:
    assert [number for wave in waves(rows, count) for number in wave] == list(range(rows))
    assert len(waves(rows, count)) == count


@pytest.mark.parametrize(
    ("acknowledged", "found", "lost", "doubled", "strangers"),
    [
        ({0, 1, 2}, [0, 1, 2], 0, 0, 0),
        ({0, 1, 2}, [2, 0, 1, 3], 0, 0, 0),  # stored, and its acknowledgement was not heard
        ({0, 1, 2}, [0, 2], 1, 0, 0),
        ({0, 1, 2}, [0, 1, 1, 1, 2], 0, 2, 0),
        ({0, 1, 2}, [0, 1, 2, 9, -1, -1], 0, 1, 3),
        (set(), [], 0, 0, 0),
    ],
)
def test_rows_are_counted(acknowledged: set[int], found: list[int], lost: int, doubled: int, strangers: int) -> None:
    outcome = judged(acknowledged, 4, found)
    assert (outcome.lost, outcome.doubled, outcome.strangers) == (lost, doubled, strangers)


def test_the_table_is_read_as_any_reader_finds_it(tmp_path: Path) -> None:
    course = Course(tmp_path, seed=7, rows=3)
    assert course.table() == []
    work = tmp_path / "work"
    rows = [BODY.pack(7, 0), BODY.pack(7, 1), BODY.pack(8, 2), b"other"]
    for folder, bodies in (("batch=0", rows[:2]), ("part=a/batch=1", rows[2:]), (".hidden", rows)):
        place = work / ".data" / "events" / "one" / folder
        place.mkdir(parents=True)
        pq.write_table(pa.table({"topic": ["t"] * len(bodies), "body": bodies}), place / "x.parquet")
    (work / "events").symlink_to(Path(".data/events/one"))
    assert sorted(course.table()) == [-1, -1, 0, 1]


CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, file=open("child", "w"))
print("", flush=True)
print("ready now", flush=True)
time.sleep(600)
"""


async def test_a_process_is_killed_with_its_children_and_started_again(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(CHILD)
    process = Killed("one", ["waiting"], "ready", tmp_path)
    for _ in range(2):
        await process.start()
        assert process.running
        pid = process.pid
        await process.start()  # whoever looks after it was quicker
        assert process.pid == pid
        child = Path("/proc") / (tmp_path / "child").read_text().strip()
        assert child.exists()
        await process.kill()
        assert not process.running
        await eventually(lambda child=child: not child.exists() or " Z " in (child / "stat").read_text())  # type: ignore[misc]
    assert process.kills == 2
    with pytest.raises(ChappeError, match="one has ended by itself"):
        await process.kill()
    await process.end()


async def test_a_process_that_does_not_start_says_why(tmp_path: Path) -> None:
    process = Killed("one", ["no.such.module"], "ready", tmp_path)
    with pytest.raises(ChappeError, match=r"one did not start:(.|\n)*No module named"):
        await process.start()
    await process.end()
    assert not asyncio.all_tasks() - {asyncio.current_task()}
