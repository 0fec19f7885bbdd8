"""A little model of a link for trains: a bottleneck with a queue, a delay, TCP that starts slowly, noisy stamps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SECOND = 1_000_000_000
SEGMENT = 1448


@dataclass
class Pipe:
    """One direction of a link; `rate` may be changed while it is used."""

    rate: float  # bytes/s
    rtt_s: float
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    slow_start: bool = True
    buffer_bytes: int = 4_000_000  # what TCP lets be under way at most
    noise_s: float = 0.0  # mean delay of a stamp
    cross: float = 0.0  # share of the rate that others use
    bucket_bytes: int = 0  # passes at once after a rest, as by a token bucket
    batch_s: float = 0.00005  # arrivals within this are read together
    free_s: float = 0.0  # when the bottleneck has sent all it was given
    window: float = 10.0
    last_s: float = -1e9

    def send(self, size: int, now_s: float) -> tuple[int, int, float]:
        """Bytes and ns of the second half of a train, and when the answer is here."""
        if now_s - self.last_s > max(0.2, 2 * self.rtt_s) or not self.slow_start:
            self.window = 10.0 if self.slow_start else self.buffer_bytes / SEGMENT
        arrivals, acked_s = self._transmit(size, now_s)
        self.last_s = acked_s
        stamps = self._stamps(arrivals)
        middle_s, middle = next((at, count) for at, count in stamps if 2 * count >= size)
        return size - middle, int((stamps[-1][0] - middle_s) * SECOND), stamps[-1][0] + self.rtt_s / 2

    def _transmit(self, size: int, now_s: float) -> tuple[list[tuple[float, int]], float]:
        """(arrival, bytes) of each segment, and when the last was acknowledged."""
        left, clock, credit = size, now_s, float(self.bucket_bytes)
        acks: list[float] = []  # of segments under way, in order
        arrivals: list[tuple[float, int]] = []
        head = 0
        while left > 0:
            under_way = len(acks) - head
            if under_way >= min(int(self.window), self.buffer_bytes // SEGMENT):
                clock = max(clock, acks[head])
                head += 1
                if self.slow_start:
                    self.window += 1
                continue
            length = min(SEGMENT, left)
            left -= length
            at_bottleneck = max(clock, self.free_s)
            taken_s = length / self.rate
            if credit >= length:
                credit -= length
                taken_s = 0.0
            if self.cross and self.rng.random() < self.cross:  # somebody else's segments between ours
                taken_s += self.rng.expovariate(1.0) * SEGMENT / self.rate / (1 - self.cross)
            self.free_s = at_bottleneck + taken_s
            arrived_s = self.free_s + self.rtt_s / 2
            arrivals.append((arrived_s, length))
            acks.append(arrived_s + self.rtt_s / 2)
            clock += length / 1.25e9
        if self.slow_start:
            self.window += len(acks) - head
        return arrivals, acks[-1]

    def _stamps(self, arrivals: list[tuple[float, int]]) -> list[tuple[float, int]]:
        """(stamp, bytes so far) of what the other end reads at once."""
        stamps: list[tuple[float, int]] = []
        count, until_s = 0, -1.0
        for at, length in arrivals:
            count += length
            if at <= until_s:
                stamps[-1] = (stamps[-1][0], count)
                continue
            until_s = at + self.batch_s + (self.rng.expovariate(1 / self.noise_s) if self.noise_s else 0.0)
            stamps.append((until_s, count))
        return stamps


def run(
    estimator: object, pipe: Pipe, seconds: float, start_s: float = 100.0, probed: bool = True
) -> list[tuple[float, float]]:
    """Let an estimator use the pipe; (time since the start, estimate) after each answer."""
    from chappe.measure.bandwidth import Estimator

    assert isinstance(estimator, Estimator)
    if probed:
        estimator.travelled(pipe.rtt_s * SECOND)
    found: list[tuple[float, float]] = []
    now_s = start_s
    while now_s < start_s + seconds:
        train = estimator.next_train(int(now_s * SECOND))
        if train is None:
            now_s = max(now_s + 1e-4, min(estimator.next_ns() / SECOND, start_s + seconds))
            continue
        half_bytes, half_ns, answered_s = pipe.send(train.bytes, now_s)
        now_s = answered_s
        if now_s < start_s + seconds:
            estimator.trained(train.token, half_bytes, half_ns, int(now_s * SECOND))
            found.append((now_s - start_s, estimator.estimate))
    return found
