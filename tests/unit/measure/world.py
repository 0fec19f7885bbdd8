"""Links in virtual time for the measurement initiator: each has a round trip, which may change, and may lose probes."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, pairwise

from chappe.measure.initiator import NEVER, Initiator, Reading, Settings

SECOND = 1_000_000_000
MS = 1_000_000
START = 5_000 * SECOND

RoundTrip = Callable[[float], float | None]  # seconds since the start -> ms, None = lost


class World:
    """Runs an initiator over its links; `sent` has (seconds, link) of every probe, `readings` (seconds, reading)."""

    def __init__(self, settings: Settings | None = None, seed: int = 1, awake: bool = True) -> None:
        self.rng = random.Random(seed)
        self.initiator = Initiator(settings or Settings(), random.Random(seed))
        self.now_ns = START
        self.sent: list[tuple[float, int]] = []
        self.readings: list[tuple[float, Reading]] = []
        self._round_trip: dict[int, RoundTrip] = {}
        self._under_way: list[tuple[int, int, int, int, int]] = []
        self._order = count()
        if awake:
            self.initiator.wake(self.now_ns)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return (self.now_ns - START) / SECOND

    def link(self, link: int, round_trip: RoundTrip | float, *, lossy: bool = False) -> None:
        """One more link."""
        if callable(round_trip):
            self._round_trip[link] = round_trip
        else:
            fixed = float(round_trip)
            self._round_trip[link] = lambda at: fixed
        self.initiator.add(link, lossy, self.now_ns)

    def noisy(self, mean_ms: float, share: float) -> RoundTrip:
        """A round trip with Gaussian noise."""
        return lambda at: max(self.rng.gauss(mean_ms, share * mean_ms), 0.01)

    def run(self, seconds: float) -> list[tuple[float, Reading]]:
        """Let time pass; what was read meanwhile."""
        until_ns = self.now_ns + int(seconds * SECOND)
        before = len(self.readings)
        while True:
            arrival_ns = self._under_way[0][0] if self._under_way else NEVER
            next_ns = max(min(self.initiator.next_ns(), arrival_ns), self.now_ns)
            if next_ns > until_ns:
                break
            self.now_ns = next_ns
            while self._under_way and self._under_way[0][0] <= self.now_ns:
                _, _, link, token, rtt_ns = heappop(self._under_way)
                self.initiator.echoed(link, token, rtt_ns, self.now_ns)
            self.readings += [(self.now, reading) for reading in self.initiator.tick(self.now_ns)]
            for link, token in self.initiator.due(self.now_ns):
                self.sent.append((self.now, link))
                rtt_ms = self._round_trip[link](self.now)
                if rtt_ms is not None:
                    rtt_ns = int(rtt_ms * MS)
                    heappush(self._under_way, (self.now_ns + rtt_ns, next(self._order), link, token, rtt_ns))
        self.now_ns = until_ns
        return self.readings[before:]

    def times(self, link: int, since: float = 0.0) -> list[float]:
        """When this link was probed."""
        return [at for at, probed in self.sent if probed == link and at >= since]

    def gaps(self, link: int, since: float = 0.0) -> list[float]:
        """Seconds between successive probes of a link."""
        times = self.times(link, since)
        return [later - earlier for earlier, later in pairwise(times)]
