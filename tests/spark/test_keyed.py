"""Jobs that go on by key: every row counts once, whatever fails in the middle, and what is due is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chappe.pipeline import batches, joining, keyed
from chappe.pipeline.batches import Telling
from chappe.pipeline.job import Frames, Going, KeyedJob, Publish, Table, Went
from chappe.pipeline.keyed import Keyed, Notes
from chappe.pipeline.outbox import Outbox
from chappe.pipeline.tables import Tables

ROWS = pa.schema([pa.field("name", pa.string()), pa.field("value", pa.int64())])
TOLD = pa.schema([pa.field("topic", pa.string()), pa.field("body", pa.string())])


@dataclass(frozen=True)
class Adding(KeyedJob):
    """The sum of each name so far; after a second of nothing it says that it is over."""

    id: ClassVar[str] = "SJ-96"
    name: ClassVar[str] = "adding"
    line: ClassVar[str] = "adds"
    reads: ClassVar[tuple[str, ...]] = ("numbers",)
    keys: ClassVar[tuple[str, ...]] = ("name",)
    columns: ClassVar[tuple[str, ...]] = ("name", "value")
    writes: ClassVar[dict[str, Table]] = {"sums": Table(TOLD, publish=Publish.EVENTS)}

    def schema(self) -> pa.Schema:
        return ROWS

    def going(self) -> Going:
        return _add

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        raise NotImplementedError


def _add(rows: pa.Table | None, known: str, now_ns: int) -> Went:
    if rows is None:
        return Went([{"topic": "over", "body": f"{known} at {now_ns}"}], known)
    total = int(known or 0) + sum(rows.column("value").to_pylist())
    name = rows.column("name")[0].as_py()
    return Went([{"topic": name, "body": str(total)}], str(total), 1_000 if name == "a" else None)


class Heard:
    """A mesh that keeps what it hears under its identity."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, int], tuple[str, bytes]] = {}
        self.times = 0

    def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
        self.times += 1
        for place, each in enumerate(rows):
            assert self.rows.setdefault((session, after + place), each) == each


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    mesh = Heard()
    monkeypatch.setitem(batches._nodes, "heard", mesh)  # type: ignore[arg-type]
    return mesh


def started(folder: Path, clock_ns: Callable[[], int] = lambda: 0, spark: Any = None, few: int = 100) -> Keyed:
    telling = Telling(folder, "heard")
    return Keyed(spark, Tables(folder), telling, Adding(few=few), folder / "checkpoint", clock_ns)


def add(folder: Path, batch: int, **values: int) -> None:
    rows = [{"name": name, "value": value} for name, value in values.items()]
    Tables(folder).append("numbers", batch, pa.Table.from_pylist(rows, ROWS))


def stored(folder: Path) -> Counter[tuple[str, str]]:
    files = [each for batch in batches_of(folder) for each in batch.glob("*.parquet")]
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    return Counter((row["topic"], row["body"]) for row in rows)


def batches_of(folder: Path) -> list[Path]:
    return sorted((folder / "sums").glob("batch=*"))


@pytest.mark.parametrize(
    ("owner", "step", "after"),
    [
        (Notes, "begin", True), (Tables, "append", False), (Tables, "append", True), (Outbox, "prepare", True),
        (Outbox, "finish", False), (Outbox, "finish", True), (Notes, "end", False), (Notes, "end", True),
    ],
)  # fmt: skip
def test_what_dies_anywhere_goes_on_where_it_was(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, after: bool
) -> None:
    add(tmp_path, 0, a=1, b=10)
    assert started(tmp_path).step() == 2
    add(tmp_path, 1, a=2, b=20)
    works = getattr(owner, step)

    def dies(*given: Any, **named: Any) -> Any:
        if after:
            works(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(owner, step, dies)
        with pytest.raises(KeyboardInterrupt):
            started(tmp_path).step()
    add(tmp_path, 2, a=4)
    again = started(tmp_path)
    while again.step() is not None:
        pass
    expected = [("a", "1"), ("b", "10"), ("a", "3"), ("b", "30"), ("a", "7")]
    assert stored(tmp_path) == Counter(expected)
    assert Counter((topic, body.decode()) for topic, body in heard.rows.values()) == Counter(expected)


def test_what_is_due_is_done_once_though_nothing_comes(tmp_path: Path, heard: Heard) -> None:
    now = 5
    adding = started(tmp_path, lambda: now)
    add(tmp_path, 0, a=1, b=1)
    assert (adding.step(), adding.step()) == (2, None)
    now = 1_000
    adding = started(tmp_path, lambda: now)
    assert (adding.step(), adding.step()) == (0, None)
    assert stored(tmp_path)[("over", "1 at 1000")] == 1
    assert len(heard.rows) == 3


def test_a_batch_without_rows_for_the_table_leaves_no_files_and_notes_are_few(tmp_path: Path, heard: Heard) -> None:
    adding = started(tmp_path)
    for batch in range(10):
        add(tmp_path, batch, a=1)
        assert adding.step() == 1
    for kind in ("offsets", "commits"):
        assert len(list((tmp_path / "checkpoint" / kind).iterdir())) == keyed.KEPT
    assert joining.reached(tmp_path / "checkpoint", "") == 9
    Tables(tmp_path).append("numbers", 10, ROWS.empty_table())
    assert (adding.step(), len(batches_of(tmp_path))) == (0, 10)
    adding.stop_at_end()
    add(tmp_path, 11, a=1)
    assert adding.step() is None


def test_spark_takes_many_rows_with_what_is_known(spark: Any, tmp_path: Path, heard: Heard) -> None:
    add(tmp_path, 0, a=1, b=10)
    assert started(tmp_path).step() == 2
    add(tmp_path, 1, a=2, c=5)
    assert started(tmp_path, spark=spark, few=0).step() == 2
    assert stored(tmp_path) == Counter([("a", "1"), ("b", "10"), ("a", "3"), ("c", "5")])
    assert started(tmp_path, lambda: 1_000).step() == 0
    assert stored(tmp_path)[("over", "3 at 1000")] == 1
