"""`chappe bench pipeline`: ingest, link statistics and the live source held against plain Spark, DuckDB and polars."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, dataset, parquet

from bench import charts, pipeline_alert, pipeline_others, pipeline_rows
from bench.pipeline_driver import HEAP, Driver
from bench.pipeline_growth import Line, crossing
from bench.registry import PipelineOptions
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, ratio
from chappe.archive.segments import Segments
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline.plain import MINUTE_NS
from chappe.pipeline.spark import missing
from chappe.pipeline.tables import Tables

SIZES = (1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (1_000_000, 2_000_000)
LIVE_ROWS = 4_000_000
RATIO, LIVE, LINEAR, FLAT, ALERT_S = 0.5, 500_000, 1.1, 1.25, 5.0
BYTES_A_ROW = 200  # on disk, at most: the archive, the clean table twice, and a copy
SPARE_S = 90  # kept for the alert

# What is timed at every size; the last two answer the question of plain Spark in one process.
INGEST, LINKS, PLAIN, AGAIN, COPY = "ingest", "link statistics", "plain Spark", "plain Spark on the clean table", "copy"
DUCKDB, POLARS = "DuckDB", "polars"
ONLY_COMPARED = (INGEST, PLAIN, COPY)  # at one size; the clean table is made at every size, and timed
ANSWER = "answer"
BESIDE = {INGEST: PLAIN, LINKS: AGAIN}  # over the same files that a job reads


def run(options: Options, own: PipelineOptions) -> Report:
    """Every size in a Spark process of its own; the ratios at the size in the middle."""
    if reason := missing():
        raise ChappeError(reason)
    wanted = _sizes(own.sizes) or (QUICK_SIZES if options.quick else SIZES)
    _checked(wanted)
    report, ceiling = Report("pipeline"), Ceiling()
    report.versions = {name: importlib.metadata.version(name) for name in ("pyspark", "duckdb", "polars", "pyarrow")}
    with tempfile.TemporaryDirectory(prefix="chappe-bench-pipeline-") as folder:
        bench = Bench(Path(folder), options, report, ceiling)
        bench.measure(wanted)
        bench.live()
        bench.judge(wanted)
    if own.alert:
        pipeline_alert.measure(options, report)
    return report


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(round(float(word)) for word in text.split(",") if word.strip()))
    except ValueError:
        raise ConfigError(f"--sizes {text}: numbers of rows, such as 1e6,1e7") from None


def _checked(sizes: Sequence[int]) -> None:
    if sizes[0] < pipeline_rows.CHUNK or len(sizes) < 2:
        raise ConfigError(f"--sizes: two or more, of at least {pipeline_rows.CHUNK:,} rows each")
    free, needed = shutil.disk_usage(tempfile.gettempdir()).free, sum(sizes) * BYTES_A_ROW
    if free < needed:
        raise ChappeError(f"{needed / 1e9:.0f} GB on disk are needed, {free / 1e9:.0f} are free; give smaller --sizes")


class Bench:
    """Archives of several sizes and what was measured on them."""

    def __init__(self, folder: Path, options: Options, report: Report, ceiling: Ceiling) -> None:
        self._folder, self._options, self._report, self._ceiling = folder, options, report, ceiling
        self._cores = len(os.sched_getaffinity(0))
        self._seconds: dict[str, dict[int, list[float]]] = {}
        self._peaks: dict[int, int] = {}
        self._done: list[int] = []

    def measure(self, sizes: Sequence[int]) -> None:
        """All sizes, the smallest first, as far as the time allows."""
        self._say(f"writing an archive of {sizes[-1]:,} measurements")
        began = time.monotonic()
        whole = self._archive(sizes[-1])
        made = pipeline_rows.make(whole, sizes[-1])
        self._report.show("rows/s written as segments", made.rows / (time.monotonic() - began), "1/s")
        for size in sizes:
            spent = self._expected(size)
            if self._done and spent > self._ceiling.left_s - SPARE_S:
                self._report.note(f"{size:,} rows left out: they would take about {spent:.0f} s, over the ceiling")
                break
            expected = made if size == sizes[-1] else pipeline_rows.part(whole, self._archive(size), size)
            self._size(size, expected, size == ratio_size(sizes))
            self._done.append(size)

    def _size(self, size: int, made: pipeline_rows.Made, compared: bool) -> None:
        self._say(f"{size:,} rows")
        archive, work = self._archive(size), self._folder / f"work-{size}"
        segments = Segments(archive)
        files = [f"{segments.root}/{each.path}" for each in segments.find(pipeline_rows.DATASET)]
        with Driver(self._cores) as driver:
            self._report.versions |= driver.versions
            warm, first = self._folder / "warm", [files[0]]
            driver.do("plain", files=first)
            driver.do("ingest", archive=str(self._archive(min(self._done, default=size))), work=str(warm))
            driver.do("links", work=str(warm))
            shutil.rmtree(warm, ignore_errors=True)
            told = driver.do("ingest", archive=str(archive), work=str(work))
            if told["rows"] != made.clean:
                raise ChappeError(f"ingest kept {told['rows']:,} of {made.rows:,} rows, {made.clean:,} are right")
            clean = told["files"]
            driver.do("links", work=str(work))
            self._peaks[size] = driver.peak_bytes  # of the jobs alone: nothing that they are compared with has run yet
            if not self._done:
                self._same(driver, clean, size)
            cells: dict[str, Callable[[], float]] = {
                INGEST: partial(self._ingest, driver, archive),
                LINKS: lambda: float(driver.do("links", work=str(work))["seconds"]),
                PLAIN: lambda: float(driver.do("plain", files=files)["seconds"]),
                AGAIN: lambda: float(driver.do("plain", files=clean)["seconds"]),
                COPY: lambda: float(driver.do("copy", files=files, to=str(self._folder / "copy"))["seconds"]),
                DUCKDB: lambda: _timed(partial(pipeline_others.duckdb_by_minute, clean, self._cores)),
                POLARS: lambda: _timed(partial(pipeline_others.polars_by_minute, clean)),
            }
            turns: Rounds[str, float] = Rounds(self._report, self._options.console, self._ceiling)
            measured = [cell for cell in cells if compared or cell not in ONLY_COMPARED]
            rounds = self._options.repeats if compared else 1
            turns.run(rounds, measured, lambda cell: cells[cell](), f"{size:,} rows")
            turns.values.setdefault(INGEST, [float(told["seconds"])])  # where that of the clean table was the only one
            for cell, seconds in turns.values.items():
                self._seconds.setdefault(cell, {})[size] = seconds
            if not self._done:
                self._same_links(work)
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(self._folder / "copy", ignore_errors=True)

    def _ingest(self, driver: Driver, archive: Path) -> float:
        again = self._folder / "again"
        seconds = float(driver.do("ingest", archive=str(archive), work=str(again))["seconds"])
        shutil.rmtree(again)
        return seconds

    def _same(self, driver: Driver, clean: Sequence[str], size: int) -> None:
        """All of them give the same answer, or none of them is a measure of the others."""
        driver.do("answer", files=list(clean), to=str(self._folder / ANSWER))
        plain = parquet.read_table(self._folder / ANSWER)
        pipeline_others.same(plain, pipeline_others.duckdb_by_minute(clean, self._cores), DUCKDB)
        pipeline_others.same(plain, pipeline_others.polars_by_minute(clean), POLARS)
        self._report.note(f"{plain.num_rows:,} groups of {size:,} rows: plain Spark, DuckDB and polars agree on each")

    def _same_links(self, work: Path) -> None:
        """The job says of each link and minute what plain Spark says of it."""
        found = dataset.dataset(Tables(work).path("link_statistics").resolve(), format="parquet").to_table(
            filter=dataset.field("period") == "minute"
        )
        columns = {
            "link": found["link"],
            "minute": compute.divide(found["start_ns"], MINUTE_NS),
            "rows": found["rounds"],
            **{name: found[name] for name in ("latency_ms", "deviation_ms", "least_ms", "most_ms", "loss")},
        }
        plain = parquet.read_table(self._folder / ANSWER).select(list(columns))
        pipeline_others.same(plain, pa.table(columns), LINKS)

    def live(self) -> None:
        """The live source from the log of an archive, to its end."""
        rows = LIVE_ROWS // 4 if self._options.quick else LIVE_ROWS
        self._say(f"the live source: a log of {rows:,} rows")
        place = self._folder / "live"
        rows = pipeline_rows.log(place, rows)
        read = {"path": str(place / "segments"), "log": str(place / "log"), "dataset": pipeline_rows.DATASET}
        with Driver(self._cores) as driver:
            rates = []
            for turn in range(self._options.repeats + 1):  # the first one warms up
                told = driver.do("live", read=read, checkpoint=str(self._folder / f"checkpoint-{turn}"))
                if told["rows"] != rows:
                    raise ChappeError(f"the live source gave {told['rows']:,} of {rows:,} rows")
                rates.append(told["rows"] / told["reading_s"])
        self._live = median(rates[1:])

    def judge(self, sizes: Sequence[int]) -> None:
        """Figures against their targets."""
        report, middle = self._report, min(ratio_size(sizes), self._done[-1])  # where all were compared
        rates = {cell: middle / median(found.get(middle, [])) for cell, found in self._seconds.items()}
        for cell, rate in rates.items():
            report.show(f"{cell}: rows/s of {middle:,}", rate, "1/s")
        report.show("ingest as a ratio to plain Spark that copies the files", ratio(rates[INGEST], rates[COPY]), "")
        for cell, plainly in BESIDE.items():
            report.compare(
                f"{cell}: rows/s as a ratio to the plainest Spark scan and aggregation",
                ratio(rates[cell], rates[plainly]), "", ">=", RATIO,
            )  # fmt: skip
        report.compare(f"live source on {self._cores} cores", self._live, "rows/s", ">=", LIVE)
        self._judge_growth()
        self._judge_memory()
        report.note(
            f"ran with {', '.join(f'{size:,}' for size in self._done)} rows on {self._cores} cores, heap {HEAP}"
        )
        if len(self._done) < len(sizes):
            report.note("the largest size did not fit into the ceiling: exponents are over what ran")

    def _judge_growth(self) -> None:
        lines = {
            cell: [(float(size), median(seconds)) for size, seconds in sorted(found.items())]
            for cell, found in self._seconds.items()
        }
        for cell in (INGEST, LINKS):
            self._report.compare(f"{cell}: exponent of time over rows", charts.exponent(lines[cell]), "", "<=", LINEAR)
        for cell in (AGAIN, DUCKDB, POLARS):
            self._report.show(f"{cell}: exponent of time over rows", charts.exponent(lines[cell]), "")
        for cell in (DUCKDB, POLARS):
            self._report.note(crossing(LINKS, Line.through(lines[LINKS]), cell, Line.through(lines[cell]), self._cores))
        self._report.charts.append(
            charts.curves(
                self._options.charts / "pipeline.png", "Time by size of the data", "rows", "s",
                {cell: points for cell, points in lines.items() if cell not in (COPY, PLAIN)},
            )
        )  # fmt: skip

    def _judge_memory(self) -> None:
        for size, peak in self._peaks.items():
            self._report.show(f"peak memory of JVM and Python workers in both jobs, {size:,} rows", peak / 2**20, "MiB")
        for fewer, more in pairwise(self._done):
            grown = self._peaks[more] / self._peaks[fewer]
            text = f"peak memory with {more:,} rows over that with {fewer:,}"
            self._report.compare(text, grown, "times", "<=", FLAT)

    def _expected(self, size: int) -> float:
        """Seconds that a size may take, from the one before."""
        if not self._done:
            return 0.0
        last = self._done[-1]
        compared = size == ratio_size((*self._done, size))
        cells = [found for cell, found in self._seconds.items() if compared or cell not in ONLY_COMPARED]
        once = sum(median(found[last]) for found in cells if last in found)
        ingest = median(self._seconds[INGEST][last])
        return 25 + (once * (self._options.repeats if compared else 1) + ingest) * size / last

    def _archive(self, size: int) -> Path:
        return self._folder / f"archive-{size}"

    def _say(self, text: str) -> None:
        self._options.console.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {text}", highlight=False)


def ratio_size(sizes: Sequence[int]) -> int:
    """The size at which systems are compared: large enough that starting a job is little, and five rounds possible."""
    return sorted(sizes)[(len(sizes) - 1) // 2]


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
