"""Streams of status events through a mesh: one publisher, subscribers at any routers, each with its own histogram."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from bench._channel import quantile
from bench.load import DRAIN_S, next_label, passing, start_worker
from bench.processes import Answering
from bench.shared import END, RUN, STOP, Shared
from bench.worker import Job
from chappe.errors import ChappeError, TimeoutExpired
from chappe.wire.constants import ALL_MODES

WINDOW = 1 << 40  # a paced publisher waits for nobody


@dataclass(frozen=True)
class Sink:
    """A subscriber: the port of its router, its interval (0: every event), paths and modes."""

    port: int
    interval_ns: int = 0
    redundancy: int = 0
    modes: int = ALL_MODES
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Latencies:
    """Of one subscriber, in microseconds."""

    count: int
    mean_us: float
    sd_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    max_us: float

    @staticmethod
    def of(histogram: Sequence[int]) -> Latencies:
        """From a histogram of the load generator; each bucket counts by its middle (below 1.6 % off)."""
        count = sum(histogram)
        if not count:
            return Latencies(0, *[float("nan")] * 6)
        middles = [_middle(index) / 1000 for index in range(len(histogram))]
        mean = sum(middle * number for middle, number in zip(middles, histogram, strict=True)) / count
        square = sum((middle - mean) ** 2 * number for middle, number in zip(middles, histogram, strict=True)) / count
        p50, p95, p99, most = (quantile(list(histogram), share) / 1000 for share in (0.5, 0.95, 0.99, 1.0))
        return Latencies(count, mean, math.sqrt(square), p50, p95, p99, most)


def _middle(index: int) -> float:
    """The middle of a bucket in ns, as `bench_bucket` cuts them."""
    if index < 64:
        return index
    shift = index // 32 - 1
    return ((index - shift * 32) + 0.5) * (1 << shift)


@dataclass(frozen=True)
class Reading:
    """Counters at one moment."""

    at: float
    sent: int
    received: tuple[int, ...]
    histograms: tuple[list[int], ...]


@dataclass
class Account:
    """What became of every event of a stream."""

    sent: int
    wanted: list[int]  # by sink
    received: list[int] = field(default_factory=list)
    repeated: int = 0  # of captured streams
    reordered: int = 0
    wrong: int = 0

    @property
    def lost(self) -> int:
        return sum(want - got for want, got in zip(self.wanted, self.received, strict=True)) + self.repeated


class Stream:
    """`topics` variables of one period, published in turn at `topics / period` events a second."""

    def __init__(
        self, source: int, sinks: Sequence[Sink], *, topics: int, period_ns: int, protocol: str = "status",
        nominal: bool = False, seconds: float = 0.0, capture: int = 0, host: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        """`nominal`: stamps exactly a period apart, so that what a filter passes can be counted; `seconds`: its end.

        `capture`: bytes that each subscriber keeps, so that repeats are told from latecomers; no latency then.
        """
        self.topics, self.period_ns, self.sinks = topics, period_ns, list(sinks)
        self.rate = topics * 1e9 / period_ns
        self.label = f"stream-{next_label()}"
        limit = int(seconds * 1e9 / period_ns) * topics
        self._shared = [Shared(1) for _ in range(len(sinks) + 1)]
        self._workers: list[Answering] = []
        self._first_round = 0
        job = Job(
            role="publish", protocol=protocol, host=host, port=source, topics=topics, size=24, rate=self.rate,
            limit=limit, subscribers=0, window=WINDOW, label=self.label, period_ns=period_ns, nominal=nominal,
            shared=self._shared[0].fd,
        )  # fmt: skip
        try:
            self._add(job)
            for sink, shared in zip(sinks, self._shared[1:], strict=True):
                self._add(
                    msgspec.structs.replace(
                        job,
                        role="subscribe",
                        host=sink.host,
                        port=sink.port,
                        interval_ns=sink.interval_ns,
                        redundancy=sink.redundancy,
                        modes=sink.modes,
                        capture=capture,
                        shared=shared.fd,
                    )
                )
        except BaseException:
            self.close()
            raise

    def _add(self, job: Job) -> None:
        worker = start_worker(job)
        self._workers.append(worker)
        worker.answer()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        _close(self._workers, self._shared)

    def start(self) -> None:
        """Publish from now on."""
        for shared in self._shared:
            shared.phase = RUN

    def reading(self) -> Reading:
        publisher, *subscribers = self._shared
        for worker in self._workers:
            worker.check()
        if any(shared.faulty for shared in self._shared):
            raise ChappeError("a connection of the load generator broke")
        return Reading(
            time.monotonic(), publisher.sent, tuple(each.received(0) for each in subscribers),
            tuple(each.histogram() for each in subscribers),
        )  # fmt: skip

    def passing(self, sent: int, sink: Sink) -> int:
        """How many of the sent events its filter lets through; streams with filters are stamped nominally."""
        return passing(sent, self.topics, self._first_round, max(1, sink.interval_ns // self.period_ns))

    def cpu_s(self) -> float:
        """CPU of the load generator itself."""
        return sum(worker.cpu_s() for worker in self._workers)

    def account(self) -> Account:
        """End it and count what arrived, and what must have."""
        publisher, *subscribers = self._shared
        publisher.phase = STOP
        said = self._workers[0].answer()
        sent: int = said["sent"]
        self._first_round = said["base_ns"] // self.period_ns
        wanted = [self.passing(sent, sink) for sink in self.sinks]
        deadline = time.monotonic() + DRAIN_S
        with contextlib.suppress(TimeoutExpired):
            while any(each.received(0) < count for each, count in zip(subscribers, wanted, strict=True)):
                if time.monotonic() > deadline:
                    raise TimeoutExpired("the rest did not arrive")
                time.sleep(0.005)
        for shared in self._shared:
            shared.phase = END
        account = Account(sent, wanted)
        for worker in self._workers[1:]:
            (connection,) = worker.answer()["connections"]
            account.received.append(connection["received"])
            account.repeated += connection.get("repeated", 0)
            account.reordered += connection["reordered"]
            account.wrong += connection["wrong"]
        return account


def latencies(before: Reading, after: Reading) -> list[Latencies]:
    """Of each subscriber between two readings."""
    return [
        Latencies.of([now - then for now, then in zip(late, early, strict=True)])
        for early, late in zip(before.histograms, after.histograms, strict=True)
    ]


class Listeners:
    """Subscribers of variables that somebody else publishes; they only count."""

    def __init__(self, sinks: Sequence[Sink], label: str, topics: int = 1) -> None:
        self._shared = [Shared(1) for _ in sinks]
        self._workers: list[Answering] = []
        try:
            for sink, shared in zip(sinks, self._shared, strict=True):
                job = Job(
                    role="subscribe", protocol="status", host=sink.host, port=sink.port, topics=topics, size=24,
                    label=label, interval_ns=sink.interval_ns, shared=shared.fd,
                )  # fmt: skip
                self._workers.append(start_worker(job))
                self._workers[-1].answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Listeners:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def received(self) -> list[int]:
        for worker in self._workers:
            worker.check()
        return [shared.received(0) for shared in self._shared]

    def close(self) -> None:
        _close(self._workers, self._shared)


def _close(workers: list[Answering], shared: list[Shared]) -> None:
    for worker in workers:
        worker.stop()
    while shared:
        shared.pop().close()
