"""Small networks for tests of admission."""

from __future__ import annotations

from chappe.status.allocation.allocation import Allocator, Demand, Plan, Refusal
from chappe.status.topology import Model
from chappe.wire.base import Qos, Variable

MS = 1_000_000


def variable(number: int = 1, rate: int = 100, options: int = 0) -> Variable:
    """One that is published `rate` times a second."""
    return Variable(number, "p", f"v{number}", "float", rate, 10**9, 3, options)


def network(
    *channels: str, events_per_s: float = 1_000, bytes_per_s: float = 1e6, model: Model | None = None
) -> Allocator:
    """Channels such as `A-B` (1 ms) or `A-B:5` (5 ms) between routers that are made as they are named."""
    allocator = Allocator(model or Model())
    for channel in channels:
        ends, _, latency = channel.partition(":")
        a, b = ends.split("-")
        for name in (a, b):
            allocator.add_router(name, events_per_s)
        allocator.add_channel(a, b, bytes_per_s, round(float(latency or 1) * MS))
    return allocator


def demand(one: Variable, source: str, target: str, qos: Qos = Qos(), modes: int = 0xFFFF) -> Demand:  # noqa: B008
    """The same quality in all modes of a mask."""
    return Demand(one, source, target, tuple(qos if modes >> mode & 1 else None for mode in range(16)))


def admit(allocator: Allocator, key: str, wanted: Demand) -> Plan:
    """Plan and reserve; it must be granted."""
    plan = allocator.plan(wanted)
    assert isinstance(plan, Plan), plan
    assert allocator.reserve(key, wanted.variable, plan.routes, plan.grants) is None
    return plan


def refused(allocator: Allocator, wanted: Demand, avoid: frozenset[str] = frozenset()) -> Refusal:
    """The refusal of a plan; it must be refused."""
    answer = allocator.plan(wanted, avoid)
    assert isinstance(answer, Refusal), answer
    return answer


def loads(allocator: Allocator, mode: int = 0) -> dict[str, float]:
    """Loads that are not zero, in one mode."""
    return {row["resource"]: row["load"][mode] for row in allocator.loads() if row["load"][mode]}
