"""Latency bounds of admitted paths, so that no later load breaks one (GS-082)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

from chappe.status.allocation.resources import Blocked, Growth, Ledger, Router
from chappe.wire.constants import MODES

SPARE = 64


class LatencyGuarantee:
    """One path that is guaranteed to stay below a bound, by mode."""

    __slots__ = ("bounds", "fixed_ns", "kept", "owner", "routers")

    def __init__(self, owner: str, routers: tuple[Router, ...], fixed_ns: int, bounds: Sequence[int]) -> None:
        self.owner = owner
        self.routers = routers
        self.fixed_ns = fixed_ns  # everything but the routers
        self.bounds = tuple(bounds)  # 0: no bound in this mode
        self.kept = False

    def slack(self, delays: Sequence[int]) -> int:
        """What is left in the tightest mode when the routers take so long."""
        return min(
            (bound - self.fixed_ns - delays[mode] for mode, bound in enumerate(self.bounds) if bound),
            default=1 << 62,
        )


class LatencyGuarantees:
    """All guarantees that could be broken at all.

    `_grown` sums what loads have ever added to any router's delay. A guarantee with so much slack at one value is
    safe until it has grown by more than that: only those at the top of the heap are looked at.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._heap: list[tuple[int, int, LatencyGuarantee]] = []
        self._grown = 0
        self._kept = 0
        self._numbers = count()

    def make(self, guarantee: LatencyGuarantee) -> None:
        """Keep it, unless routers at their full capacity could not break it."""
        model = self._ledger.model
        if guarantee.slack([len(guarantee.routers) * (model.router_ns + model.loaded_ns)] * MODES) < 0:
            guarantee.kept = True
            self._kept += 1
            self._push(guarantee, guarantee.slack(self._ledger.delays(guarantee.routers)))

    def drop(self, guarantee: LatencyGuarantee) -> None:
        """It is over."""
        if guarantee.kept:
            guarantee.kept = False
            self._kept -= 1
            if len(self._heap) > 2 * self._kept + SPARE:
                self._heap = [item for item in self._heap if item[2].kept]
                heapq.heapify(self._heap)

    def broken(self, growth: Growth) -> Blocked | None:
        """A guarantee that this load would break."""
        if not self._heap:
            return None
        limit = self._grown + self._added(growth)
        aside: list[tuple[LatencyGuarantee, int]] = []
        found = None
        while self._heap and self._heap[0][0] < limit and found is None:
            _, _, guarantee = heapq.heappop(self._heap)
            if not guarantee.kept:
                continue
            aside.append((guarantee, guarantee.slack(self._ledger.delays(guarantee.routers))))
            touched = [router for router in guarantee.routers if router in growth.routers]
            if touched:
                missing = -guarantee.slack(self._ledger.delays(guarantee.routers, growth))
                if missing > max(0, -aside[-1][1]):
                    found = self._blame(guarantee, touched, missing)
        for guarantee, slack in aside:
            self._push(guarantee, slack)
        return found

    def grew(self, growth: Growth) -> None:
        """That load was added."""
        if self._heap:
            self._grown += self._added(growth)

    def reconsider(self) -> None:
        """Capacities are others now: slack has to be looked at anew."""
        kept = [guarantee for _, _, guarantee in self._heap if guarantee.kept]
        self._heap.clear()
        for guarantee in kept:
            self._push(guarantee, guarantee.slack(self._ledger.delays(guarantee.routers)))

    def _push(self, guarantee: LatencyGuarantee, slack: int) -> None:
        heapq.heappush(self._heap, (self._grown + slack, next(self._numbers), guarantee))

    def _added(self, growth: Growth) -> int:
        loaded = self._ledger.model.loaded_ns
        return sum(loaded * max(added) // router.capacity + 1
                   for router, added in growth.routers.items() if router.capacity)  # fmt: skip

    def _blame(self, guarantee: LatencyGuarantee, touched: list[Router], missing: int) -> Blocked:
        router = max(touched, key=lambda router: max(router.events) / router.capacity if router.capacity else 0.0)
        return Blocked(
            f"router/{router.name}",
            f"load of the router {router.name}: it would delay the admitted subscription {guarantee.owner} by "
            f"{missing / 1e6:.6g} ms more than is guaranteed",
        )
