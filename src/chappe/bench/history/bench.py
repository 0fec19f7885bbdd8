"""`chappe bench history`: a mesh, brokers, an archive and clients as processes under faults; what was promised holds.

Each seed is a run: the faults (cuts, pauses, kills, jumps of clocks, a full disk) and the operations of all clients
follow from it. Clients write down every operation and answer, and the checker compares that with what is promised.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import uvloop
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from chappe.bench.history.checker import EXAMPLES, History, Verdict, check
from chappe.bench.history.course import FAKETIME, Course
from chappe.bench.history.network import Network
from chappe.bench.history.site import SPACES
from chappe.bench.postgres import postgres_server
from chappe.bench.report import Options, Report

SEEDS, MINUTES = 10, 2.0
QUICK_S = 20.0
RULES = {
    "durable lost": "durable events confirmed and not in the archive",
    "archived twice": "events in the archive twice",
    "stranger": "events in the archive that nobody published",
    "flush lost": "events confirmed by flush and lost, though no node that held them was killed",
    "twice": "events delivered twice to a subscriber",
    "order": "events out of order though no link was lost",
    "mode": "modes that were not what they had to be",
    "granted": "granted subscriptions that did not hold",
}


def run(options: Options, *, seed: int | None = None, seeds: int | None = None, minutes: float | None = None) -> Report:
    """As many runs as there are seeds, one after the other."""
    first = secrets.randbelow(1 << 31) if seed is None else seed
    count = seeds or (1 if options.quick or seed is not None else SEEDS)
    seconds = 60.0 * minutes if minutes else QUICK_S if options.quick else 60.0 * MINUTES
    report = Report("history")
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()
    faults = 0
    for chosen in range(first, first + count):
        options.console.print(
            f"seed {chosen}: `chappe bench history --seed {chosen} --minutes {seconds / 60:g}` replays its faults",
            highlight=False,
        )
        verdict, done = _seed(options, report, chosen, seconds)
        counts.update(verdict.counts)
        found.update(each.rule for each in verdict.violations)
        faults += done
    report.show("faults", faults, "")
    for name, value in sorted(counts.items()):
        report.show(name, value, "")
    report.compare("durable events confirmed", counts["durable events confirmed"], "", ">=", 10)
    report.compare("events confirmed by flush and delivered", counts["confirmed by flush, delivered"], "", ">=", 100)
    for rule, name in RULES.items():
        report.compare(name, found[rule], "", "==", 0)
    return report


def _seed(options: Options, report: Report, seed: int, seconds: float) -> tuple[Verdict, int]:
    folder = Path(tempfile.mkdtemp(prefix=f"chappe-history-{seed}-"))
    kept = False
    network = Network(SPACES)
    if network.obstacle:
        report.note(f"no cuts: no network namespaces here ({network.obstacle})")
    if not FAKETIME.exists():
        report.note("no jumps of clocks: libfaketime is missing (apt install faketime)")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[now]}"))
    try:
        with network, postgres_server() as server, Progress(*columns, console=options.console) as progress:
            task = progress.add_task(f"seed {seed}", total=seconds, now="")
            course = Course(
                seed, seconds, folder, network, server.url,
                lambda over, now: progress.update(task, completed=over, now=now[:70]),
            )  # fmt: skip
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                history = runner.run(_until_told(course))
            progress.update(task, completed=seconds, now="checking")
        verdict = check(history)
        for text in course.ends:
            report.note(f"seed {seed}: ended by itself and was started again: {_short(text)}")
        if verdict.violations:
            kept = True
            (folder / "history.json").write_bytes(msgspec.json.encode(history))
            (folder / "faults.txt").write_text("\n".join(course.done) + "\n")
            _explain(options, report, seed, folder, verdict, course)
        return verdict, len(course.done)
    except Exception:
        kept = True
        options.console.print(f"seed {seed}: what there is of the histories is in {folder}", highlight=False)
        raise
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


async def _until_told(course: Course) -> History:
    """The run, ended in order by SIGTERM as by Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await course.follow()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _explain(options: Options, report: Report, seed: int, folder: Path, verdict: Verdict, course: Course) -> None:
    """The shortest account of each kind of violation, with the faults around it."""
    options.console.print(f"seed {seed}: histories and logs are in {folder}", highlight=False)
    for rule in RULES:
        found = verdict.of(rule)
        for each in found[:EXAMPLES]:
            report.note(f"seed {seed}: {rule}: {each.text}")
        if len(found) > EXAMPLES:
            report.note(f"seed {seed}: {rule}: {len(found) - EXAMPLES} more")
    report.note(f"seed {seed}: faults: " + "; ".join(course.done))


def _short(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
