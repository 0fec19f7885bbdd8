"""What `chappe bench crash` traces: log, segments and compaction of an archive, the audit log, the store of a broker.

`python -m bench.crash_workloads NAME FOLDER FAULT…` does the work of one of them, and writes a line to the file
`acknowledged` whenever somebody may rely on what was done. `RECOVER` has for each of them a function that opens
what a power cut left, by the same code as always, and says what is wrong with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from chappe.archive.checks import problems
from chappe.archive.reader import Reader
from chappe.archive.schema import input_schema
from chappe.archive.segments import HOUR_NS, Segments
from chappe.archive.writer import Limits, Writer
from chappe.errors import ChappeError, ConfigError, StoreError
from chappe.security.audit import AuditLog
from chappe.security.config import Audit
from chappe.store.sqlite import SqliteStore

START_NS = 1_790_000_000_000_000_000
DATASET = "counters"
Acknowledge = Callable[[str], None]


def rows(first: int, count: int, received_ns: int) -> pa.RecordBatch:
    """Counters whose values are their offsets."""
    return pa.RecordBatch.from_pylist(
        [
            {"node": "a", "name": "n" * (number % 40), "labels": "", "created_ns": number, "value": float(number),
             "received_ns": received_ns}
            for number in range(first, first + count)
        ],
        schema=input_schema(DATASET),
    )  # fmt: skip


def open_archive(folder: Path) -> Writer:
    """With every row that a crash left."""
    return Writer(Segments(folder / "history" / "deep", "a"), folder / "log" / "deep", Limits(age_ns=1))


def archive(folder: Path, acknowledge: Acknowledge) -> None:
    """Rows synced a few at a time, parts that become segments, a second start, compaction, a last start."""
    for start in range(2):
        with contextlib.suppress(OSError, ChappeError):
            writer = open_archive(folder)
            total = _next(writer)  # what a disk that failed did not take is not there
            for turn in range(3):
                now_ns = START_NS + (start * 3 + turn) * HOUR_NS // 4
                for count in (1, 4, 2):
                    total = _stored(writer, total, count, now_ns, acknowledge)
                if turn < 2:
                    with contextlib.suppress(OSError, ChappeError):
                        writer.tick(now_ns + 2)
            writer.close()
    with contextlib.suppress(OSError, ChappeError):
        Segments(folder / "history" / "deep", "a").compact(DATASET, 1 << 62)
        writer = open_archive(folder)
        _stored(writer, _next(writer), 3, START_NS, acknowledge)
        writer.close()


def _next(writer: Writer) -> int:
    """The offset of the next row: a full disk may have kept the mark from readers that says where rows end."""
    end = writer.append(DATASET, rows(0, 0, START_NS), START_NS)
    assert end is not None
    return end


def _stored(writer: Writer, total: int, count: int, now_ns: int, acknowledge: Acknowledge) -> int:
    """Some rows more, each with its offset as value; how many there are then."""
    with contextlib.suppress(OSError, ChappeError):
        end = writer.append(DATASET, rows(total, count, now_ns), now_ns)
        assert end == total + count
        total = end
        ends = writer.sync()
        if DATASET in ends:
            acknowledge(str(ends[DATASET]))
    return total


def readable(folder: Path) -> tuple[list[int], int]:
    """Values that can be read, row by row as they are, and the offset of the next row."""
    reader = Reader(Segments(folder / "history" / "deep", "a"), folder / "log" / "deep")
    found: list[int] = []
    for piece in reader.plan(DATASET, 0, reader.end(DATASET), skip_missing=True):
        try:
            for batch in reader.read_piece(piece):
                offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
                if offsets != values:
                    raise AssertionError(f"rows {offsets} have the values {values}")
                found += offsets
        except ChappeError:
            continue
    return found, reader.end(DATASET)


def recover_archive(folder: Path, acknowledged: Sequence[str]) -> str:
    """All rows that were acknowledged are there, in order and once, before and after a start and an end."""
    safe = max(map(int, acknowledged), default=0)
    open_archive(folder).close()
    found, end = readable(folder)
    if found != list(range(end)):
        return f"rows {found} of {end}"
    if end < safe:
        return f"{end} rows, {safe} were acknowledged"
    segments = Segments(folder / "history" / "deep", "a")
    if segments.exist():
        segments.sweep()
        for problem in problems(segments, folder / "log" / "deep"):
            return str(problem)
    return ""


def audit(folder: Path, acknowledge: Acknowledge) -> None:
    """Lines of several sizes, and a rotation now and then."""
    with contextlib.suppress(ConfigError):
        log = AuditLog(_audit(folder))
        for number in range(24):
            with contextlib.suppress(OSError):
                log.record(None, "step", str(number), "done", "x" * (number * 37 % 400))
                acknowledge(str(number))
        log.close()


def _audit(folder: Path) -> Audit:
    return Audit(path=str(folder / "audit"), max_bytes=4096, keep=20)


def recover_audit(folder: Path, acknowledged: Sequence[str]) -> str:
    """Every line that was acknowledged is there, whole; at most one is half, and it is nobody's."""
    AuditLog(_audit(folder)).close()
    found: list[str] = []
    broken = 0
    for path in folder.iterdir():
        for line in path.read_bytes().split(b"\n"):
            try:
                found += [json.loads(line)["target"]] if line else []
            except (ValueError, UnicodeDecodeError):
                broken += 1
    lacking = set(acknowledged) - set(found)
    if lacking:
        return f"lines {sorted(lacking)} are lost"
    return f"{broken} lines are broken" if broken > 1 else ""


