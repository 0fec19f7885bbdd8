"""From a link that becomes slow to the alert as an event: nodes, archive and a continuous pipeline as processes."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

import chappe
from bench.measuring_mesh import MeasuringMesh
from bench.processes import Started, serving
from bench.report import Options, Report
from bench.rounds import median
from chappe.errors import ChappeError

LINKS = {("a", "b"): 1.0, ("b", "c"): 1.0, ("c", "a"): 1.0}  # ms, each way
SLOWED, SLOW_MS, LIMIT_MS = ("a", "b"), 60.0, 30.0
INTERVAL_S = 0.5  # between measurements of a link
ALERT_S, CALM_S = 60.0, 60.0
START_S = 180.0
BAR_S = 5.0

_SECTIONS = f"[mesh]\n[measure]\ninterval_s = {INTERVAL_S}\n[report]\nrealm = 'bench'\nsilence_s = 1.0\n"
_ARCHIVE = '[archive]\nname = "bench"\nurl = "{url}"\nfolder = "history"\nlog = "log"\ncounters = false\n'
_RULES = f'[[alert]]\nname = "slow"\nwhen = "latency_ms > {LIMIT_MS:g}"\n'


def measure(options: Options, report: Report) -> None:
    """Rounds of a link made slow and fast again; the worst must be below the bar."""
    rounds = 1 if options.quick else min(5, options.rounds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        spans = runner.run(_rounds(rounds))
    report.show("alert after a link became slow (median)", median([span for span, _ in spans]), "s")
    report.show(
        "of which after the first measurement above the limit (median)", median([after for _, after in spans]), "s"
    )
    report.compare(
        "alert after the first bad sample, worst of all rounds", max(span for span, _ in spans), "s", "<=", BAR_S
    )
    report.note(
        f"alerts: {rounds} rounds; counted from the moment the link became slow, which is before the first bad sample"
    )


async def _rounds(count: int) -> list[tuple[float, float]]:
    """Seconds from the slow link, and from the first measurement above the limit, to the event in a client."""
    spans = []
    with tempfile.TemporaryDirectory(prefix="chappe-bench-alert-") as place:
        folder = Path(place)
        async with MeasuringMesh(LINKS, _SECTIONS) as mesh, chappe.connect(mesh.url("c"), heartbeat_s=20) as client:
            alerts = await client.subscribe("pipeline/alerts/#")
            with _archive(folder, mesh.url("c")) as archive, _pipeline(folder, mesh.url("c")) as pipeline:
                await asyncio.to_thread(archive.until, serving, START_S)
                waits = "alerts: waits"  # for rows: it and ingest have begun
                await asyncio.to_thread(pipeline.until, waits.__eq__, START_S)
                for _ in range(count):
                    mesh.relays[SLOWED].delay_s = SLOW_MS / 1e3
                    slow_ns = time.time_ns()
                    try:
                        came_ns, event = await _alert(alerts, "raised", ALERT_S, slow_ns)
                    except ChappeError as error:
                        raise ChappeError(f"{error}; the pipeline said: {pipeline.last()}") from None
                    spans.append(((came_ns - slow_ns) / 1e9, (came_ns - event["since_ns"]) / 1e9))
                    mesh.relays[SLOWED].delay_s = LINKS[SLOWED] / 1e3
                    await _alert(alerts, "cleared", CALM_S, slow_ns)
    return spans


async def _alert(alerts: chappe.Subscription, state: str, within_s: float, since_ns: int) -> tuple[int, dict[str, Any]]:
    """When an event of that state came, and what it said; the two ends of a link tell one each, the first counts.

    A busy machine makes a link slow now and then: what was so before is no answer.
    """
    try:
        async with asyncio.timeout(within_s):
            async for message in alerts:
                event = json.loads(message.body)
                if event["state"] == state and event["since_ns"] >= since_ns:
                    return time.time_ns(), event
    except TimeoutError:
        pass
    raise ChappeError(f"no alert was {state} within {within_s:g} s")


@contextmanager
def _archive(folder: Path, url: str) -> Iterator[Started]:
    file = folder / "archive.toml"
    file.write_text(_ARCHIVE.format(url=url))
    with Started("chappe.archive", str(file)) as process:
        yield process


@contextmanager
def _pipeline(folder: Path, url: str) -> Iterator[Started]:
    rules = folder / "rules.toml"
    rules.write_text(_RULES)
    where = ("--archive", str(folder / "history"), "--log", str(folder / "log"), "--work", str(folder / "work"))
    jobs = ("ingest", "alerts", "--continuous", "--set", f"alerts.rules={rules}")
    with Started("chappe.cli", "pipeline", "run", *jobs, *where, "--node", url) as process:
        yield process
