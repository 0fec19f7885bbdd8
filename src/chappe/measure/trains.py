"""The bandwidth of all links of a node: one estimator a link, and a heap that says which of them has a train."""

from __future__ import annotations

import random
from heapq import heappop, heappush

from chappe.measure.bandwidth import Estimator, Train, TrainSettings
from chappe.measure.probes import NEVER


class Trains:
    """Estimators by link. A tick in which no train is due costs one comparison, however many links there are."""

    def __init__(self, settings: TrainSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._links: dict[int, Estimator] = {}
        self._at: dict[int, int] = {}  # when each link is looked at again
        self._heap: list[tuple[int, int]] = []  # (when, link); stale where `_at` says otherwise

    def __contains__(self, link: int) -> bool:
        return link in self._links

    def add(self, link: int, now_ns: int) -> Estimator:
        """Measure the bandwidth of a link."""
        if link not in self._links:
            self._links[link] = Estimator(self._settings, self._rng)
            self._plan(link, now_ns)
        return self._links[link]

    def remove(self, link: int) -> None:
        """Measure it no more, and forget it."""
        self._links.pop(link, None)
        self._at.pop(link, None)

    def travelled(self, link: int, rtt_ns: int) -> None:
        """The round trip of the link, as probes say."""
        if link in self._links and rtt_ns > 0:
            self._links[link].travelled(rtt_ns)

    def due(self, now_ns: int) -> list[tuple[int, Train]]:
        """The trains to send now, with their links."""
        found: list[tuple[int, Train]] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            at, link = heappop(heap)
            if self._at.get(link) != at:
                continue
            train = self._links[link].next_train(now_ns)
            if train is not None:
                found.append((link, train))
            self._plan(link, max(self._links[link].next_ns(), now_ns + 1))
        return found

    def trained(self, link: int, token: int, half_bytes: int, half_ns: int, now_ns: int) -> float:
        """The other end reports how a train arrived; the estimate by now, in bytes a second, NaN if there is none."""
        if link not in self._links:
            return float("nan")
        estimator = self._links[link]
        estimator.trained(token, half_bytes, half_ns, now_ns)
        self._plan(link, max(estimator.next_ns(), now_ns))
        return estimator.estimate

    def lost(self, link: int, token: int) -> None:
        """The train could not be sent."""
        if link in self._links:
            self._links[link].lost(token)
            self._plan(link, self._links[link].next_ns())

    def under_way(self, link: int) -> bool:
        """Whether a train is on the link: what probes say meanwhile is the train's doing."""
        return link in self._links and self._links[link].under_way

    def estimate(self, link: int) -> float:
        """Bytes a second that the link can carry towards its other end; NaN if not known."""
        return self._links[link].estimate if link in self._links else float("nan")

    def spent_bytes(self) -> int:
        """Of all trains of the links that are measured now."""
        return sum(estimator.spent_bytes for estimator in self._links.values())

    def next_ns(self) -> int:
        """When `due` has something to do at the latest."""
        return self._heap[0][0] if self._heap else NEVER

    def _plan(self, link: int, at_ns: int) -> None:
        self._at[link] = at_ns
        heappush(self._heap, (at_ns, link))
