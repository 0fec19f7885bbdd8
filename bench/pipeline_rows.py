"""Measurements of a network, as an archive holds them: made fast enough for a hundred million of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.archive.log import Log, sign
from chappe.archive.schema import OFFSET, RECEIVED, RECEIVED_NS, input_schema, schema_of
from chappe.archive.segments import HOUR_NS, Segment, Segments

DATASET = "measurements"
LINKS = 2000  # each is measured once a second
CHUNK = LINKS * 500  # rows of a segment: like those that an archive has after compaction
SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 // 3600 * HOUR_NS  # an hour begins
LATE_NS = 20_000_000  # from the measurement to the archive
REPEATED = 1000  # one row in so many came twice: by another path, after a reconnection
BROKEN = 20_000  # one row in so many is nonsense: a negative latency


@dataclass(frozen=True)
class Made:
    """What is in an archive that was made: rows in all, among them repeated and broken ones."""

    rows: int
    repeated: int
    broken: int

    @property
    def clean(self) -> int:
        """Rows that ingest has to keep."""
        return self.rows - self.repeated - self.broken


class Rows:
    """Chunks of rows; all randomness is drawn once, and shifted from chunk to chunk."""

    def __init__(self, links: int = LINKS, seed: int = 5) -> None:
        random = np.random.default_rng(seed)
        self.links = links
        self.chunk = CHUNK // LINKS * links
        seconds = self.chunk // links
        number = np.tile(np.arange(links), seconds)
        self._names = {
            "node": _repeated([f"n{at // 20:04d}" for at in range(links)], number),
            "link": _repeated([f"n{at // 20:04d}>n{(at // 20 + at % 20 + 1) % (links // 20 + 20):04d}"
                               for at in range(links)], number),
            "peer": _repeated([f"n{(at // 20 + at % 20 + 1) % (links // 20 + 20):04d}" for at in range(links)], number),
            "transport": _repeated([("tcp", "udp", "tls")[at % 3] for at in range(links)], number),
            "realm": _repeated([f"region-{at * 8 // links}" for at in range(links)], number),
        }  # fmt: skip
        self._base_ms = np.tile(_grain(random.gamma(4.0, 5.0, links) + 0.5), seconds)
        self._noise_ms = _grain(random.gamma(2.0, 0.4, self.chunk))
        self._loss = np.where(random.random(self.chunk) < 0.01, 1 / 16, 0.0)
        self._second = np.repeat(np.arange(seconds, dtype=np.int64), links) * SECOND_NS
        self._spread_ns = np.tile((np.arange(links, dtype=np.int64) * (SECOND_NS // links)), seconds)

    def table(self, number: int) -> tuple[pa.Table, int, int]:
        """The rows of a chunk, and how many of them are repeated and broken."""
        first = number * self.chunk
        noise = np.roll(self._noise_ms, number * 7919)
        latency = self._base_ms + noise
        created = START_NS + number * (self.chunk // self.links) * SECOND_NS + self._second + self._spread_ns
        again = np.arange(REPEATED - 1, self.chunk, REPEATED)
        broken = np.setdiff1d(np.arange(BROKEN // 2, self.chunk, BROKEN), np.concatenate((again, again - 1)))
        latency[broken] = -1.0
        source = np.arange(self.chunk)
        source[again] = again - 1  # the row before, once more
        columns = {
            "created_ns": created[source],
            "latency_ms": latency[source],
            "deviation_ms": noise[source],
            "jitter_ms": noise[source] / 2,
            "jitter": np.minimum(noise[source] / 8, 1.0),
            "loss": self._loss[source],
            "bandwidth": np.full(self.chunk, 1.25e8),
            "cost": latency[source] + self._loss[source] * 100,
            "outliers": np.zeros(self.chunk, np.int64),
            "window": np.full(self.chunk, 16, np.int64),
            OFFSET: np.arange(first, first + self.chunk, dtype=np.int64),
            RECEIVED_NS: created + LATE_NS,  # every arrival has its own time
        }
        indices = pa.array(source)
        arrays = {name: pa.array(values) for name, values in columns.items()}
        arrays |= {name: pc.take(column, indices) for name, column in self._names.items()}
        arrays[RECEIVED] = pa.array((created + LATE_NS) // 1000).cast(pa.timestamp("us", "UTC"))
        schema = schema_of(DATASET)
        return pa.table([arrays[name] for name in schema.names], schema=schema), len(again), len(broken)


def make(folder: Path, rows: int) -> Made:
    """An archive of measurements, written as archives write; whole chunks, at least one."""
    segments, source = Segments(folder), Rows()
    chunks = max(1, rows // source.chunk)

    def one(number: int) -> tuple[int, int, int]:
        table, again, broken = source.table(number)
        segments.write(DATASET, table)
        return table.num_rows, again, broken

    with ThreadPoolExecutor(2) as pool:  # compression is most of the work, and done without the interpreter's lock
        sums = [sum(column) for column in zip(*pool.map(one, range(chunks)), strict=True)]
    return Made(*sums)


def part(whole: Path, folder: Path, rows: int) -> Made:
    """An archive of the first rows of another, whose files it shares."""
    segments, kept = Segments(whole), Segments(folder)
    for each in _upto(segments.find(DATASET), rows):
        place = Path(kept.root) / each.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.hardlink_to(Path(segments.root) / each.path)
    chunks = max(1, rows // CHUNK)
    _, again, broken = Rows().table(0)
    return Made(chunks * CHUNK, chunks * again, chunks * broken)


def _upto(segments: list[Segment], rows: int) -> Iterator[Segment]:
    return (each for each in segments if each.stop <= max(rows, CHUNK))


def log(folder: Path, rows: int, batch: int = 20_000) -> int:
    """A log with so many rows, synced and not closed, as an archive has it while it writes; how many there are."""
    sign(folder / "log", "archive")
    writing = Log(folder / "log", DATASET)
    source = Rows()
    for number in range(max(1, rows // source.chunk)):
        table, _, _ = source.table(number)
        for piece in table.select(input_schema(DATASET).names).to_batches(max_chunksize=batch):
            writing.append(piece)
            writing.sync()
    writing.close()
    return writing.next


def _repeated(names: list[str], number: np.ndarray) -> pa.Array:
    return pc.take(pa.array(names), pa.array(number))


def _grain(values: np.ndarray) -> np.ndarray:
    """Rounded to what a clock of microseconds tells, in binary: rows stay small on disk, as real ones do."""
    return np.round(values * 1024) / 1024
