"""Batches are joined only when every stream that follows them has them behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chappe.pipeline import joining
from chappe.pipeline.tables import Tables


def checkpoint(folder: Path, committed: int, *lines: str) -> Path:
    for name in ("commits", "offsets"):
        (folder / name).mkdir(parents=True)
    for batch in range(committed + 1):
        (folder / "commits" / str(batch)).touch()
    (folder / "commits" / f".{committed + 1}.crc").touch()
    (folder / "offsets" / str(committed)).write_text("\n".join(("v1", "{}", *lines)))
    (folder / "offsets" / str(committed + 1)).write_text('v1\n{}\n{"": 99, "status": 99}')  # planned, not finished
    return folder


@pytest.mark.parametrize(
    ("lines", "part", "reached"),
    [
        (['{"": -1, "status": 7}'], "status", 7),
        (['{"": -1, "status": 7}', '{"": -1, "status": 5}'], "status", 5),
        (['{"": -1, "events": 7}', '{"archive": 3}', "-"], "status", 1 << 62),  # it follows another table
        (['{"": 4}'], "", 4),
        (['{"": -1, "status": 7}', '{"": 4}'], "", 4),
    ],
)
def test_a_checkpoint_says_how_far_a_stream_is(tmp_path: Path, lines: list[str], part: str, reached: int) -> None:
    assert joining.reached(checkpoint(tmp_path, 2, *lines), part) == reached


def test_a_stream_that_has_finished_nothing_holds_everything(tmp_path: Path) -> None:
    assert joining.reached(tmp_path / "none", "status") == -1
    assert joining.reached(checkpoint(tmp_path / "begun", -1), "status") == -1


def test_the_slowest_stream_says_what_may_be_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(tmp_path / "work")
    for batch in range(40):
        (tables.root / ".data" / "a" / "part=status" / f"batch={batch:012d}").mkdir(parents=True)
    (tables.root / "status").symlink_to(Path(".data") / "a")
    asked: list[Any] = []
    monkeypatch.setattr(
        Tables, "compact", lambda self, spark, name, upto, part: asked.append((name, upto, part)) or True
    )
    followers = [checkpoint(tmp_path / str(at), 0, f'{{"": -1, "status": {at}}}') for at in (35, 20)]
    assert joining.join(None, tables, "status", followers) == 1  # type: ignore[arg-type]
    assert joining.join(None, tables, "status", []) == 1  # type: ignore[arg-type]
    assert asked == [("status", 20, "status"), ("status", 38, "status")]
    assert joining.join(None, tables, "status", [tmp_path / "none"]) == 0  # type: ignore[arg-type]
