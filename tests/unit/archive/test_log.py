"""The log of a dataset: what was synced is there after any crash, and what is half written is never seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from chappe.archive import log
from chappe.archive.frames import HEAD, examine
from chappe.archive.log import Log, Tail
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.errors import ChappeError, ConfigError
from tests.support.archives import readings


def values(folder: Path, start: int = 0, stop: int = 1 << 62) -> list[int]:
    """What a reader sees."""
    reader = Reader(Segments(folder / "segments"), folder)
    batches = reader.read("counters", max(start, reader.begin("counters")), min(stop, reader.end("counters")))
    return [int(value) for rows in batches for value in rows.column("value").to_pylist()]


def test_rows_have_offsets_and_are_seen_once_they_are_synced(tmp_path: Path) -> None:
    writing = Log(tmp_path, "counters")
    assert writing.append(readings(range(5))) == 5
    assert values(tmp_path) == []
    assert writing.sync() == 5
    assert writing.append(readings(range(5, 9))) == 9
    assert values(tmp_path) == list(range(5))
    writing.sync()
    assert values(tmp_path) == list(range(9))
    assert values(tmp_path, 3, 7) == [3, 4, 5, 6]
    assert Tail(writing.path).look() == 9
    writing.close()


def test_parts_follow_each_other(tmp_path: Path) -> None:
    writing = Log(tmp_path, "counters", 100)
    writing.append(readings(range(3)))
    closed = writing.rotate()
    writing.append(readings(range(3, 4)))
    writing.close()
    first, second = log.parts(tmp_path, "counters")
    assert (closed, log.first_of(first), log.first_of(second)) == (first, 100, 103)
    assert values(tmp_path) == [0, 1, 2, 3]


def test_a_log_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    for number in range(3):
        writing = Log(tmp_path, "counters")
        assert writing.next == number
        writing.append(readings(range(number, number + 1)))
        writing.close()
    assert values(tmp_path) == [0, 1, 2]


@settings(deadline=None)  # it syncs, and a disk takes the time it takes
@examples(cut=st.integers(min_value=0), synced=st.integers(1, 6), more=st.integers(0, 4))
def test_a_crash_at_any_byte_leaves_all_that_was_synced_and_nothing_half(cut: int, synced: int, more: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writing = Log(folder, "counters")
        for number in range(synced):
            writing.append(readings(range(number * 2, number * 2 + 2)))
            writing.sync()
        safe = writing.path.stat().st_size
        for number in range(synced, synced + more):
            writing.append(readings(range(number * 2, number * 2 + 2)))
            writing.sync()
        whole = writing.path.stat().st_size
        writing.close()
        os.truncate(writing.path, safe + cut % (whole - safe + 1))
        again = Log(folder, "counters")
        assert again.next % 2 == 0
        assert 2 * synced <= again.next <= 2 * (synced + more)
        assert values(folder) == list(range(again.next))
        again.append(readings(range(again.next, again.next + 1)))
        again.close()
        assert values(folder) == list(range(again.next))


@settings(deadline=None)
@examples(at=st.integers(min_value=0), flip=st.integers(1, 255))
def test_a_byte_that_changed_on_disk_costs_the_rows_of_its_frame_alone(at: int, flip: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writing = Log(folder, "counters")
        for number in range(4):
            writing.append(readings(range(number, number + 1)))
            writing.sync()
        writing.close()
        content = bytearray(writing.path.read_bytes())
        frame = len(content) // 4
        at %= len(content)
        content[at] ^= flip
        writing.path.write_bytes(content)
        found = examine(writing.path, 0)
        hit = [at // frame] if at % frame < frame - HEAD else []  # the last bytes of four are a mark
        assert [each.first for each in found.frames] == [number for number in range(4) if number not in hit]
        assert found.next == 4
        torn = at >= len(content) - HEAD
        assert [(each.first, each.stop) for each in found.damages] == (
            [] if torn else [(at // frame, at // frame + 1)] if hit else [(at // frame + 1, at // frame + 1)]
        )
        assert (found.torn == HEAD) == torn


WRITER = """
import sys
from pathlib import Path
from chappe.archive.log import Log
from tests.support.archives import readings
writing = Log(Path(sys.argv[1]), "counters")
while True:
    writing.append(readings(range(writing.next, writing.next + 7)))
    print(writing.sync(), flush=True)
"""


def test_what_was_acknowledged_is_there_after_kill_9(tmp_path: Path) -> None:
    acknowledged = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(20):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split("\n")[:-1])])
        process.wait()
        process.stdout.close()
        seen = values(tmp_path)
        assert seen == list(range(len(seen)))
        assert len(seen) >= acknowledged >= 140


FULL = """
import resource, signal, sys
from pathlib import Path
from chappe.archive.log import Log
from chappe.errors import ChappeError
from tests.support.archives import readings
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writing = Log(Path(sys.argv[1]), "counters")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    for number in range(1000):
        writing.append(readings(range(number, number + 1)))
        safe = writing.sync()
except ChappeError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert writing.sync() == number + 1 == safe + 1
writing.close()
"""


def test_a_full_disk_is_told_and_costs_no_row(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "its rows wait until there is room" in done.stdout
    seen = values(tmp_path)
    assert seen == list(range(len(seen)))
    assert len(seen) > 10


def test_rows_that_do_not_fit_are_refused_by_name_and_change_nothing(tmp_path: Path) -> None:
    writing = Log(tmp_path, "counters")
    good = readings(range(1))
    with pytest.raises(ConfigError, match="column 'value' is missing"):
        writing.append(good.drop_columns("value"))
    with pytest.raises(ConfigError, match="column 'more' is unknown"):
        writing.append(good.append_column("more", pa.array([1])))
    with pytest.raises(ConfigError, match="column 'node' has no value in 1 rows"):
        writing.append(pa.RecordBatch.from_pylist([{**good.to_pylist()[0], "node": None}], schema=good.schema))
    with pytest.raises(ConfigError, match="column 'value'"):
        writing.append(good.set_column(4, "value", pa.array(["high"])))
    with pytest.raises(ConfigError, match="no dataset 'weather'; there are status"):
        Log(tmp_path, "weather")
    assert writing.next == 0
    writing.close()
    assert issubclass(ConfigError, ChappeError)
