"""`chappe bench xml`: the source's XML tests at 100 to 16,000 links: export, parse, query, view (MR-125)."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import charts
from bench.progress import followed
from bench.registry import Own
from bench.report import Options, Report
from bench.rounds import median
from chappe.aggregation import averages, conditions, xml
from chappe.measure.record import Record, link_of
from chappe.store.opening import open_records

SIZES = (100, 1_000, 4_000, 16_000)
EXPORT_MS, QUERY_MS, VIEW_MS = 250.0, 10.0, 500.0  # at 16,000 links
SOURCE_DOM_MS = {100: 691.0, 16_000: 2824.0}  # a Pentium 4 with 1.5 GHz and Java 1.4
SLOW = "latency_ms > 95 and loss < 0.5"
XPATH = "/P_Metrics/performancedata[avg_latency > 95 and lossrate < 0.5]"


def run(options: Options, own: Own) -> Report:
    """Medians over rounds; wall-clock time of one process."""
    report = Report("xml")
    sizes = SIZES[:2] if options.quick else SIZES
    lines: dict[str, list[tuple[float, float]]] = {}
    for size in followed(options.console, "xml", sizes, "{:,} links".format):
        for name, value in _figures(_records(size), options.repeats).items():
            lines.setdefault(name, []).append((float(size), value))
            report.show(f"{name}, {size:,} links", value, "ms")
    report.note("source, on a Pentium 4: DOM of 100 links 691 ms, of 16,000 links 2,824 ms")
    last = {name: points[-1][1] for name, points in lines.items()}
    report.compare(f"export of {sizes[-1]:,} links", last["export"], "ms", "<=", EXPORT_MS)
    report.compare(f"threshold query over {sizes[-1]:,} current rows", last["query by SQL"], "ms", "<=", QUERY_MS)
    report.compare(f"HTML view of {sizes[-1]:,} links", last["HTML view"], "ms", "<=", VIEW_MS)
    path = options.charts / "xml.png"
    report.charts.append(charts.curves(path, "XML tests", "links", "ms", lines))
    return report


def _figures(records: list[Record], repeats: int) -> dict[str, float]:
    document = xml.export(records)
    tree = xml.parse(document)
    path = xml.compiled(XPATH)
    where = conditions.sql(conditions.parse(SLOW))
    with tempfile.TemporaryDirectory() as folder:
        store = open_records(Path(folder) / "bench.db")
        try:
            store.write([msgspec.structs.astuple(record) for record in records])
            jobs: dict[str, Callable[[], object]] = {
                "export": lambda: xml.export(records),
                "parse to a tree": lambda: xml.parse(document),
                "import": lambda: xml.read(document, time.time_ns()),
                "query by XPath": lambda: path(tree),
                "query by SQL": lambda: averages.current(store, where),
                "HTML view": lambda: xml.html(tree),
            }
            return {name: median([_ms(job) for _ in range(repeats)]) for name, job in jobs.items()}
        finally:
            store.close()


def _ms(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return (time.perf_counter() - began) * 1000


def _records(number: int) -> list[Record]:
    """One element a link, as in the source."""
    rng = random.Random(number)
    now_ns = time.time_ns()
    uris = [f"tcp://host-{place}.example.org:9000" for place in range(number)]
    return [
        Record(
            link=link_of(uri), node=f"node-{place % 100}", uri=uri, stamp_ns=now_ns, user_group="A",
            latency_ms=rng.uniform(0.1, 100), deviation_ms=rng.uniform(0, 5), jitter_ms=rng.uniform(0, 2), loss=0.0,
        )
        for place, uri in enumerate(uris)
    ]  # fmt: skip
