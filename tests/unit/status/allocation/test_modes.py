"""Admission by mode, and how requirements are relaxed."""

from __future__ import annotations

import pytest

from chappe.status.allocation.allocation import Demand, Plan, Route
from chappe.wire.base import Grant, Qos
from tests.support.allocations import MS, admit, demand, loads, network, refused, variable

DIAMOND = ("A-B", "B-D", "A-C", "C-D")
EVERY_EVENT = (Grant(10 * MS, 1, 0, 1, 3),) * 16


def by_mode(**wanted: Qos) -> tuple[Qos | None, ...]:
    return tuple(wanted.get(f"m{mode}") for mode in range(16))


def test_modes_have_their_own_quality_and_share_their_paths() -> None:
    allocator = network(*DIAMOND)
    qos = by_mode(m1=Qos(interval_ns=20 * MS, redundancy=2), m2=Qos(interval_ns=40 * MS))
    plan = allocator.plan(Demand(variable(), "A", "D", qos))
    assert isinstance(plan, Plan)
    assert [grant and (grant.every, grant.redundancy) for grant in plan.grants[:4]] == [None, (2, 2), (4, 1), None]
    both, single = sorted(plan.routes, key=lambda route: -route.modes)
    assert (both.modes, single.modes) == (0b110, 0b010)
    assert allocator.reserve("k", variable(), plan.routes, plan.grants) is None
    assert [loads(allocator, mode).get("router/D") for mode in range(4)] == [None, 100.0, 25.0, None]


@pytest.mark.spec("GS-081")
def test_a_capacity_counts_in_each_mode_by_itself() -> None:
    allocator = network("A-B", bytes_per_s=3_000)
    admit(allocator, "1", demand(variable(1), "A", "B", modes=0b0011))
    admit(allocator, "2", demand(variable(2), "A", "B", modes=0b1100))
    answer = refused(allocator, demand(variable(3), "A", "B", modes=0b0110))
    assert answer.obstacle == "channel/A/B"
    assert "mode 1" in answer.reason


@pytest.mark.spec("GS-114")
def test_a_router_must_bear_the_larger_of_two_modes_on_each_channel_while_they_change() -> None:
    allocator = network("A-C", "B-C", events_per_s=150)
    admit(allocator, "1", demand(variable(1), "A", "C", modes=0b01))
    answer = refused(allocator, demand(variable(2), "B", "C", modes=0b10))
    assert answer.obstacle == "router/C"
    assert "while modes 0 and 1 change" in answer.reason
    admit(allocator, "2", demand(variable(2, rate=50), "B", "C", modes=0b10))
    admit(allocator, "3", demand(variable(3), "A", "C", modes=0b10))  # the same channel, the other mode


@pytest.mark.spec("GS-114")
def test_groups_of_modes_that_fit_alone_are_checked_together() -> None:
    allocator = network("A-B", "A-C", "B-D", "C-D", events_per_s=150)
    fast, slow = Qos(interval_ns=10 * MS), Qos(interval_ns=11 * MS)
    admit(allocator, "full", demand(variable(7), "A", "B", modes=0b01))  # in mode 0 the way by B is taken
    plan = allocator.plan(Demand(variable(), "A", "D", by_mode(m0=fast, m1=slow)))
    assert isinstance(plan, Plan)
    assert allocator.reserve("k", variable(), plan.routes, plan.grants) is None
    assert {route.routers for route in plan.routes} == {("A", "C", "D")}


def test_modes_with_different_loads_get_different_paths_if_no_path_serves_all() -> None:
    allocator = network(*DIAMOND, bytes_per_s=3_000, events_per_s=10_000)
    assert allocator.reserve("x", variable(8), [Route(("A", "B"), 0, 0b01)], EVERY_EVENT) is None
    assert allocator.reserve("y", variable(9), [Route(("C", "D"), 0, 0b10)], EVERY_EVENT) is None
    plan = admit(allocator, "k", demand(variable(1), "A", "D", modes=0b11))
    assert {(route.routers, route.modes) for route in plan.routes} == {(("A", "C", "D"), 0b01), (("A", "B", "D"), 0b10)}


@pytest.mark.spec("GS-042")
def test_redundancy_gives_way_first_then_latency_then_interval() -> None:
    allocator = network("A-B:1", "A-C:1", "C-B:3", bytes_per_s=3_000)
    wish = Qos(
        interval_ns=10 * MS,
        latency_ns=2 * MS,
        redundancy=2,
        worst_redundancy=1,
        worst_latency_ns=6 * MS,
        worst_interval_ns=40 * MS,
    )
    plan = admit(allocator, "1", demand(variable(1), "A", "B", wish))
    grant = plan.grants[0]
    assert grant is not None
    assert (grant.redundancy, grant.bound_ns, grant.every) == (1, 2 * MS, 1)
    second = admit(allocator, "2", demand(variable(2), "A", "B", wish)).grants[0]  # the direct channel is full now
    assert second is not None
    assert (second.redundancy, second.bound_ns, second.every) == (1, 6 * MS, 1)
    third = admit(allocator, "3", demand(variable(3), "A", "B", wish)).grants[0]
    assert third is not None
    assert (third.redundancy, third.bound_ns, third.every) == (1, 2 * MS, 4)
    fourth = admit(allocator, "4", demand(variable(4), "A", "B", wish)).grants[0]
    assert fourth is not None
    assert (fourth.redundancy, fourth.bound_ns, fourth.every) == (1, 6 * MS, 4)
    answer = refused(allocator, demand(variable(5), "A", "B", wish))
    assert "bandwidth" in answer.reason


def test_nothing_is_given_below_the_worst_that_is_accepted() -> None:
    allocator = network("A-B:3")
    wish = Qos(interval_ns=10 * MS, latency_ns=2 * MS, worst_latency_ns=3 * MS)
    answer = refused(allocator, demand(variable(), "A", "B", wish))
    assert answer.reason == "latency: a path from A to B within 3 ms cannot be had, the best takes 3.27 ms"


def test_a_refusal_in_one_mode_refuses_all_and_says_what_each_could_have() -> None:
    allocator = network(*DIAMOND)
    qos = by_mode(m0=Qos(redundancy=3), m5=Qos(interval_ns=50 * MS))
    answer = refused(allocator, Demand(variable(), "A", "D", qos))
    assert "3 are wanted" in answer.reason
    assert [grant and (grant.redundancy, grant.every) for grant in answer.best[:6]] == [
        (2, 1),
        None,
        None,
        None,
        None,
        (1, 5),
    ]
