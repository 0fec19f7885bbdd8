"""Admission: who gets which paths, who is refused and why."""

from __future__ import annotations

import pytest

from chappe.status.allocation.allocation import Demand, Plan, Route
from chappe.status.topology import Model
from chappe.wire.base import Grant, Qos, Variable
from tests.support.allocations import MS, admit, demand, loads, network, refused, variable

DIAMOND = ("A-B", "B-D", "A-C", "C-D")


@pytest.mark.spec("GS-081")
def test_a_path_loads_its_channels_in_bytes_and_its_routers_in_events() -> None:
    allocator = network("A-B", "B-C")
    assert allocator.publish("A", variable(options=1)) is None
    plan = admit(allocator, "k", demand(variable(options=1), "A", "C", Qos(interval_ns=20 * MS)))
    assert plan.routes == (Route(("A", "B", "C"), 0, 0xFFFF),)
    assert loads(allocator) == {
        "router/A": 100.0,
        "router/B": 50.0,
        "router/C": 50.0,
        "channel/A/B": 2400.0,
        "channel/B/C": 2400.0,
    }
    assert allocator.used("B", "A")
    assert allocator.release("k")
    assert not allocator.release("k")
    assert not allocator.used("A", "B")
    allocator.unpublish(1)
    assert loads(allocator) == {}


@pytest.mark.spec("GS-061")
def test_the_grant_says_what_was_rounded_and_how_long_it_takes() -> None:
    allocator = network("A-B:2")
    plan = admit(allocator, "k", demand(variable(), "A", "B", Qos(interval_ns=35 * MS, latency_ns=5 * MS, priority=1)))
    grant = plan.grants[0]
    assert grant is not None
    assert (grant.interval_ns, grant.every, grant.redundancy, grant.priority) == (30 * MS, 3, 1, 1)
    assert grant.latency_ns == 150_000 + 2 * 60_000 + 2 * MS + 200_000 * 100 // 3 // 1000
    assert grant.bound_ns == 5 * MS


@pytest.mark.spec("GS-081")
def test_a_publication_loads_its_edge_and_is_refused_if_it_does_not_fit() -> None:
    allocator = network("A-B", events_per_s=250)
    assert allocator.publish("A", variable(1)) is None
    assert allocator.publish("A", variable(2)) is None
    answer = allocator.publish("A", variable(3))
    assert answer is not None
    assert (answer.obstacle, answer.code) == ("router/A", "capacity")
    assert "100 more events/s" in answer.reason
    assert "50 of 250 are free" in answer.reason
    assert loads(allocator) == {"router/A": 200.0}
    allocator.unpublish(1)
    assert allocator.publish("A", variable(3)) is None
    assert allocator.publish("A", variable(3, rate=150)) is None  # instead of what it had
    assert loads(allocator) == {"router/A": 250.0}
    assert allocator.publish("A", variable(3, rate=151)) is not None
    assert loads(allocator) == {"router/A": 250.0}


@pytest.mark.spec("GS-085")
def test_two_disjoint_paths_or_a_refusal_that_says_how_many_there_are() -> None:
    allocator = network(*DIAMOND)
    plan = admit(allocator, "k", demand(variable(), "A", "D", Qos(redundancy=2)))
    assert {route.routers for route in plan.routes} == {("A", "B", "D"), ("A", "C", "D")}
    assert [route.redundant for route in plan.routes] == [0, 1]
    answer = refused(allocator, demand(variable(), "A", "D", Qos(redundancy=3)))
    assert answer.reason == "redundancy: there are only 2 disjoint paths from A to D, 3 are wanted"
    assert answer.obstacle == ""
    assert answer.best[0] is not None
    assert answer.best[0].redundancy == 2
    allocator.add_router("E", 1000)
    assert "no path leads" in refused(allocator, demand(variable(), "A", "E")).reason


