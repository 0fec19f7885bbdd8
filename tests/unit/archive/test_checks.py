"""What is in an archive, and what is wrong with one that is not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from chappe.archive.checks import contents, problems
from chappe.archive.log import Log
from chappe.archive.segments import HOUR_NS, Segments
from chappe.archive.sink import compact
from chappe.archive.writer import Writer
from chappe.errors import ConfigError
from tests.support.archives import START_NS, readings
from tests.support.commands import chappe as command
from tests.support.commands import rows


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Three segments of `a`, a log with two rows more."""
    writer = Writer(Segments(tmp_path / "s", "a"), tmp_path / "l")
    for start in (0, 10, 20):
        writer.append("counters", readings(range(start, start + 10)), START_NS)
        writer.tick(START_NS + HOUR_NS)
    writer.close()
    rest = Log(tmp_path / "l", "counters")
    rest.append(readings(range(30, 32)))
    rest.close()
    return tmp_path


def found(folder: Path) -> list[str]:
    return [str(each) for each in problems(Segments(folder / "s", "a"), folder / "l")]


def segment(folder: Path, number: int) -> Path:
    return sorted((folder / "s").rglob("*.parquet"))[number]


def test_a_whole_archive_is_listed_and_has_no_problems(whole: Path) -> None:
    (row,) = contents(Segments(whole / "s"))
    assert row[:6] == ("counters", "a", 3, 30, 0, 30)
    assert (row.from_ns, row.to_ns) == (START_NS, START_NS + 29_000_000)
    assert row.bytes == sum(path.stat().st_size for path in (whole / "s").rglob("*.parquet"))
    assert found(whole) == []


def test_a_missing_segment_is_a_gap(whole: Path) -> None:
    segment(whole, 1).unlink()
    assert found(whole) == ["counters of a: rows 10 to 19 are missing"]
    segment(whole, 1).unlink()
    assert "rows 10 to 29 of counters are neither in a segment nor in the log" in found(whole)[0]


def test_a_changed_byte_is_found(whole: Path) -> None:
    path = segment(whole, 0)
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    (said,) = found(whole)
    assert said.startswith("counters/date=")


def test_a_name_that_lies_is_found(whole: Path) -> None:
    path = segment(whole, 2)
    path.rename(path.with_name(path.name.replace("0020-", "0021-")))
    said = found(whole)
    assert any("offsets are not those of its name" in line for line in said)
    assert any("rows 20 to 20 are missing" in line for line in said)


def test_rows_that_are_there_twice_are_found(whole: Path) -> None:
    path = segment(whole, 2)
    other = Segments(whole / "other", "a")
    writer = Writer(other, whole / "other-log")
    writer.append("counters", readings(range(25)), START_NS)
    writer.close()
    made = next((whole / "other").rglob("*.parquet"))
    made.rename(path.with_name(made.name))
    assert "counters of a: rows 20 to 24 are there twice" in found(whole)


def test_hours_that_are_over_are_joined_and_the_present_one_is_not(whole: Path) -> None:
    segments = Segments(whole / "s", "a")
    assert compact(segments, "counters", START_NS + 1, 100) == 0
    assert compact(segments, "counters", START_NS + HOUR_NS, 100) == 2
    assert found(whole) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        contents(Segments(tmp_path / "none"))


def test_the_command_lists_checks_joins_and_expires(whole: Path) -> None:
    place = whole / "s"
    (row,) = rows(command("archive", "ls", place, "--json").stdout)
    assert (row["dataset"], row["source"], row["rows"], row["next"]) == ("counters", "a", 30, 30)
    assert "2026-09" in command("archive", "ls", place).stdout
    assert "ok" in command("archive", "check", place, "--log", whole / "l", "--name", "a").stderr
    assert "2 segments fewer" in command("archive", "compact", place, "--name", "a").stderr
    segment(whole, 0).write_bytes(b"")
    assert "counters/date=" in command("archive", "check", place, code=1).stdout
    assert "0 segments deleted" in command("archive", "expire", place, "--older", "1s", "--dataset", "status").stderr
    assert "1 segments deleted" in command("archive", "expire", place, "--older", "1s").stderr
    assert "no dataset 'none'" in command("archive", "compact", place, "--dataset", "none", code=2).stderr
    file = whole / "archive.toml"
    file.write_text('[archive]\nname = "a b"\n')
    assert "archive.name" in command("archive", "run", file, "--check", code=2).stderr
