"""Any sequence of demands and removals on a small network: what is granted holds, what is refused cannot be had."""

from __future__ import annotations

from itertools import combinations

import networkx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chappe.status.allocation.allocation import Allocator, Demand, Plan, Refusal, Route
from chappe.status.allocation.rates import every_of, interval_of
from chappe.status.topology import Model
from chappe.wire.base import Grant, Qos, Variable
from tests.support.checker import Granted, Network, problems

Channels = dict[tuple[str, str], tuple[float, int, int]]
MODEL = Model()


@st.composite
def channels(draw: st.DrawFn) -> Channels:
    names = "ABCDEF"[: draw(st.integers(3, 6))]
    pairs = list(combinations(names, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=2, unique=True))
    return {
        pair: (
            draw(st.sampled_from([500.0, 1_000.0, 2_400.0, 1e6])),
            draw(st.integers(0, 3)) * 1_000_000,
            draw(st.sampled_from([0, 0, 2])),
        )
        for pair in chosen
    }


capacities = st.lists(st.sampled_from([60.0, 100.0, 200.0, 1e4]), min_size=6, max_size=6)
intervals = st.sampled_from([0, 200_000_000, 300_000_000, 400_000_000])
bounds = st.sampled_from([0, 1_500_000, 2_420_000, 4_000_000, 7_000_000])


@st.composite
def qualities(draw: st.DrawFn) -> Qos:
    bound, redundancy = draw(bounds), draw(st.integers(1, 3))
    return Qos(
        interval_ns=draw(intervals), latency_ns=bound, redundancy=redundancy, security=draw(st.sampled_from([0, 0, 2])),
        worst_latency_ns=draw(st.sampled_from([0, 9_000_000])) if bound else 0,
        worst_redundancy=draw(st.sampled_from([0, 1])), worst_interval_ns=draw(st.sampled_from([0, 800_000_000])),
    )  # fmt: skip


@st.composite
def modes(draw: st.DrawFn) -> tuple[Qos | None, ...]:
    """One quality for all modes, or up to three that share them, or none in some."""
    kinds = draw(st.lists(qualities() | st.none(), min_size=1, max_size=3))
    assume(any(kind is not None for kind in kinds))
    found = (
        tuple(kinds[draw(st.integers(0, len(kinds) - 1))] for _ in range(16)) if len(kinds) > 1 else (kinds[0],) * 16
    )
    assume(any(kind is not None for kind in found))
    return found


VARIABLES = [
    Variable(1, "p", "v", "float", 10, 10**9, 3, 0),
    Variable(2, "p", "w", "float", 20, 10**9, 3, 1),
    Variable(3, "p", "alert", "bool", 0, 1, 0, 0, minimum_ns=50_000_000),
]


def build(links: Channels, events: list[float]) -> tuple[Allocator, Network]:
    allocator, network = Allocator(MODEL), Network()
    for name, capacity in zip("ABCDEF", events, strict=True):
        allocator.add_router(name, capacity)
        network.router(name, capacity)
    for (a, b), terms in links.items():
        allocator.add_channel(a, b, *terms)
        network.channel(a, b, *terms)
    return allocator, network


def security_of(qos: tuple[Qos | None, ...]) -> list[int]:
    return [0 if wanted is None else wanted.security for wanted in qos]


@pytest.mark.spec("GS-081", "GS-082", "GS-084", "GS-085", "GS-114")
@settings(max_examples=50, deadline=None)
@given(channels(), capacities, st.data())
def test_what_is_granted_holds_and_what_is_released_is_gone(
    links: Channels, events: list[float], data: st.DataObject
) -> None:
    allocator, network = build(links, events)
    edges, published, granted = {}, [], {}
    for variable in VARIABLES:
        edge = data.draw(st.sampled_from("ABC"))
        if allocator.publish(edge, variable) is None:
            edges[variable.variable_id] = edge
            published.append((edge, variable))
    variables = [variable for variable in VARIABLES if variable.variable_id in edges]
    assume(variables)
    for turn in range(data.draw(st.integers(1, 8))):
        if granted and data.draw(st.integers(0, 3)) == 0:
            key = data.draw(st.sampled_from(sorted(granted)))
            assert allocator.release(key)
            del granted[key]
            continue
        variable, target, qos = (
            data.draw(st.sampled_from(variables)),
            data.draw(st.sampled_from("ABCDEF")),
            data.draw(modes()),
        )
        demand = Demand(variable, edges[variable.variable_id], target, qos)
        before = allocator.loads()
        plan = allocator.plan(demand)
        assert allocator.loads() == before
        if isinstance(plan, Plan):
            key = f"k{turn}"
            assert allocator.reserve(key, variable, plan.routes, plan.grants) is None
            granted[key] = Granted(variable, demand.source, target, plan.routes, plan.grants, security_of(qos))
            _keeps(demand, plan)
        assert problems(network, granted, published) == []
    for key in granted:
        assert allocator.release(key)
    for _, variable in published:
        allocator.unpublish(variable.variable_id)
    assert not any(any(row["load"]) for row in allocator.loads())


