"""Where the archive puts what it hears: rows of all datasets are synced together, in threads of their own.

Nothing here waits for a disk on the loop. What finds no room is dropped and counted; whoever waits is called once
the rows are on disk, or that they were not taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import structlog

from chappe.archive.config import Archive
from chappe.archive.schema import DATASETS, Rows
from chappe.archive.segments import HOUR_NS, Segments
from chappe.archive.writer import Writer
from chappe.errors import ChappeError, StoreError
from chappe.executor import SerialExecutor

log = structlog.get_logger(__name__)
ROTATE_S = 1.0  # how often the age of logs is looked at
SEGMENTS_NICE = 10
AGAIN_S = 1.0  # after a disk or a store has failed
DAY_NS = 86_400_000_000_000
Make = Callable[[], Rows]
OnSettled = Callable[[bool], None]


@dataclass(slots=True)
class _Item:
    dataset: str
    count: int
    size: int
    make: Make
    on_settled: OnSettled | None
    came_s: float  # on the monotonic clock
    end: int = 0  # the offset behind its rows, once they have one


class Sink:
    """The writer of an archive, used from a loop: `put`, `run` until cancelled, then `close`."""

    def __init__(self, of: Archive) -> None:
        self._of = of
        self.segments = Segments(of.folder, of.name)
        self._writer: Writer | None = None
        self._committing = SerialExecutor("log")
        self._closing = SerialExecutor("segments", _background)  # a slow store must not hold up a sync
        self._items: list[_Item] = []
        self._unsettled: list[_Item] = []  # their rows wait for room on the disk
        self._ended: list[tuple[str, Path]] = []  # parts of logs that are not segments yet
        self._something = asyncio.Event()
        self._enough = asyncio.Event()
        self._ran = False  # nothing is committed any more unless somebody says so
        self._closed = False
        self.waiting = 0  # bytes of items
        self.stored: Counter[str] = Counter(dict.fromkeys(DATASETS, 0))  # rows by dataset
        self.dropped: Counter[str] = Counter(dict.fromkeys(DATASETS, 0))  # there was no room
        self.refused: Counter[str] = Counter(dict.fromkeys(DATASETS, 0))  # they were malformed
        self.ends: dict[str, int] = {}  # the offset behind the last row on disk
        self.problem = ""  # why nothing is confirmed at present
        self.synced_ns = 0  # when rows were put on disk last
        self._oldest_s: float | None = None  # when the first of those came that are on their way to the disk

    async def open(self) -> None:
        """Finish what a crash interrupted; StoreError says what to do."""
        try:
            await self._committing.run(self._open)
        except OSError as error:
            raise StoreError(f"archive {self._of.name}: {error}; see `folder` and `log`") from error

    def put(self, dataset: str, count: int, size: int, make: Make, on_settled: OnSettled | None = None) -> bool:
        """Take about `count` rows of about `size` bytes, which `make` gives in a thread; False: no room, counted.

        `on_settled` is called on the loop: with True when they are on disk, with False if they were malformed
        or dropped.
        """
        if self.waiting + size > self._of.waiting_bytes:
            self._drop(dataset, count)
            return False
        self._items.append(_Item(dataset, count, size, make, on_settled, time.monotonic()))
        self.waiting += size
        self._something.set()
        if on_settled is not None or self.waiting >= self._of.commit_bytes:
            self._enough.set()
        return True

    @property
    def lag_s(self) -> float:
        """How long ago the oldest row came that is not on disk; 0 if all are."""
        came_s = self._items[0].came_s if self._oldest_s is None and self._items else self._oldest_s
        return 0.0 if came_s is None else time.monotonic() - came_s

    @property
    def sync_failures(self) -> int:
        """Each ended a part of a log; what was not confirmed went to another part."""
        return self._writer.failures if self._writer is not None else 0

    @property
    def bytes(self) -> Mapping[str, int]:
        """Of the rows that were taken, as the log has them, by dataset."""
        return self._writer.bytes if self._writer is not None else {}

    @property
    def damaged(self) -> int:
        """Files that are kept because something in them cannot be read."""
        return self._writer.damaged if self._writer is not None else 0

    async def run(self) -> None:
        """Commit, end parts of logs, make segments, join and expire them, until cancelled."""
        jobs = (self._commit_all(), self._rotate_all(), self._segment_all(), self._tend_all())
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            self._ran = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def room(self) -> None:
        """Once `run` has ended, sync what waits if it is much, so that the rest of what was heard finds room."""
        if self._ran and self.waiting >= self._of.commit_bytes:
            await self._commit()

    async def close(self) -> None:
        """Sync what waits and make segments of everything; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writer is not None:
                await self._commit()  # behind one whose waiter was cancelled
                await self._closing.run(self._close)
        except (ChappeError, OSError) as error:
            log.error("the log is not closed; what was synced stays there until the next start", reason=str(error))
        finally:
            self._committing.shutdown()
            self._closing.shutdown()

    # --- on the loop

    async def _commit_all(self) -> None:
        """Sync at once if somebody waits for it, and while that goes on let others gather for the next sync."""
        while True:
            await self._something.wait()
            if not self._enough.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._of.commit_ms / 1e3):  # what comes together is synced together
                        await self._enough.wait()
            await self._commit()
            if self.problem:
                log.error(
                    "the disk does not take the log: nothing is confirmed, it is tried again", reason=self.problem
                )
                self._something.set()
                await asyncio.sleep(AGAIN_S)

    async def _commit(self) -> None:
        """Put what waits on disk and report each part as settled."""
        items, self._items = self._items, []
        if self._oldest_s is None and items:
            self._oldest_s = items[0].came_s
        self.waiting = 0
        self._something.clear()
        self._enough.clear()
        taken, failed, ends, self.problem = await self._committing.run(lambda: self._store(items))
        self.ends |= ends
        if not self.problem:
            self._oldest_s, self.synced_ns = None, time.time_ns()
        waiting = [*self._unsettled, *(item for item in taken if item.on_settled is not None)]
        self._unsettled = [item for item in waiting if self.ends.get(item.dataset, 0) < item.end]
        for item in waiting:
            if item.on_settled is not None and self.ends.get(item.dataset, 0) >= item.end:
                item.on_settled(True)
        for item in failed:
            if item.on_settled is not None:
                item.on_settled(False)

    async def _rotate_all(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_S)
            try:
                await self._committing.run(self._rotate)
            except (ChappeError, OSError) as error:
                log.error("a part of the log goes on beyond its size and age", reason=str(error))

    async def _segment_all(self) -> None:
        while True:
            while not self._ended:  # noqa: ASYNC110  parts end rarely
                await asyncio.sleep(ROTATE_S)
            try:
                await self._closing.run(self._segment_first)
            except (ChappeError, OSError) as error:
                log.error("no segment was made, it is tried again", reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _tend_all(self) -> None:
        while True:
            await asyncio.sleep(self._of.tend_s)
            try:
                await self._closing.run(self._tend)
            except (ChappeError, OSError) as error:
                log.error("segments were not joined or expired", reason=str(error))

    def _drop(self, dataset: str, count: int) -> None:
        self.dropped[dataset] += count

    # --- in the thread of the log

    def _open(self) -> None:
        pa.array([0])  # the first one loads pandas where it is installed, which takes a second: nobody waits for it yet
        self.segments.sweep()
        self._writer = Writer(self.segments, Path(self._of.log), self._of.limits)

    def _store(self, items: Sequence[_Item]) -> tuple[list[_Item], list[_Item], dict[str, int], str]:
        """What was taken, what was not, the offsets behind what is synced, and why some is not."""
        assert self._writer is not None
        taken, failed = self._append(items)
        return taken, failed, self._writer.sync(), self._writer.problem

    def _append(self, items: Sequence[_Item]) -> tuple[list[_Item], list[_Item]]:
        assert self._writer is not None
        taken, failed = [], []
        for item in items:
            try:
                rows = item.make()
                end = self._writer.append(item.dataset, rows, time.time_ns())
            except (ChappeError, ValueError, TypeError, OverflowError) as error:
                log.warning("rows are refused", dataset=item.dataset, reason=str(error))
                self.refused[item.dataset] += item.count
                failed.append(item)
                continue
            except OSError as error:  # of a dataset that has no log yet
                log.error("a log cannot be made", dataset=item.dataset, reason=str(error))
                self._drop(item.dataset, item.count)
                failed.append(item)
                continue
            if end is None:
                self._drop(item.dataset, len(rows))
                failed.append(item)
                continue
            item.end = end
            self.stored[item.dataset] += len(rows)
            taken.append(item)
        return taken, failed

    def _rotate(self) -> None:
        """What has ended is remembered here and not on the loop, where whoever waits may be cancelled."""
        assert self._writer is not None
        for each in self._writer.rotate(time.time_ns()):
            self._ended.append(each)

    # --- in the thread of segments

    def _segment_first(self) -> None:
        assert self._writer is not None
        self._writer.segment(*self._ended[0])
        self._ended.pop(0)

    def _close(self) -> None:
        assert self._writer is not None
        while self._ended:
            self._segment_first()
        self._writer.close()

    def _tend(self) -> None:
        now_ns = time.time_ns()
        for dataset in DATASETS:
            if self._of.compaction:
                compact(self.segments, dataset, now_ns, self._of.compact_rows)
            days = self._of.retention_days.get(dataset)
            if days is not None:
                self.segments.expire(dataset, now_ns - round(days * DAY_NS))


def _background() -> None:
    """Let this thread wait for all others where the machine has no time: a log may wait to become a segment."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SEGMENTS_NICE)


def compact(segments: Segments, dataset: str, now_ns: int, rows: int) -> int:
    """Join small segments of hours that are over, so that each is joined once; how many are fewer."""
    hour_ns = now_ns // HOUR_NS * HOUR_NS
    newest = (each.first for each in segments.find(dataset, segments.source, hour_ns))
    return segments.compact(dataset, min(newest, default=1 << 62), rows)