@pytest.mark.spec("GS-084", "GS-085")
def test_each_of_the_paths_is_within_the_bound_even_if_another_pair_is_shorter_in_total() -> None:
    # Least total: A-B-C-D (3 ms) with A-E-D (13 ms); each below 11 ms only A-B-F-D (9 ms) with A-G-C-D (9 ms).
    allocator = network("A-B", "B-C", "C-D", "A-E:6", "E-D:7", "B-F:4", "F-D:4", "A-G:4", "G-C:4")
    wide = allocator.plan(demand(variable(), "A", "D", Qos(redundancy=2, latency_ns=20 * MS)))
    assert isinstance(wide, Plan)
    assert ("A", "E", "D") in {route.routers for route in wide.routes}
    plan = admit(allocator, "k", demand(variable(), "A", "D", Qos(redundancy=2, latency_ns=11 * MS)))
    assert {route.routers for route in plan.routes} == {("A", "B", "F", "D"), ("A", "G", "C", "D")}
    assert plan.grants[0] is not None
    assert 9 * MS < plan.grants[0].latency_ns <= 11 * MS
    answer = refused(allocator, demand(variable(), "A", "D", Qos(redundancy=2, latency_ns=4 * MS)))
    best = "latency: 2 disjoint paths from A to D within 4 ms cannot be had, the best takes 9.39 ms"
    assert answer.reason.startswith(best)


@pytest.mark.spec("GS-084")
def test_a_bound_that_cannot_be_met_is_refused_with_what_can() -> None:
    allocator = network("A-B:3", "B-C:3")
    answer = refused(allocator, demand(variable(), "A", "C", Qos(latency_ns=5 * MS)))
    assert answer.reason == "latency: a path from A to C within 5 ms cannot be had, the best takes 6.33 ms"
    best = answer.best[0]
    assert best is not None
    assert best.latency_ns > 6 * MS
    assert best.bound_ns == 0


@pytest.mark.spec("GS-081")
def test_a_full_channel_is_gone_round_and_named_when_there_is_no_other_way() -> None:
    allocator = network("A-B", "A-C", "C-B", bytes_per_s=3_000)
    assert admit(allocator, "1", demand(variable(1), "A", "B")).routes[0].routers == ("A", "B")
    assert admit(allocator, "2", demand(variable(2), "A", "B")).routes[0].routers == ("A", "C", "B")
    answer = refused(allocator, demand(variable(3), "A", "B"))
    assert answer.obstacle in ("channel/A/B", "channel/A/C", "channel/C/B")
    assert "needs 2400 more bytes/s in mode 0, 600 of 3000 are free" in answer.reason
    best = answer.best[0]
    assert best is not None
    assert best.every == 4
    again = refused(allocator, demand(variable(1), "A", "C"), frozenset({"channel/A/C", "channel/B/C"}))
    assert "no path leads from A to C without channel/A/C, channel/B/C" in again.reason


@pytest.mark.spec("GS-081")
def test_a_full_router_is_named() -> None:
    allocator = network("A-B", "B-C", events_per_s=150)
    admit(allocator, "1", demand(variable(1), "A", "C"))
    answer = refused(allocator, demand(variable(2), "A", "C"))
    assert answer.obstacle == "router/B"
    assert answer.reason.startswith("load of the router B: it would receive 100 more events/s in mode 0")


def test_a_target_with_room_for_one_more_copy_is_entered_where_the_stream_enters_already() -> None:
    allocator = network(*DIAMOND, "A-E", "E-D")
    allocator.add_router("D", 250)
    admit(allocator, "1", demand(variable(), "A", "D"))
    taken = allocator.reserved("1")[0].routers
    plan = admit(allocator, "2", demand(variable(), "A", "D", Qos(redundancy=2)))
    assert taken in {route.routers for route in plan.routes}
    assert refused(allocator, demand(variable(), "A", "D", Qos(redundancy=3))).obstacle == "router/D"


@pytest.mark.spec("GS-082")
def test_no_load_is_admitted_that_would_take_an_admitted_path_over_its_bound() -> None:
    slow = Model(reference_us=0, router_us=0, loaded_us=10_000)
    allocator = network("A-B", "B-C", "D-B", "B-E", model=slow)
    admit(allocator, "tight", demand(variable(1), "A", "C", Qos(latency_ns=5 * MS)))  # 2 ms of channels, 2 ms of load
    admit(allocator, "other", demand(variable(2, rate=50), "D", "E"))
    answer = refused(allocator, demand(variable(3), "D", "E"))
    assert answer.obstacle == "router/B"
    assert "would delay the admitted subscription tight" in answer.reason
    assert allocator.publish("B", variable(4)) is not None  # a publication is a load too
    allocator.release("tight")
    admit(allocator, "3", demand(variable(3), "D", "E"))


@pytest.mark.spec("GS-082")
def test_another_way_is_taken_where_the_short_one_would_harm() -> None:
    slow = Model(reference_us=0, router_us=0, loaded_us=10_000)
    allocator = network("A-B", "B-C", "D-B", "B-E", "D-F", "F-E:3", model=slow)
    admit(allocator, "tight", demand(variable(1), "A", "C", Qos(latency_ns=4_100_000)))
    plan = admit(allocator, "2", demand(variable(2), "D", "E"))
    assert plan.routes[0].routers == ("D", "F", "E")


