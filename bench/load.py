"""One measured run: workers publish and subscribe through a running peer, and everything is counted from outside."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from bench._channel import quantile
from bench.peers.common import Running
from bench.processes import Answering
from bench.shared import END, RUN, STOP, WAIT, Shared
from bench.worker import Job
from chappe.errors import ChappeError, TimeoutExpired

ARRIVAL_S, DRAIN_S = 30.0, 20.0
_serial = itertools.count(os.getpid() << 20)
BUSY = 0.9  # share of a core above which a process counts as the bottleneck


def next_label() -> int:
    """A number that no other session on this machine has now."""
    return next(_serial)


@dataclass(frozen=True)
class Row:
    """One kind of traffic, the same for every peer."""

    name: str
    size: int = 64
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    batch_bytes: int = 65536
    window: int = 16384
    rate: float = 0.0
    limit: int = 0
    protocol: str | None = None  # instead of the peer's own, as `status` for Chappe
    warm_s: float = 0.3
    measured_s: float = 1.0
    rounds: int = 5000  # of a ping-pong
    period_ns: int = 0  # of status variables, stamped exactly so far apart; 0: 30 a second, stamped when they are sent
    interval_ns: int = 0  # at which they are watched; 0: every event

    @property
    def every(self) -> int:
        """A subscriber gets one of so many events of a variable."""
        return max(1, self.interval_ns // self.period_ns) if self.period_ns else 1


@dataclass
class Figures:
    """What one run gave. Rates, CPU and latency are of the measured interval, losses of the whole run."""

    delivered_per_s: float = 0.0
    cpu_ns: float = 0.0  # of the broker, for each delivered message
    p50_us: float = 0.0
    p99_us: float = 0.0
    delivered: int = 0
    lost: int = 0
    reordered: int = 0
    wrong: int = 0
    dropped: int = 0  # what the broker itself reports
    broker_cores: float = 0.0
    publisher_cores: float = 0.0
    subscriber_cores: float = 0.0
    histogram: list[int] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not (self.lost or self.reordered or self.wrong or self.dropped)

    @property
    def bottleneck(self) -> str:
        """`generator` if it, and not the broker, was busy all the time."""
        if max(self.publisher_cores, self.subscriber_cores) > BUSY and self.broker_cores < BUSY:
            return "generator"
        return "broker" if self.broker_cores > BUSY else "machine"


def start_worker(job: Job, module: str = "bench.worker", tree: Path | None = None) -> Answering:
    """A process of the load generator; that of `tree` speaks the wire of its node."""
    shared = (job.shared,) if job.shared >= 0 else ()
    started = Answering(f"the {job.role} worker of the load generator", module, tree=tree, shared=shared)
    started.send(job)
    return started


class Session:
    """Publishers and subscribers connected to a broker; any number of measured intervals, then the account."""

    def __init__(self, broker: Running, row: Row, consumer: str | None = None, token: str | None = None) -> None:
        """`consumer` names a Python consumer (`client:form`) that takes the place of the compiled subscribers.

        `token` is shown to a node that wants one.
        """
        self.broker, self.row = broker, row
        self.shared = Shared(row.subscribers)
        self.workers: list[Answering] = []
        job = msgspec.structs.replace(_job(broker, row, self.shared.fd), token=token)
        try:
            # The publisher first: a variable exists before it is watched.
            self._add(msgspec.structs.replace(job, role="publish", connections=row.publishers))
            if consumer is not None:
                self._add(msgspec.structs.replace(job, role=consumer), "bench.clients.consume")
            else:
                self._add(msgspec.structs.replace(job, role="subscribe", connections=row.subscribers))
        except BaseException:
            self.close()
            raise
        self.publisher, self.subscriber = self.workers

    def _add(self, job: Job, module: str = "bench.worker") -> None:
        self.workers.append(start_worker(job, module, self.broker.peer.tree))
        self.workers[-1].answer()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.shared.close()

    def interval(self) -> Figures:
        """Publish for a while; rate and CPU of the part after the warm-up. Publishing then rests."""
        shared, row = self.shared, self.row
        first = before = self._reading()
        seen = shared.histogram()
        shared.phase = RUN
        self._until(lambda: self._received() > before[1], "the first message to arrive")
        if row.limit:
            self._until(lambda: self._received() >= row.limit * row.subscribers, "all to arrive", 60.0)
        else:
            time.sleep(row.warm_s)
            first = self._reading()
            seen = shared.histogram()
            self._until(lambda: time.monotonic() - first[0] >= row.measured_s, "the interval to pass")
        last = self._reading()
        noted = [now - then for now, then in zip(shared.histogram(), seen, strict=True)]
        shared.phase = WAIT
        span, delivered = last[0] - first[0], last[1] - first[1]
        cores = [(last[i] - first[i]) / span for i in (2, 3, 4)]
        figures = Figures(
            delivered_per_s=delivered / span,
            cpu_ns=(last[2] - first[2]) / max(1, delivered) * 1e9,
            broker_cores=cores[0],
            publisher_cores=cores[1],
            subscriber_cores=cores[2],
        )
        return _with_latency(figures, noted)

    def account(self) -> Figures:
        """End publishing, wait for the rest, and say what became of every message of the session."""
        self.shared.phase = STOP
        said = self.publisher.answer()
        first_round = said["base_ns"] // self.row.period_ns if self.row.period_ns else 0
        wanted = passing(said["sent"], self.row.topics, first_round, self.row.every) * self.row.subscribers
        with contextlib.suppress(TimeoutExpired):
            self._until(lambda: self._received() >= wanted, "the rest to arrive", DRAIN_S)
        self.shared.phase = END
        result = self.subscriber.answer()
        connections = result["connections"]
        totals = {key: sum(one[key] for one in connections) for key in ("received", "reordered", "wrong", "dropped")}
        return Figures(
            delivered=totals["received"],
            lost=wanted - totals["received"],
            reordered=totals["reordered"],
            wrong=totals["wrong"],
            dropped=totals["dropped"],
        )

    def _received(self) -> int:
        return sum(self.shared.received(i) for i in range(self.row.subscribers))

    def _reading(self) -> tuple[float, int, float, float, float]:
        return (
            time.monotonic(), self._received(), self.broker.cpu_s(), self.publisher.cpu_s(), self.subscriber.cpu_s(),
        )  # fmt: skip

    def _until(self, condition: Callable[[], bool], what: str, within_s: float = ARRIVAL_S) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            for worker in self.workers:
                worker.check()
            if self.shared.faulty:
                raise ChappeError(f"a connection of the load generator broke while it waited for {what}")
            if time.monotonic() > deadline:
                raise TimeoutExpired(f"the load generator waited {within_s:g} s for {what}")
            time.sleep(0.002)


def passing(sent: int, topics: int, first_round: int, every: int) -> int:
    """How many of the events sent in turn pass a filter that lets every so manieth round through."""
    rounds, rest = divmod(sent, topics)
    last = first_round + rounds  # the rounds before it are whole
    whole = (last + every - 1) // every - (first_round + every - 1) // every
    return whole * topics + (rest if last % every == 0 else 0)


def measure(broker: Running, row: Row) -> Figures:
    """Run a row through a broker once; every message that was sent is accounted for."""
    with Session(broker, row) as session:
        figures = session.interval()
        total = session.account()
    return replace(
        figures,
        delivered=total.delivered,
        lost=total.lost,
        reordered=total.reordered,
        wrong=total.wrong,
        dropped=total.dropped,
    )


def ping_pong(broker: Running, row: Row) -> Figures:
    """One message in flight through a broker, out by one connection and back by another."""
    job = msgspec.structs.replace(_job(broker, row, -1), role="pingpong", rounds=row.rounds)
    player = start_worker(job, tree=broker.peer.tree)
    try:
        player.answer()
        before, start = broker.cpu_s(), time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # one of an older tree waits for nothing
            player.send({})  # a worker that began by itself could be through before its node's CPU time was read
        result = player.answer()
        span = time.monotonic() - start
        figures = Figures(delivered=row.rounds, delivered_per_s=row.rounds / span)
        figures.cpu_ns = (broker.cpu_s() - before) / (row.rounds * 1.1) * 1e9
        return _with_latency(figures, result["histogram"])
    finally:
        player.stop()


def _job(broker: Running, row: Row, shared: int) -> Job:
    return Job(
        role="publish", protocol=row.protocol or broker.peer.protocol, port=broker.port, pki=broker.pki, shared=shared,
        publishers=row.publishers, subscribers=row.subscribers, topics=row.topics, size=row.size,
        batch_bytes=row.batch_bytes, window=row.window, rate=row.rate, limit=row.limit, label=f"bench-{next_label()}",
        period_ns=row.period_ns, interval_ns=row.interval_ns, nominal=row.period_ns > 0, every=row.every,
    )  # fmt: skip


def _with_latency(figures: Figures, histogram: list[int]) -> Figures:
    return replace(
        figures,
        histogram=histogram,
        p50_us=quantile(histogram, 0.50) / 1000,
        p99_us=quantile(histogram, 0.99) / 1000,
    )
