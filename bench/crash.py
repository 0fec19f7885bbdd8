"""`chappe bench crash`: a power cut at every system call of archive, audit log and store, and disks that fail or lie.

The work is done once below a preloaded library that writes every system call down. Each moment of that trace has the
states that a power cut may leave then ([bench.crash_disk]); each is opened by the same code as always, and must
hold everything that was acknowledged before. Then syncs and writes fail one after the other, and in the end bits are
flipped and synced writes lost: `chappe archive check` must name what that cost, and no reader may see a wrong row.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from bench.crash_disk import Call, Disk, Image, Loss, digest, load, materialise
from bench.crash_workloads import RECOVER, open_archive, readable
from bench.progress import steps
from bench.registry import CrashOptions
from bench.report import Options, Report
from chappe.archive.checks import problems
from chappe.archive.segments import Segments
from chappe.errors import ChappeError

SOURCE = Path(__file__).with_name("crash_trace.c")
SCRATCH = Path("/dev/shm")
TEARS = 4  # places where a write is torn, twice
QUICK = 150  # states of each kind that a quick run looks at
FLIPS = 4000  # bits that are flipped, of those of all files
AFTER_FAULT = 20  # states after each call that fails
TRACE_S = 300
T = TypeVar("T")


@dataclass(slots=True)
class Outcome:
    """What was tried, and what did not hold."""

    calls: int = 0
    tried: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.calls += other.calls
        self.tried += other.tried
        self.skipped += other.skipped
        self.failures += other.failures


class Laboratory:
    """Traces work and opens what power cuts leave of it; of each kind at most `limit` states, chosen by the seed."""

    def __init__(self, folder: Path, seed: int, limit: int | None, until: float) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._limit = limit
        self._until = until
        self._library = folder / "crash_trace.so"
        self._runs = 0
        _compile(self._library)

    def trace(self, name: str, *faults: str) -> list[tuple[Path, list[Call]]]:
        """Do some work once for each fault; the folder and the calls of each."""
        self._runs += 1
        place = self._folder / f"{name}-{self._runs}"
        command = [sys.executable, "-m", "bench.crash_workloads", name, str(place), *faults]
        environment = {**os.environ, "LD_PRELOAD": str(self._library), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TRACE_S, check=False)
        if done.returncode:
            raise ChappeError(f"the work of {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return [(place / str(number) / "disk", load(place / str(number) / "trace")) for number in range(len(faults))]

    def crashes(
        self, name: str, root: Path, calls: list[Call], tears: int = TEARS, since: int = 0, most: int | None = None
    ) -> Outcome:
        """A power cut after every call from `since` on, with all that it may take; at most so many states."""
        found: dict[tuple[bytes, int], tuple[Image, list[str], str]] = {}
        disk = Disk(root, calls)
        while True:
            if disk.now >= since:
                said = b"".join(disk.acknowledged).decode().split()
                for losses in disk.losses(tears):
                    image = disk.image(losses)
                    what = f"{name}: power cut after call {disk.now}, {_described(losses, calls)}"
                    found.setdefault((digest(image), len(said)), (image, said, what))
            if disk.now == len(calls):
                break
            disk.advance()
        outcome = Outcome(len(calls))
        for image, said, what in self._chosen(list(found.values()), outcome, most):
            problem = self._opened(image, partial(_recovered, name, said))
            if problem:
                outcome.failures.append(f"{what}: {problem}")
        return outcome

    def flips(self, root: Path, calls: list[Call]) -> Outcome:
        """Bits of every file of the archive change: each is named, nothing else is lost, no row is wrong."""
        outcome = Outcome(len(calls))
        moments = [number for number, call in enumerate(calls, 1) if call.kind == "A"]
        cases = []
        for moment in {moments[len(moments) // 2], moments[-1], len(calls)}:
            image = _at(root, calls, moment).image(frozenset())
            cases += [
                (image, path, at)
                for path, content in sorted(image.items())
                if content and path.endswith((".log", ".parquet"))
                for at in range(len(content))
            ]
        for image, path, at in self._chosen(cases, outcome, FLIPS):
            bit = self._random.randrange(8)
            content = bytearray(image[path] or b"")
            content[at] ^= 1 << bit
            problem = self._opened({**image, path: bytes(content)}, partial(_named, path, image))
            if problem:
                outcome.failures.append(f"bit {bit} of byte {at} of {path} flipped: {problem}")
        return outcome

    def lies(self, root: Path, calls: list[Call]) -> Outcome:
        """A write that was synced is not there, all others are: what that cost is named, and no row is wrong."""
        outcome = Outcome(len(calls))
        end = _at(root, calls, len(calls))
        whole = end.image(frozenset())
        cases = [number for number, call in enumerate(calls) if call.kind in "WR"]
        for number in self._chosen(cases, outcome):
            image = end.image(frozenset([Loss(number)]))
            problem = self._opened(image, partial(_named, "", whole))
            if problem:
                outcome.failures.append(f"call {number} ({_told(calls[number])}) lied: {problem}")
        return outcome

    def _chosen(self, cases: list[T], outcome: Outcome, most: int | None = None) -> Iterator[T]:
        """All of them, or as many as there is room for; those that are left out are counted."""
        limit = min(each for each in (self._limit, most, len(cases)) if each is not None)
        outcome.skipped += len(cases) - limit
        if limit < len(cases):
            cases = self._random.sample(cases, limit)
        for number, case in enumerate(cases):
            if time.monotonic() > self._until:
                outcome.skipped += len(cases) - number
                return
            outcome.tried += 1
            yield case

    def _opened(self, image: Image, look: Callable[[Path], str]) -> str:
        folder = self._folder / "image"
        materialise(image, folder)
        (folder / "acknowledged").unlink(missing_ok=True)
        try:
            return look(folder)
        except Exception as error:  # whatever it is, nobody could go on
            return f"{type(error).__name__}: {error}"


def _compile(library: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise ChappeError("gcc is missing: sudo apt install gcc")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChappeError(f"{SOURCE.name} cannot be compiled: {done.stderr[-2000:]}")


def _at(root: Path, calls: list[Call], moment: int) -> Disk:
    disk = Disk(root, calls)
    while disk.now < moment:
        disk.advance()
    return disk


def _recovered(name: str, acknowledged: list[str], folder: Path) -> str:
    return RECOVER[name](folder, acknowledged)


def _named(path: str, whole: Image, folder: Path) -> str:
    """Whether the check names a file that was damaged, and all rows that can no longer be read afterwards."""
    expected = _expected(whole, folder)
    segments = Segments(folder / "history" / "deep", "a")
    named = list(problems(segments, folder / "log" / "deep"))
    if path and not any(problem.place.endswith(path.rpartition("/")[2]) for problem in named):
        return "the check does not name it"
    readable(folder)
    with contextlib.closing(open_archive(folder)):
        pass
    found, _ = readable(folder)
    lost = set(expected) - set(found)
    if set(found) - set(expected) or len(set(found)) < len(found):
        return f"rows {found}, {expected} were written"
    if not path and lost == set(range(len(lost))):
        return ""  # the oldest rows are gone: so they are when they are too old
    lost -= {row for problem in named for row in range(problem.first, problem.stop)}
    return f"rows {sorted(lost)} are lost and the check does not say so" if lost else ""


def _expected(whole: Image, folder: Path) -> list[int]:
    """The rows of an archive that is not damaged."""
    key = digest(whole)
    if key not in _EXPECTED:
        beside = folder.with_name("whole")
        materialise(whole, beside)
        _EXPECTED[key] = readable(beside)[0]
        shutil.rmtree(beside)
    return _EXPECTED[key]


_EXPECTED: dict[bytes, list[int]] = {}


def _described(losses: frozenset[Loss], calls: list[Call]) -> str:
    if not losses:
        return "nothing lost"
    if len(losses) > 1:
        return f"all {len(losses)} unsynced calls lost"
    (loss,) = losses
    return f"{loss} ({_told(calls[loss.call])})"


def _told(call: Call) -> str:
    names = {"W": "write", "T": "truncate", "C": "create", "R": "rename", "U": "unlink", "M": "mkdir"}
    text = f"{len(call.one)} bytes at {call.at}" if call.kind == "W" else os.fsdecode(os.path.basename(call.one))
    return f"{names.get(call.kind, call.kind)} {text}"


def run(options: Options, own: CrashOptions) -> Report:
    """All of it; with --quick a sample."""
    report = Report("crash")
    until = time.monotonic() + own.minutes * 60
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))  # damage is what this is about
    scratch = SCRATCH if os.access(SCRATCH, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="chappe-crash-", dir=scratch) as name:
        laboratory = Laboratory(Path(name), own.seed, QUICK if options.quick else None, until)
        for title, outcome in _followed(options, laboratory):
            _shown(report, title, outcome)
            options.console.print(f"{title}: {outcome.tried} tried, {len(outcome.failures)} wrong", highlight=False)
    report.note(f"seed {own.seed}")
    return report


def _followed(options: Options, laboratory: Laboratory) -> Iterator[tuple[str, Outcome]]:
    with steps(options.console, "crash", 3 * len(RECOVER) + 2) as step:
        step("power cuts")
        for title, outcome in examined(laboratory, options.quick):
            yield title, outcome
            step(f"after {title}")


def examined(laboratory: Laboratory, quick: bool) -> Iterator[tuple[str, Outcome]]:
    """Each kind of trial with what came of it."""
    for name in RECOVER:
        ((root, calls),) = laboratory.trace(name, "")
        yield f"power cuts, {name}", laboratory.crashes(name, root, calls)
        if name == "archive":
            yield "flipped bits", laboratory.flips(root, calls)
            yield "lying syncs", laboratory.lies(root, calls)
        yield f"failed syncs, {name}", _faulted(laboratory, name, calls, "SDF", "sync:{0}", quick)
        yield f"full disk, {name}", _faulted(laboratory, name, calls, "W", "full:{0}:{1}", quick)


def _faulted(laboratory: Laboratory, name: str, calls: list[Call], kinds: str, fault: str, quick: bool) -> Outcome:
    """One call of a kind after the other fails, and a power cut comes at any moment afterwards."""
    count = sum(call.kind in kinds for call in calls)
    numbers = range(1, count + 1, max(1, count // (6 if quick else 60)))
    outcome = Outcome()
    for root, failed in laboratory.trace(name, *(fault.format(number, number + 4) for number in numbers)):
        since = next((place for place, call in enumerate(failed) if call.kind == "F"), 0)
        outcome.add(laboratory.crashes(name, root, failed, tears=1, since=since, most=AFTER_FAULT))
    return outcome


def _shown(report: Report, title: str, outcome: Outcome) -> None:
    report.show(f"{title}: system calls", outcome.calls, "calls")
    report.show(f"{title}: states opened", outcome.tried, "states")
    if outcome.skipped:
        report.show(f"{title}: states left out", outcome.skipped, "states")
    report.compare(f"{title}: something acknowledged lost, half or wrong", len(outcome.failures), "states", "==", 0)
    for failure in outcome.failures[:5]:
        report.note(failure)