@pytest.mark.spec("GS-086")
def test_a_second_subscriber_shares_the_tree_and_adds_load_only_beyond_it() -> None:
    allocator = network("A-B", "B-C", "C-D", "A-E:0.1", "E-D:0.1")
    admit(allocator, "1", demand(variable(), "A", "C", Qos(interval_ns=20 * MS)))
    before = loads(allocator)
    plan = admit(allocator, "2", demand(variable(), "A", "D", Qos(interval_ns=40 * MS)))
    assert plan.routes[0].routers == ("A", "B", "C", "D")  # one new hop instead of the two of the faster way
    added = {name: load - before.get(name, 0) for name, load in loads(allocator).items() if load != before.get(name)}
    assert added == {"channel/C/D": 600.0, "router/D": 25.0}
    bounded = admit(allocator, "3", demand(variable(), "A", "D", Qos(interval_ns=40 * MS, latency_ns=MS)))
    assert bounded.routes[0].routers == ("A", "E", "D")


@pytest.mark.spec("GS-086")
def test_redundant_paths_share_the_hops_that_carry_the_stream_too() -> None:
    # From A to F over (B or C) and (D or E); the first subscriber's tree decides which.
    allocator = network("A-B", "A-C", "A-G", "B-D", "C-E", "G-H", "D-F", "E-F", "H-F", "F-I")
    admit(allocator, "1", demand(variable(), "A", "H", Qos()))
    plan = admit(allocator, "2", demand(variable(), "A", "F", Qos(redundancy=2)))
    assert ("A", "G", "H", "F") in {route.routers for route in plan.routes}


def test_one_edge_for_both_needs_no_channel_and_counts_as_any_redundancy() -> None:
    allocator = network("A-B")
    plan = admit(allocator, "k", demand(variable(), "A", "A", Qos(redundancy=3, latency_ns=MS)))
    assert [route.routers for route in plan.routes] == [("A",)]
    assert plan.grants[0] is not None
    assert plan.grants[0].redundancy == 3
    assert loads(allocator) == {}
    assert refused(allocator, demand(variable(), "A", "A", Qos(latency_ns=200_000))).reason.startswith("latency")


def test_only_what_is_up_present_and_secure_is_used() -> None:
    allocator = network(*DIAMOND)
    allocator.set_router_up("B", False)
    assert admit(allocator, "1", demand(variable(), "A", "D")).routes[0].routers == ("A", "C", "D")
    allocator.set_router_up("B", True)
    allocator.set_channel_up("D", "C", False)
    assert admit(allocator, "2", demand(variable(2), "A", "D")).routes[0].routers == ("A", "B", "D")
    assert "no two disjoint paths" in refused(allocator, demand(variable(), "A", "D", Qos(redundancy=2))).reason
    allocator.set_channel_up("D", "C", True)
    assert "security 2" in refused(allocator, demand(variable(), "A", "D", Qos(security=2))).reason
    for a, b in (("A", "C"), ("C", "D")):
        allocator.add_channel(a, b, 1e6, MS, security=2)
    assert admit(allocator, "3", demand(variable(3), "A", "D", Qos(security=2))).routes[0].routers == ("A", "C", "D")
    allocator.set_router_up("D", False)
    assert refused(allocator, demand(variable(), "A", "D")).reason == "the router D is down"
    allocator.remove_router("D")
    assert refused(allocator, demand(variable(), "A", "D")).reason == "the router D is not known"


def test_topology_can_be_told_again_and_what_is_removed_can_come_back() -> None:
    allocator = network(*DIAMOND)
    admit(allocator, "k", demand(variable(), "A", "D", Qos(redundancy=2)))
    before = allocator.loads()
    for channel in DIAMOND:
        allocator.add_router(channel[0], 1_000)
        allocator.add_channel(channel[0], channel[2], 1e6, MS)
    assert allocator.loads() == before
    allocator.remove_channel("B", "D")
    allocator.remove_router("B")
    assert "channel/B/D" not in loads(allocator)
    allocator.add_router("B", 1_000)
    allocator.add_channel("B", "D", 1e6, MS)
    assert sorted(allocator.loads(), key=str) == sorted(before, key=str)
    allocator.remove_channel("B", "D")
    allocator.release("k")
    assert not any(any(row["load"]) for row in allocator.loads())