def _keeps(demand: Demand, plan: Plan) -> None:
    """Every grant is between what was desired and the worst that was accepted."""
    for wanted, grant in zip(demand.qos, plan.grants, strict=True):
        assert (wanted is None) == (grant is None)
        if wanted is None or grant is None:
            continue
        least = wanted.worst_redundancy or wanted.redundancy
        assert least <= grant.redundancy <= wanted.redundancy
        assert every_of(demand.variable, wanted.interval_ns) <= grant.every
        assert grant.every <= every_of(demand.variable, max(wanted.interval_ns, wanted.worst_interval_ns))
        assert grant.bound_ns in (wanted.latency_ns, wanted.worst_latency_ns)
        assert not wanted.latency_ns or grant.latency_ns <= max(wanted.latency_ns, wanted.worst_latency_ns)


@pytest.mark.spec("GS-085")
@settings(max_examples=50, deadline=None)
@given(channels(), capacities, st.data())
def test_a_refusal_is_right(links: Channels, events: list[float], data: st.DataObject) -> None:
    """No choice of simple disjoint paths would have passed the independent checker."""
    allocator, network = build(links, events)
    published = [("A", variable) for variable in VARIABLES[:2] if allocator.publish("A", variable) is None]
    granted = {}
    assume(published)
    for turn in range(6):
        variable = data.draw(st.sampled_from(published))[1]
        target, wanted = data.draw(st.sampled_from("BCD")), data.draw(qualities())
        demand = Demand(variable, "A", target, (_strict(wanted),) * 16)
        plan = allocator.plan(demand)
        if isinstance(plan, Plan):
            assert allocator.reserve(str(turn), variable, plan.routes, plan.grants) is None
            granted[str(turn)] = Granted(variable, "A", target, plan.routes, plan.grants, security_of(demand.qos))
        else:
            assert plan.reason
            assert _possible(network, granted, published, demand) is None


def _strict(qos: Qos) -> Qos:
    return Qos(qos.interval_ns, qos.latency_ns, qos.redundancy, qos.priority, qos.security)


def _possible(network: Network, granted: dict[str, Granted], published: list[tuple[str, Variable]],
              demand: Demand) -> list[Route] | None:  # fmt: skip
    qos = demand.qos[0]
    assert qos is not None
    usable = networkx.DiGraph((a, b) for a, b, level in network.graph.edges(data="security") if level >= qos.security)
    if demand.source not in usable or demand.target not in usable:
        return None
    every = every_of(demand.variable, qos.interval_ns)
    grant = Grant(interval_of(demand.variable, every), every, 0, qos.redundancy, qos.priority, qos.latency_ns)
    paths = list(networkx.all_simple_paths(usable, demand.source, demand.target))
    for chosen in combinations(paths, qos.redundancy):
        if any(set(one[1:-1]) & set(two[1:-1]) for one, two in combinations(chosen, 2)):
            continue
        routes = [Route(tuple(path), number, 0xFFFF) for number, path in enumerate(chosen)]
        one = Granted(demand.variable, demand.source, demand.target, routes, (grant,) * 16, security_of(demand.qos))
        if not problems(network, granted | {"new": one}, published):
            return routes
    return None


@settings(max_examples=50, deadline=None)
@given(channels(), capacities, st.data())
def test_the_best_of_a_refusal_can_be_had(links: Channels, events: list[float], data: st.DataObject) -> None:
    allocator, _ = build(links, events)
    variable = VARIABLES[1]
    assume(allocator.publish("A", variable) is None)
    wanted = data.draw(qualities())
    answer = allocator.plan(Demand(variable, "A", "B", (wanted,) * 16))
    assume(isinstance(answer, Refusal))
    assert isinstance(answer, Refusal)
    best = answer.best[0]
    if best is not None:
        asked = Qos(best.interval_ns, best.bound_ns, best.redundancy, best.priority, wanted.security)
        again = allocator.plan(Demand(variable, "A", "B", (asked,) * 16))
        assert isinstance(again, Plan)
        assert again.grants[0] == best
