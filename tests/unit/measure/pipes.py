"""A little model of a link for trains: a bottleneck with a queue, a delay, TCP that starts slowly, noisy stamps."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate

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
    queue_s: float = math.inf  # what the bottleneck can hold, as time; what comes in addition is lost and sent again
    free_s: float = 0.0  # when the bottleneck has sent all it was given
    window: float = 10.0
    threshold: float = math.inf  # segments above which the window grows slowly
    last_s: float = -1e9

    def send(self, size: int, now_s: float) -> tuple[int, int, float]:
        """Bytes and ns of the second half of a train, and when the answer is here."""
        if now_s - self.last_s > max(0.2, 2 * self.rtt_s) or not self.slow_start:
            self.threshold = max(self.threshold, 0.75 * self.window)
            self.window = 10.0 if self.slow_start else self.buffer_bytes / SEGMENT
        arrivals, acked_s = self._transmit(size, now_s)
        self.last_s = acked_s
        stamps = self._stamps(arrivals)
        middle_s, middle = next((at, count) for at, count in stamps if 2 * count >= size)
        return size - middle, int((stamps[-1][0] - middle_s) * SECOND), stamps[-1][0] + self.rtt_s / 2

    def _transmit(self, size: int, now_s: float) -> tuple[list[tuple[float, int]], float]:
        """(arrival in order, bytes) of each segment, and when the last was acknowledged.

        TCP with selective acknowledgements: a segment is lost if three that were sent after it are acknowledged, or if
        nothing comes for a while; the window shrinks once for all that was lost in one round trip.
        """
        count = -(-size // SEGMENT)
        arrived, acks = [math.inf] * count, [0.0] * 0
        order: deque[tuple[int, int]] = deque()  # (send number, segment) under way, oldest first
        heap: list[tuple[float, int, int]] = []  # acknowledgements to come: when, send number, segment
        again: deque[int] = deque()
        acked, dropped = [False] * count, set[int]()
        clock, credit, fresh, sends, recover = now_s, float(self.bucket_bytes), 0, 0, -1
        missing = count
        while missing:
            limit = min(int(self.window), self.buffer_bytes // SEGMENT)
            if len(order) < limit and (again or fresh < count):
                segment = again.popleft() if again else fresh
                fresh += segment == fresh
                sends += 1
                order.append((sends, segment))
                length = min(SEGMENT, size - segment * SEGMENT)
                clock += length / 1.25e9
                if self.free_s - clock > self.queue_s:
                    dropped.add(sends)
                    continue
                taken_s, credit = (0.0, credit - length) if credit >= length else (length / self.rate, credit)
                if self.cross and self.rng.random() < self.cross:  # somebody else's segments between ours
                    taken_s += self.rng.expovariate(1.0) * SEGMENT / self.rate / (1 - self.cross)
                self.free_s = max(clock, self.free_s) + taken_s
                arrived[segment] = min(arrived[segment], self.free_s + self.rtt_s / 2)
                heappush(heap, (self.free_s + self.rtt_s, sends, segment))
                continue
            if heap:
                at, number, segment = heappop(heap)
                clock = max(clock, at)
                missing -= not acked[segment]
                acked[segment] = True
                acks.append(clock)
                self._acknowledged()
                order.remove((number, segment))
            else:  # only lost ones are under way, and nothing will say so
                clock += max(0.2, 2 * self.rtt_s)
                number, self.window = sends + 3, 10.0
            while order and order[0][0] in dropped and order[0][0] + 3 <= number:
                lost_number, segment = order.popleft()
                again.append(segment)
                if lost_number > recover:
                    self.threshold = self.window = max(0.7 * self.window, 2.0)
                    recover = sends
        in_order = list(accumulate(arrived, max))
        return [(at, min(SEGMENT, size - k * SEGMENT)) for k, at in enumerate(in_order)], acks[-1]

    def _acknowledged(self) -> None:
        if self.slow_start:
            self.window += 1 if self.window < self.threshold else 1 / self.window

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
