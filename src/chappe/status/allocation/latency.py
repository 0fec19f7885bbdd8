"""How long an event takes by the model of admission (GS-084, GS-174): clients, routers with their load, channels."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.status.topology import Model

MICROSECOND_NS = 1_000


class LatencyModel:
    """The constants of `[latency_model]` in whole nanoseconds."""

    __slots__ = ("loaded_ns", "reference_ns", "router_ns")

    def __init__(self, model: Model) -> None:
        self.reference_ns = round(model.reference_us * MICROSECOND_NS)
        self.router_ns = round(model.router_us * MICROSECOND_NS)
        self.loaded_ns = round(model.loaded_us * MICROSECOND_NS)

    def router(self, load: int, capacity: int) -> int:
        """Nanoseconds in a router that receives `load` of `capacity`; 0 is a capacity without limit."""
        if capacity == 0:
            return self.router_ns
        return self.router_ns + self.loaded_ns * min(load, capacity) // capacity

    def path(self, routers: Iterable[tuple[int, int]], channels_ns: Iterable[int]) -> int:
        """Nanoseconds from publisher to subscriber over routers of (load, capacity) and channels between them."""
        return self.reference_ns + sum(self.router(load, capacity) for load, capacity in routers) + sum(channels_ns)
