"""One measured run: workers publish and subscribe through a running peer, and everything is counted from outside."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from chappe.bench._channel import quantile
from chappe.bench.peers.common import Running, environment, process_cpu_s
from chappe.bench.shared import END, RUN, STOP, Shared
from chappe.bench.worker import Job
from chappe.errors import ChappeError, TimeoutExpired

READY_S, DRAIN_S = 120.0, 20.0
BUSY = 0.9  # share of a core above which a process counts as the bottleneck


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


@dataclass
class Figures:
    """What one run gave. Rates and CPU are of the measured interval, losses of the whole run."""

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


class Worker:
    """A process of the load generator."""

    def __init__(self, job: Job) -> None:
        fds = (job.shared,) if job.shared >= 0 else ()
        self.role = job.role
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chappe.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=fds,
            env=environment(),
        )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(job) + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next line that it writes: `ready`, then the result; ChappeError if it failed."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ChappeError(f"the {self.role} worker of the load generator ended without a result")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise ChappeError(f"load generator, {said['error']}")
        return said

    def cpu_s(self) -> float:
        return process_cpu_s(self.process.pid)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def measure(broker: Running, row: Row) -> Figures:
    """Run a row through a broker; every message that was sent is accounted for."""
    shared = Shared(row.subscribers)
    workers: list[Worker] = []
    try:
        job = _job(broker, row, shared.fd)
        # The publisher first: a variable exists before it is watched.
        for role, count in (("publish", row.publishers), ("subscribe", row.subscribers)):
            worker = Worker(msgspec.structs.replace(job, role=role, connections=count))
            workers.append(worker)
            worker.answer()
        return _observe(broker, row, shared, *workers)
    finally:
        for worker in workers:
            worker.stop()
        shared.close()


def _observe(broker: Running, row: Row, shared: Shared, publisher: Worker, subscriber: Worker) -> Figures:
    figures = Figures()

    def received() -> int:
        return sum(shared.received(i) for i in range(row.subscribers))

    def reading() -> tuple[float, int, float, float, float]:
        return time.monotonic(), received(), broker.cpu_s(), publisher.cpu_s(), subscriber.cpu_s()

    shared.phase = RUN
    _until(lambda: shared.sent > 0 and received() > 0, shared, publisher, "the first message to arrive")
    if row.limit:
        first = reading()
        _until(lambda: shared.sent >= row.limit, shared, publisher, "all messages to be sent", 60.0)
    else:
        time.sleep(row.warm_s)
        first = reading()
        _until(lambda: time.monotonic() - first[0] >= row.measured_s, shared, publisher, "the interval to pass")
    last = reading()
    shared.phase = STOP
    sent = publisher.answer()["sent"]
    with contextlib.suppress(TimeoutExpired):
        _until(lambda: received() >= sent * row.subscribers, shared, subscriber, "the rest to arrive", DRAIN_S)
    if row.limit:
        last = reading()
    shared.phase = END
    result = subscriber.answer()
    span, delivered = last[0] - first[0], last[1] - first[1]
    figures.delivered_per_s = delivered / span
    figures.cpu_ns = (last[2] - first[2]) / max(1, delivered) * 1e9
    figures.broker_cores, figures.publisher_cores, figures.subscriber_cores = (
        (last[i] - first[i]) / span for i in (2, 3, 4)
    )
    connections = result["connections"]
    figures.delivered = sum(one["received"] for one in connections)
    figures.lost = sent * row.subscribers - figures.delivered
    figures.reordered = sum(one["reordered"] for one in connections)
    figures.wrong = sum(one["wrong"] for one in connections)
    figures.dropped = sum(one["dropped"] for one in connections)
    return _with_latency(figures, result["histogram"])


def ping_pong(broker: Running, row: Row) -> Figures:
    """One message in flight through a broker, out by one connection and back by another."""
    worker = Worker(msgspec.structs.replace(_job(broker, row, -1), role="pingpong", rounds=row.rounds))
    try:
        worker.answer()
        before, start = broker.cpu_s(), time.monotonic()
        result = worker.answer()
        span = time.monotonic() - start
        figures = Figures(delivered=row.rounds, delivered_per_s=row.rounds / span)
        figures.cpu_ns = (broker.cpu_s() - before) / (row.rounds * 1.1) * 1e9
        return _with_latency(figures, result["histogram"])
    finally:
        worker.stop()


def _job(broker: Running, row: Row, shared: int) -> Job:
    return Job(
        role="publish", protocol=row.protocol or broker.peer.protocol, port=broker.port, ca=broker.ca, shared=shared,
        publishers=row.publishers, subscribers=row.subscribers, topics=row.topics, size=row.size,
        batch_bytes=row.batch_bytes, window=row.window, rate=row.rate, limit=row.limit,
    )  # fmt: skip


def _with_latency(figures: Figures, histogram: list[int]) -> Figures:
    return replace(
        figures,
        histogram=histogram,
        p50_us=quantile(histogram, 0.50) / 1000,
        p99_us=quantile(histogram, 0.99) / 1000,
    )


def _until(condition: Any, shared: Shared, worker: Worker, what: str, within_s: float = READY_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if worker.process.poll() is not None:
            worker.answer()
        if shared.faulty:
            raise ChappeError(f"a connection of the load generator broke while it waited for {what}")
        if time.monotonic() > deadline:
            raise TimeoutExpired(f"the load generator waited {within_s:g} s for {what}")
        time.sleep(0.002)