def test_a_reservation_is_replaced_as_a_whole_or_not_at_all() -> None:
    allocator = network("A-B", bytes_per_s=3_000)
    first = demand(variable(), "A", "B", Qos(interval_ns=20 * MS))
    plan = admit(allocator, "k", first)
    before = loads(allocator)
    double = allocator.plan(demand(variable(options=1), "A", "B", Qos(interval_ns=10 * MS)), key="k")
    assert not isinstance(double, Plan)
    every_event = (Grant(10 * MS, 1, 0, 1, 3),) * 16
    assert allocator.reserve("k", variable(options=1), plan.routes, every_event) is not None
    assert loads(allocator) == before
    assert allocator.reserved("k") == plan.routes
    faster = allocator.plan(demand(variable(), "A", "B"), key="k")
    assert isinstance(faster, Plan)
    assert loads(allocator) == before
    assert allocator.reserve("k", variable(), faster.routes, faster.grants) is None
    assert loads(allocator) == {"router/B": 100.0, "channel/A/B": 2400.0}
    assert allocator.reserved("none") == ()


def test_a_plan_is_checked_again_if_something_came_in_between() -> None:
    allocator = network("A-B", bytes_per_s=3_000)
    plan = allocator.plan(demand(variable(1), "A", "B"))
    assert isinstance(plan, Plan)
    admit(allocator, "2", demand(variable(2), "A", "B"))
    answer = allocator.reserve("1", variable(1), plan.routes, plan.grants)
    assert answer is not None
    assert answer.obstacle == "channel/A/B"
    assert (
        allocator.reserve("1", variable(1), plan.routes, plan.grants, force=True) is None
    )  # admitted before a restart


def test_an_alert_is_reserved_by_its_least_interval() -> None:
    alert = Variable(9, "p", "alarm", "bool", 0, 1, 0, 0, minimum_ns=10 * MS)
    allocator = network("A-B")
    plan = admit(allocator, "k", demand(alert, "A", "B", Qos(interval_ns=1000 * MS, priority=0)))
    assert loads(allocator) == {"router/B": 100.0, "channel/A/B": 2400.0}
    assert plan.grants[0] is not None
    assert (plan.grants[0].interval_ns, plan.grants[0].every) == (0, 1)


def test_what_is_not_owned_is_known_but_not_enforced() -> None:
    allocator = network("A-B", "B-C", events_per_s=10, bytes_per_s=10)
    for name in "ABC":
        allocator.add_router(name, 10, owned=False)
    allocator.add_channel("A", "B", 10, MS, owned=False)
    allocator.add_channel("B", "C", 3_000, MS, owned=True)
    admit(allocator, "1", demand(variable(1), "A", "C", Qos(latency_ns=10 * MS)))
    assert refused(allocator, demand(variable(2), "A", "C")).obstacle == "channel/B/C"


def test_an_empty_demand_gets_an_empty_plan() -> None:
    assert network("A-B").plan(Demand(variable(), "A", "B", (None,) * 16)) == Plan((), (None,) * 16)


@pytest.mark.spec("GS-073", "GS-082")
def test_a_variable_gets_another_rate_only_if_nobody_is_harmed() -> None:
    slow = Model(reference_us=0, router_us=0, loaded_us=10_000)
    allocator = network("A-B", "B-C", "D-B", "B-E", model=slow)
    admit(allocator, "tight", demand(variable(1), "A", "C", Qos(latency_ns=5 * MS)))
    before = variable(2, rate=50)
    assert allocator.publish("D", before) is None
    plan = admit(allocator, "other", demand(before, "D", "E"))
    carried = loads(allocator)
    answer = allocator.alter(before, variable(2, rate=200), {"other": plan.grants})
    assert answer is not None
    assert "would delay the admitted subscription tight" in answer.reason
    assert loads(allocator) == carried
    assert allocator.publish("B", variable(4)) is not None, "the promise still counts"
    assert allocator.alter(before, variable(2, rate=101), {"other": plan.grants}) is not None, "100 are the most"
    assert allocator.alter(before, variable(2, rate=25), {"other": plan.grants}) is None
    assert loads(allocator) == carried | {"router/D": 25, "router/B": 125, "router/E": 25, "channel/D/B": 600,
                                          "channel/B/E": 600}  # fmt: skip
    for key in ("tight", "other"):
        allocator.release(key)
    allocator.unpublish(2)
    assert loads(allocator) == {}
