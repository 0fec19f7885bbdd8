"""The sink of an archive: synced together, told in order, bounded, and going on after a disk that failed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from chappe.archive import log
from chappe.archive.checks import problems
from chappe.archive.config import parse
from chappe.archive.log import Log
from chappe.archive.reader import Reader
from chappe.archive.segments import Segment, Segments
from chappe.archive.sink import Sink
from tests.support.archives import readings
from tests.support.nodes import eventually

FILE = '[archive]\nname = "a"\nfolder = "s"\nlog = "l"\n'


@contextlib.asynccontextmanager
async def running(folder: Path, more: str = "") -> AsyncIterator[Sink]:
    sink = Sink(parse(FILE + more, base=folder).archive)
    await sink.open()
    task = asyncio.ensure_future(sink.run())
    try:
        yield sink
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sink.close()


def values(folder: Path, sink: Sink) -> list[float]:
    reader = Reader(sink.segments, folder / "l")
    batches = reader.read("counters", 0, reader.end("counters"))
    return [value for rows in batches for value in rows.column("value").to_pylist()]


async def stored(sink: Sink, rows: pa.RecordBatch, size: int = 100) -> bool:
    told = asyncio.get_running_loop().create_future()
    assert sink.put("counters", rows.num_rows, size, lambda: rows, told.set_result)
    return bool(await told)


async def test_who_asked_is_told_when_the_rows_can_be_read(tmp_path: Path) -> None:
    async with running(tmp_path) as sink:
        assert await stored(sink, readings(range(3)))
        assert values(tmp_path, sink) == [0, 1, 2]
        sink.put("counters", 2, 10, lambda: readings(range(3, 5)))
    assert values(tmp_path, sink) == [0, 1, 2, 3, 4]
    assert sink.stored["counters"] == 5
    assert log.parts(tmp_path / "l", "counters")[0].stat().st_size == 0  # all of it is in segments


async def test_what_a_crash_left_half_written_goes_at_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path) as sink:
        await stored(sink, readings(range(2)))
    (whole,) = (tmp_path / "s").rglob("*.parquet")
    left, other = (whole.with_name(f".{name}-{'0' * 16}.parquet.abc") for name in ("a", "b"))
    left.write_bytes(b"half")
    other.write_bytes(b"of another archive, which may be at work")
    async with running(tmp_path) as sink:
        assert values(tmp_path, sink) == [0, 1]
        assert (left.exists(), other.exists()) == (False, True)


async def test_rows_without_room_are_dropped_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path, "waiting_bytes = 5000\n") as sink:
        assert sink.put("counters", 2, 4000, lambda: readings(range(2)))
        assert not sink.put("counters", 3, 4000, lambda: readings(range(3)))
        assert (sink.dropped["counters"], sink.dropped["events"]) == (3, 0)
        await eventually(lambda: sink.stored["counters"] == 2)
        assert await stored(sink, readings(range(2, 3)), 4000)


async def test_malformed_rows_cost_no_others(tmp_path: Path) -> None:
    async with running(tmp_path) as sink:
        wrong = pa.RecordBatch.from_pydict({"value": ["x"]})
        good = stored(sink, readings(range(2)))
        outcomes = await asyncio.gather(stored(sink, wrong), good)
        assert tuple(outcomes) == (False, True)
        assert (sink.refused["counters"], sink.stored["counters"]) == (1, 2)


async def test_old_parts_become_segments_while_rows_come(tmp_path: Path) -> None:
    async with running(tmp_path, "age_s = 0.1\n") as sink:
        for number in range(3):
            await stored(sink, readings(range(number, number + 1)))
            await eventually(lambda number=number: len(sink.segments.find("counters")) == number + 1)  # type: ignore[misc]
    assert values(tmp_path, sink) == [0, 1, 2]


async def test_a_full_disk_is_waited_for_and_nobody_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    write = Log._write

    def sometimes(self: Log, content: bytes) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, content)

    async with running(tmp_path) as sink:
        await stored(sink, readings(range(1)))
        monkeypatch.setattr(Log, "_write", sometimes)
        waiting = asyncio.ensure_future(stored(sink, readings(range(1, 2))))
        await eventually(lambda: sink.problem)
        assert not waiting.done()
        full = False
        assert await waiting
        assert not sink.problem
    assert values(tmp_path, sink) == [0, 1]


async def test_what_failed_to_sync_is_told_when_another_part_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor whose sync failed is synced again: a later success says nothing about what was lost."""
    fdatasync = os.fdatasync
    failed: list[tuple[int, int]] = []
    again: list[str] = []
    broken = True

    def sometimes(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if (found.st_ino, found.st_dev) in failed:
            again.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if broken:
            failed.append((found.st_ino, found.st_dev))
            raise OSError(errno.EIO, "Input/output error")
        fdatasync(descriptor)

    async with running(tmp_path) as sink:
        await stored(sink, readings(range(2)))
        monkeypatch.setattr(os, "fdatasync", sometimes)
        waiting = asyncio.ensure_future(stored(sink, readings(range(2, 5))))
        await eventually(lambda: sink.problem)
        assert (waiting.done(), sink.sync_failures) == (False, 1)
        assert values(tmp_path, sink) == [0, 1]
        broken = False
        assert await waiting
        assert again == []
        assert await stored(sink, readings(range(5, 6)))
        assert values(tmp_path, sink) == [0, 1, 2, 3, 4, 5]
        assert [log.first_of(path) for path in log.parts(tmp_path / "l", "counters")] == [0, 2]
    assert values(tmp_path, sink) == [0, 1, 2, 3, 4, 5]
    assert not list(problems(sink.segments, tmp_path / "l"))


async def test_rows_that_somebody_waits_for_are_synced_without_a_timer(tmp_path: Path) -> None:
    """Others wait for company: here much longer than a sync takes on any disk."""
    async with running(tmp_path, "commit_ms = 5000\n") as sink:
        start_s = time.monotonic()
        assert await stored(sink, readings(range(1)))
        assert await stored(sink, readings(range(1, 2)))
        assert time.monotonic() - start_s < 5.0, "two syncs, neither of which waited for the timer"
        sink.put("counters", 2, 100, lambda: readings(range(2, 4)))
        await asyncio.sleep(0.1)
        assert sink.stored["counters"] == 2
        assert await stored(sink, readings(range(4, 5)))
        assert values(tmp_path, sink) == list(range(5)), "those that waited were synced with it"


async def test_rows_that_come_during_a_sync_share_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fdatasync = os.fdatasync
    syncing, go_on = threading.Event(), threading.Event()
    count = 0

    def held(descriptor: int) -> None:
        nonlocal count
        count += 1
        syncing.set()
        go_on.wait()
        fdatasync(descriptor)

    async with running(tmp_path) as sink:
        await stored(sink, readings(range(1)))
        monkeypatch.setattr(os, "fdatasync", held)
        first = asyncio.ensure_future(stored(sink, readings(range(1, 2))))
        assert await asyncio.to_thread(syncing.wait, 20)
        others = [asyncio.ensure_future(stored(sink, readings(range(at, at + 1)))) for at in range(2, 40)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *others)
        assert count == 2
    assert values(tmp_path, sink) == list(range(40))


async def test_old_segments_are_expired_and_small_ones_joined(tmp_path: Path) -> None:
    """Rows of an hour that is over: joined first, then, a retention of nothing, deleted."""
    more = "age_s = 0.05\ntend_s = 0.1\ncompact_rows = 100\n"
    async with running(tmp_path, more) as sink:
        for number in range(3):
            await stored(sink, readings(range(number, number + 1)))
            await eventually(lambda: sink.segments.find("counters"))
        await eventually(lambda: [(each.first, each.stop) for each in sink.segments.find("counters")] == [(0, 3)])
    async with running(tmp_path, "tend_s = 0.1\n[archive.retention_days]\ncounters = 0.001\n") as sink:
        await eventually(lambda: not sink.segments.find("counters"))
        assert await stored(sink, readings(range(3, 4)))
        assert sink.ends["counters"] == 4  # no offset is given twice


async def test_a_store_that_cannot_be_reached_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Segments.write
    failures = [OSError(errno.ECONNREFUSED, "Connection refused")]

    def sometimes(self: Segments, dataset: str, rows: pa.Table) -> list[Segment]:
        if failures:
            raise failures.pop()
        return write(self, dataset, rows)

    monkeypatch.setattr(Segments, "write", sometimes)
    async with running(tmp_path, "age_s = 0.05\n") as sink:
        assert await stored(sink, readings(range(2)))
        await eventually(lambda: not failures)
        assert values(tmp_path, sink) == [0, 1]  # from the log
        await eventually(lambda: sink.segments.find("counters"))
    assert values(tmp_path, sink) == [0, 1]
