"""`chappe bench hostile`: an honest stream with and without each attack, in interleaved pairs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench import peers
from bench.hostile import ATTACKS
from bench.hostile.attack import Attack, Effort, unseen_after
from bench.hostile.attacker import Job
from bench.hostile.node import HostileNode, attacked_node
from bench.load import Figures, Row, Session
from bench.processes import Answering
from bench.progress import followed
from bench.registry import HostileOptions
from bench.report import Options, Report
from bench.rounds import Ceiling, median, ratio
from chappe.errors import ChappeError

PAIRS = 10
RATE = 10_000.0  # events a second of the honest stream
LONGEST_TURN_MS = 5.0
SETTLE_S = 0.1
WITHIN_S = 1_500.0  # for all attacks: a node that makes attackers wait makes the bench wait, too
MEMORY_MIB = 256
RATE_SHARE, P99_RATIO = 0.95, 1.25
LONGEST_TURN = "chappe_loop_turn_seconds_max"


@dataclass
class Outcome:
    """What one attack did to the honest stream."""

    rates: list[float] = field(default_factory=list)  # with the attack, as a share of without
    p99: list[float] = field(default_factory=list)  # with the attack, by without
    acts: int = 0
    refused: int = 0
    lost: int = 0
    turn_ms: float = float("nan")
    memory_mib: float = float("nan")  # of the tables and queues of the node
    succeeded: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def run(options: Options, own: HostileOptions) -> Report:
    """Every attack, or those named, each on a node of its own."""
    report, attack = Report("hostile"), own.attack
    if peers.named("chappe").find() is None:
        raise ChappeError("the Chappe node is not built: run `make test` or `pip install .` first")
    report.versions["chappe"] = peers.named("chappe").version()
    kinds = [kind for kind in ATTACKS if not attack or kind.__name__ in attack or kind.name in attack]
    if not kinds or len(kinds) < len(attack):
        raise ChappeError(f"--attack: one of {', '.join(kind.__name__ for kind in ATTACKS)}")
    if len(os.sched_getaffinity(0)) < 2:
        report.note("one core for the node, its clients and attackers: latencies say little")
    ceiling = Ceiling() if options.quick else Ceiling(WITHIN_S)
    for number, kind in enumerate(followed(options.console, "hostile", kinds, lambda kind: kind.name)):
        left = len(kinds) - number
        options.console.print(f"{number + 1}/{len(kinds)} {kind.name}", highlight=False)
        pairs = 2 if options.quick else PAIRS
        try:
            outcome = measure(kind, pairs, ceiling.left_s / left)
        except (ChappeError, OSError) as error:
            report.note(f"{kind.name} failed: {error}")
            outcome = Outcome(succeeded=[f"the run failed: {error}"])
        _judge(report, kind, outcome)
    return report


def measure(kind: type[Attack], pairs: int, within_s: float) -> Outcome:
    """Pairs of intervals of the honest stream, without and with the attack, as many as the time allows."""
    ceiling = Ceiling(within_s)
    outcome = Outcome()
    row = Row("64 B, 1 -> 1", rate=RATE, warm_s=0.05, measured_s=0.3, batch_bytes=1)
    effort = Effort(seconds=row.warm_s + row.measured_s + 0.1)
    allowed = os.sched_getaffinity(0)
    with attacked_node(pinned=True) as node, _beside(allowed):
        session = Session(node.running, row, token=node.target.tokens["honest"])
        with session, _attacker(kind, node) as attacker:
            session.interval()
            node.evidence.mark()
            for turn in range(pairs):
                if turn >= 2 and ceiling.left_s < 0:
                    break
                _pair(session, attacker, effort, outcome, backwards=bool(turn % 2))
            total = session.account()
            outcome.lost = total.lost + total.reordered + total.wrong
            _own_figures(node, outcome)
            outcome.unseen = unseen_after(kind(node.target), node.evidence)
    return outcome


def _pair(session: Session, attacker: Answering, effort: Effort, outcome: Outcome, *, backwards: bool) -> None:
    figures: dict[bool, Figures] = {}
    for attacked in (True, False) if backwards else (False, True):
        if attacked:
            attacker.send(effort)
        figures[attacked] = session.interval()
        if attacked:
            tally = attacker.answer()
            outcome.acts += tally["acts"]
            outcome.refused += tally["refused"]
            outcome.succeeded += [text for text in tally["succeeded"] if text not in outcome.succeeded]
            time.sleep(SETTLE_S)  # what the attack left behind does not count against the interval without it
    outcome.rates.append(ratio(figures[True].delivered_per_s, figures[False].delivered_per_s))
    outcome.p99.append(ratio(figures[True].p99_us, figures[False].p99_us))


def _own_figures(node: HostileNode, outcome: Outcome) -> None:
    """What the node says of itself since the mark: the longest turn of its loop, the memory of tables and queues."""
    samples = node.evidence.samples()
    turns = [value for name, value in samples.items() if name.startswith(LONGEST_TURN) and 'since="scrape"' in name]
    outcome.turn_ms = max(turns, default=float("nan")) * 1_000
    used = [value for name, value in samples.items() if name.startswith("chappe_engine_memory_bytes")]
    outcome.memory_mib = max(used, default=float("nan")) / 2**20


def _judge(report: Report, kind: type[Attack], outcome: Outcome) -> None:
    name = kind.name
    report.show(f"{name}: acts of the attacker", outcome.acts, "acts")
    report.show(f"{name}: of them refused", outcome.refused, "acts")
    report.compare(f"{name}: rate of the honest stream", median(outcome.rates), "of without", ">=", RATE_SHARE)
    report.compare(f"{name}: p99 of the honest stream", median(outcome.p99), "of without", "<=", P99_RATIO)
    report.compare(f"{name}: longest turn of the loop", outcome.turn_ms, "ms", "<=", LONGEST_TURN_MS)
    report.compare(f"{name}: events lost or out of order", outcome.lost, "events", "==", 0)
    report.compare(f"{name}: memory of the node's engine", outcome.memory_mib, "MiB", "<=", MEMORY_MIB)
    problems = [*outcome.succeeded, *outcome.unseen, *(["it did not take place"] if not outcome.acts else [])]
    report.compare(f"{name}: what it gained, or was not shown", len(problems), "things", "==", 0)
    for text in problems[:5]:
        report.note(f"{name}: {text}")


@contextlib.contextmanager
def _attacker(kind: type[Attack], node: HostileNode) -> Iterator[Answering]:
    """A process that strikes when it is sent an effort."""
    with Answering("the attacker", "bench.hostile.attacker") as attacker:
        attacker.send(Job(kind.name, node.target))
        attacker.answer()
        yield attacker


@contextlib.contextmanager
def _beside(allowed: set[int]) -> Iterator[None]:
    """Processes started inside leave the core of the node alone."""
    os.sched_setaffinity(0, allowed - {max(allowed)} or allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