def store(folder: Path, acknowledge: Acknowledge) -> None:
    """Commits that change two items together, over two starts."""
    number = 0
    for _ in range(2):
        with (
            contextlib.suppress(StoreError),
            contextlib.closing(SqliteStore(folder / "store.db", lambda: 1.0)) as opened,
        ):
            epoch = opened.acquire("broker", "me", 10.0)
            assert epoch is not None
            for _ in range(6):
                number += 1
                with contextlib.suppress(StoreError):
                    opened.commit("broker", epoch, [("k", "a", b"%d" % number), ("k", "b", b"%d" % number * 300)])
                    acknowledge(str(number))
            opened.give_up("broker", "me", epoch)


def _store(folder: Path) -> SqliteStore:
    return SqliteStore(folder / "store.db", lambda: 1.0)


def recover_store(folder: Path, acknowledged: Sequence[str]) -> str:
    """Both items are of the same commit, and of none before the last that was acknowledged."""
    opened = _store(folder)
    try:
        items = {key: value for _, key, value in opened.load("broker")}
        (whole,) = opened._file.database.execute("PRAGMA integrity_check").fetchone()
    finally:
        opened.close()
    if whole != "ok":
        return str(whole)
    number = int(items.get("a", b"0"))
    if items and items.get("b") != b"%d" % number * 300:
        return f"item a is of commit {number}, item b is not"
    safe = max(map(int, acknowledged), default=0)
    return "" if number >= safe else f"commit {number}, {safe} was acknowledged"


WORK: dict[str, Callable[[Path, Acknowledge], None]] = {"archive": archive, "audit": audit, "store": store}
RECOVER: dict[str, Callable[[Path, Sequence[str]], str]] = {
    "archive": recover_archive, "audit": recover_audit, "store": recover_store,
}  # fmt: skip


def main(name: str, folder: Path, faults: Sequence[str]) -> None:
    """Do the work of one of them once for each fault, in a folder of its own, with a trace beside it."""
    begin = ctypes.CDLL(None).chappe_trace
    for number, fault in enumerate(faults):
        place = folder / str(number)
        disk = place / "disk"
        disk.mkdir(parents=True)
        begin(str(disk).encode(), str(place / "trace").encode(), fault.encode())
        descriptor = os.open(disk / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        try:
            WORK[name](disk, lambda line: _said(descriptor, line))  # noqa: B023  it ends with this turn
        finally:
            os.close(descriptor)
            begin(b"", b"", b"")


def _said(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
