"""`chappe bench history`: a mesh, brokers, an archive and clients as processes under faults; what was promised holds.

Each seed is a run: the faults (cuts, pauses, kills, jumps of clocks, a full disk) and the operations of all clients
follow from it. Clients write down every operation and answer, and the checker compares that with what is promised.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import uvloop

from bench.history.checker import EXAMPLES, Verdict, check
from bench.history.course import FAKETIME, Course
from bench.history.network import Network
from bench.history.site import SPACES
from bench.postgres import postgres_server
from bench.progress import spans
from bench.registry import HistoryOptions
from bench.report import Options, Report

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


def run(options: Options, own: HistoryOptions) -> Report:
    """As many runs as there are seeds, one after the other."""
    first = secrets.randbelow(1 << 31) if own.seed is None else own.seed
    count = own.seeds or (1 if options.quick or own.seed is not None else SEEDS)
    seconds = 60.0 * own.minutes if own.minutes else QUICK_S if options.quick else 60.0 * MINUTES
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
    try:
        with network, postgres_server() as server, spans(options.console, f"seed {seed}", seconds) as progress:
            course = Course(seed, seconds, folder, network, server.url, progress)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                history = runner.run(course.follow())
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
