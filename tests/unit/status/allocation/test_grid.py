"""Admission on the IEEE 118-bus grid, verified by the independent checker."""

from __future__ import annotations

import random

import pandapower.networks
import pytest

from chappe.status.allocation.allocation import Allocator, Plan, Refusal
from chappe.status.topology import Model
from chappe.wire.base import Qos, Variable
from tests.support.allocations import MS, demand
from tests.support.checker import Granted, Network, problems


def build(bytes_per_s: float) -> tuple[Allocator, Network]:
    case = pandapower.networks.case118()
    allocator, network, chance = Allocator(Model()), Network(), random.Random(118)
    for bus in case.bus.index:
        allocator.add_router(f"b{bus}", 100_000)
        network.router(f"b{bus}", 100_000)
    lines = zip(case.line.from_bus, case.line.to_bus, strict=True)
    transformers = zip(case.trafo.hv_bus, case.trafo.lv_bus, strict=True)
    for a, b in sorted({tuple(sorted(ends)) for ends in (*lines, *transformers)}):
        latency_ns = chance.randrange(200_000, 3_000_000)
        allocator.add_channel(f"b{a}", f"b{b}", bytes_per_s, latency_ns)
        network.channel(f"b{a}", f"b{b}", bytes_per_s, latency_ns)
    return allocator, network


@pytest.mark.spec("GS-081", "GS-082", "GS-084", "GS-085")
@pytest.mark.parametrize(("bytes_per_s", "bound_ms"), [(1e8, 0), (1e8, 20), (6_000, 40)])
def test_granted_paths_hold_and_refusals_say_why(bytes_per_s: float, bound_ms: int) -> None:
    allocator, network = build(bytes_per_s)
    chance = random.Random(3)
    published, granted, reasons = [], {}, set()
    for number in range(1, 60):
        variable = Variable(number, "p", f"v{number}", "float", chance.choice((10, 30, 50)), 10**9, 3, 0)
        published.append((f"b{chance.randrange(118)}", variable))
        assert allocator.publish(*published[-1]) is None
    for turn in range(150):
        source, variable = chance.choice(published)
        target = f"b{chance.randrange(118)}"
        qos = Qos(interval_ns=chance.choice((0, 100, 300)) * MS, latency_ns=bound_ms * MS, redundancy=2)
        answer = allocator.plan(demand(variable, source, target, qos))
        possible = source == target or network.disjoint_paths(source, target, most=2) == 2
        if isinstance(answer, Refusal):
            reasons.add(answer.reason.partition(":")[0].partition(" of the ")[0])
            assert possible != answer.reason.startswith("redundancy: there are no two disjoint paths")
        else:
            assert possible
            assert allocator.reserve(str(turn), variable, answer.routes, answer.grants) is None
            granted[str(turn)] = Granted(variable, source, target, answer.routes, answer.grants)
    assert problems(network, granted, published) == []
    assert 20 < len(granted) < 150
    expected = (
        {"redundancy"} | ({"latency"} if bound_ms == 20 else set()) | ({"bandwidth"} if bytes_per_s < 1e8 else set())
    )
    assert expected <= reasons
    for key in granted:
        assert allocator.release(key)
    for _, variable in published:
        allocator.unpublish(variable.variable_id)
    assert not any(any(row["load"]) for row in allocator.loads())


def test_paths_are_found_again_after_the_grid_has_changed() -> None:
    allocator, network = build(1e8)
    variable = Variable(1, "p", "v", "float", 30, 10**9, 3, 0)
    wanted = demand(variable, "b48", "b99", Qos(redundancy=2))
    first = allocator.plan(wanted)
    assert isinstance(first, Plan)
    lost = first.routes[0].routers[1]
    allocator.set_router_up(lost, False)
    network.graph.remove_node(lost)
    second = allocator.plan(wanted)
    assert isinstance(second, Plan) == (network.disjoint_paths("b48", "b99", most=2) == 2)
    assert isinstance(second, Plan)
    assert not any(lost in route.routers for route in second.routes)
    allocator.set_router_up(lost, True)
    assert allocator.plan(wanted) == first
