"""Ways over real network maps, in meshes small enough to see what must come out."""

from __future__ import annotations

import pytest

from chappe.errors import ProtocolError
from chappe.events.forwarding import NextHops
from chappe.events.interest import Pattern
from chappe.events.planner import Planned
from chappe.events.previous_routes import PreviousRoutes
from chappe.events.source_route import SourceRoute, Step, Unit, decode, encode
from chappe.linkstate.route import Route
from chappe.linkstate.units import Address, VertexId
from tests.support.eventmesh import EventMesh


def mesh(units: dict[str, str], links: str) -> EventMesh:
    """`units`: names of nodes by unit; `links`: "a-b c-d:5" with latencies in ms."""
    net = EventMesh(Address.parse(unit, node) for unit, nodes in units.items() for node in nodes.split())
    for text in links.split():
        ends, _, latency = text.partition(":")
        net.link(*ends.split("-"), float(latency) if latency else None)
    net.settle()
    return net


def way_to(outputs: NextHops, peer: str) -> SourceRoute:
    return decode(dict(outputs.branches)[peer])


def test_nobody_wants_it_nothing_leaves() -> None:
    net = mesh({"": "a b"}, "a-b")
    assert net.forwarding["a"].publish("s", b"t") == NextHops(True)


@pytest.mark.spec("MR-022")
def test_in_a_cluster_it_follows_one_tree() -> None:
    net = mesh({"": "a b c d e"}, "a-b:1 b-c:1 b-d:1 a-d:9 c-d:1 d-e:1")
    for node in "cde":
        net.subscribe(node, "t")
    net.settle()
    outputs = net.forwarding["a"].publish("s", b"t")
    assert way_to(outputs, "b").tree == (
        Step("b", 3, False),
        Step("c", 0),
        Step("d", 1),
        Step("e", 0),
    )
    journey = net.publish("a", "t")
    assert journey.hops == [("a", "b"), ("b", "c"), ("b", "d"), ("d", "e")]
    assert +journey.delivered == {"c": 1, "d": 1, "e": 1}


@pytest.mark.spec("MR-019", "MR-020")
def test_between_units_destinations_are_planned_anew_and_the_trace_grows() -> None:
    """a1 - a2 | b1 - b2 | c1 in three clusters of one super-cluster, z1 in another one beyond c."""
    net = mesh(
        {"x/a": "a1 a2", "x/b": "b1 b2 b3", "x/c": "c1", "y/z": "z1 z2"},
        "a1-a2 a2-b1 b1-b2 b1-b3 b2-c1 c1-z1 z1-z2",
    )
    for node in ("b3", "c1", "z2"):
        net.subscribe(node, "t/#")
    net.settle()
    first = way_to(net.forwarding["a1"].publish("s", b"t/1"), "a2")
    units = (Unit(1, "x/b", 2), Unit(1, "x/c", 1), Unit(2, "y"))
    assert first == SourceRoute((Step("a2", 0, False, (), units),))
    second = way_to(net.forwarding["a2"].forward("a1", encode(first), "s", b"t/1"), "b1")
    assert second == SourceRoute((), units, ("x/a",))
    third = net.forwarding["b1"].forward("a2", encode(second), "s", b"t/1")
    assert third.local
    assert way_to(third, "b3").tree == (Step("b3"),)
    assert way_to(third, "b2") == SourceRoute((Step("b2", 0, False, (), units[1:]),), (), ("x/a",))
    fourth = way_to(net.forwarding["b2"].forward("b1", dict(third.branches)["b2"], "s", b"t/1"), "c1")
    assert fourth == SourceRoute((), units[1:], ("x/a", "x/b"))
    fifth = way_to(net.forwarding["c1"].forward("b2", encode(fourth), "s", b"t/1"), "z1")
    assert fifth == SourceRoute((), (Unit(2, "y"),), ("x",))
    assert set(+net.publish("a1", "t/1").delivered) == {"b3", "c1", "z2"}


def test_a_way_that_comes_back_is_refused() -> None:
    net = mesh({"x/a": "a1 a2", "x/b": "b1"}, "a1-a2 a2-b1")
    back = encode(SourceRoute((), (Unit(1, "x/a"),), ("x/a",)))
    with pytest.raises(ProtocolError, match="returns to 'x/a'"):
        net.forwarding["a2"].forward("b1", back, "s", b"t")
    for wrong, reason in [
        (SourceRoute((), (Unit(1, "x/b"),)), "enters 'x/b'"),
        (SourceRoute((), (Unit(3, "x/a"),)), "enters 'x/a'"),
        (SourceRoute((Step("a1"),)), "begins at 'a1'"),
    ]:
        with pytest.raises(ProtocolError, match=reason):
            net.forwarding["a2"].forward("b1", encode(wrong), "s", b"t")
    with pytest.raises(ProtocolError, match="route: "):
        net.forwarding["a2"].forward("b1", b"\xc1", "s", b"t")


def test_nothing_goes_back_to_where_it_came_from() -> None:
    net = mesh({"": "a b c"}, "a-b b-c")
    source_route = encode(SourceRoute((Step("b", 2), Step("a"), Step("c"))))
    outputs = net.forwarding["b"].forward("a", source_route, "s", b"t")
    assert [peer for peer, _ in outputs.branches] == ["c"]
    assert outputs.undeliverable == (VertexId(0, "a"),)


def test_a_unit_in_the_trace_is_not_entered_and_counted() -> None:
    net = mesh({"x/a": "a1", "x/b": "b1", "x/c": "c1"}, "a1-b1 b1-c1")
    source_route = encode(SourceRoute((), (Unit(1, "x/b", 1, False), Unit(1, "x/a")), ("x/a",)))
    outputs = net.forwarding["b1"].forward("c1", source_route, "s", b"t")
    assert outputs.branches == ()
    assert outputs.undeliverable == (VertexId(1, "x/a"),)
    assert not outputs.local


def test_a_destination_without_a_way_is_counted() -> None:
    """The node that plans for a unit knows of no link from there to the next one."""
    net = mesh({"x/a": "a1", "x/b": "b1"}, "a1-b1")
    source_route = encode(SourceRoute((), (Unit(1, "x/b", 1), Unit(1, "x/nowhere")), ("x/a",)))
    outputs = net.forwarding["b1"].forward("a1", source_route, "s", b"t")
    assert outputs.local
    assert outputs.undeliverable == (VertexId(1, "x/nowhere"),)


def test_a_unit_is_entered_once_though_its_own_map_prefers_otherwise() -> None:
    """Inside b the link to c is far away, so that b's own best route leads through d; the route says: from b to c."""
    net = mesh(
        {"x/a": "a", "x/b": "b1 b2", "x/c": "c", "x/d": "d"},
        "a-b1:1 b1-b2:50 b2-c:1 b1-d:20 d-c:1 a-d:21",
    )
    for node in ("b1", "c", "d"):
        net.subscribe(node, "t")
    net.settle()
    route = net.states["b1"].routes.route("default", VertexId(1, "x/c"))
    assert route is not None
    assert VertexId(1, "x/d") in route.vertex_ids
    journey = net.publish("a", "t")
    assert set(+journey.delivered) == {"b1", "c", "d"}
    assert max(journey.visited.values()) == 1


@pytest.mark.spec("MR-020")
def test_a_unit_that_was_left_is_not_passed_again_on_the_way_to_a_wider_one() -> None:
    """From x the best route to q leads back through y, where the event came from; its route says: from x into q."""
    net = mesh(
        {"p/y/c": "y1", "p/x/a": "x1 x2", "q/z/d": "q1"},
        "y1-x1:1 x1-x2:50 x2-q1:50 y1-q1:70",
    )
    net.subscribe("q1", "t")
    net.settle()
    route = net.states["x1"].routes.route("default", VertexId(3, "q"))
    assert route is not None
    assert VertexId(2, "p/y") in route.vertex_ids
    source_route = encode(SourceRoute((), (Unit(2, "p/x", 1, False), Unit(3, "q")), ("p/y",)))
    outputs = net.forwarding["x1"].forward("y1", source_route, "s", b"t")
    assert way_to(outputs, "x2").tree == (Step("x2", 0, False, (), (Unit(3, "q"),)),)
    net.cut("x2", "q1")
    net.settle()
    outputs = net.forwarding["x1"].forward(
        "y1", source_route, "s", b"t"
    )  # after a loss there is no other way than back through y
    assert way_to(outputs, "y1") == SourceRoute((), (Unit(2, "p/y", 1, False), Unit(3, "q")), ("p/x",), reroutes=1)
    net.cut("y1", "q1")
    net.settle()
    outputs = net.forwarding["x1"].forward("y1", source_route, "s", b"t")
    assert outputs.branches == ()
    assert outputs.undeliverable == (VertexId(3, "q"),)


# --- queue groups


def test_a_group_is_served_once_in_the_mesh_local_members_first() -> None:
    net = mesh({"x/a": "a1 a2", "x/b": "b1 b2"}, "a1-a2 a2-b1 b1-b2")
    net.subscribe("a2", "t", "g")
    net.subscribe("b2", "t", "g")
    net.subscribe("b1", "t")
    net.settle()
    at_a2 = net.forwarding["a2"].publish("s", b"t")
    assert at_a2.groups == ("g",)
    assert way_to(at_a2, "b1").units == (Unit(1, "x/b"),)
    for publisher in ("a1", "a2", "b1", "b2"):
        journey = net.publish(publisher, "t")
        assert journey.served == {"g": 1}
        assert set(+journey.delivered) == {"b1"}


def test_the_choice_for_a_group_goes_round() -> None:
    net = mesh({"": "a b c d"}, "a-b a-c a-d")
    for node in "bcd":
        net.subscribe(node, "t/+", "g")
    net.settle()
    by_topic = {net.forwarding["a"].publish("s", f"t/{n}".encode()).branches[0][0] for n in range(30)}
    assert by_topic == {"b", "c", "d"}
    chosen = []
    for _ in range(3):
        net.forwarding["a"].changed()
        chosen.append(net.forwarding["a"].publish("s", b"t/1").branches[0][0])
    assert sorted(chosen) == ["b", "c", "d"]


def test_a_group_far_away_is_chosen_inside_its_unit() -> None:
    net = mesh({"x/a": "a1", "x/b": "b1 b2 b3"}, "a1-b1 b1-b2 b1-b3")
    for node in ("b2", "b3"):
        net.subscribe(node, "t", "g")
    net.subscribe("b3", "t")
    net.settle()
    journey = net.publish("a1", "t")
    assert journey.served == {"g": 1}
    assert set(+journey.delivered) == {"b3"}


def test_a_group_that_has_no_member_any_more_is_counted() -> None:
    net = mesh({"x/a": "a1", "x/b": "b1"}, "a1-b1")
    source_route = encode(SourceRoute((), (Unit(1, "x/b", 0, False, ("g",)),), ("x/a",)))
    outputs = net.forwarding["b1"].forward("a1", source_route, "s", b"t")
    assert outputs == NextHops(False, (), 0, (), (VertexId(1, "x/b"),))


# --- changes


def test_a_quicker_way_waits_for_the_difference() -> None:
    net = mesh({"": "a b c"}, "a-b:5 a-c:10 c-b:10")
    net.subscribe("b", "t")
    net.settle()
    assert net.forwarding["a"].publish("s", b"t").hold_ns == 0
    net.measure("a", "b", 55.0)
    net.settle()
    outputs = net.forwarding["a"].publish("s", b"t")
    assert [peer for peer, _ in outputs.branches] == ["c"]
    assert outputs.hold_ns == 36_000_000  # 55 as it is now, not 5 as it was, less 20, and 1 for busy nodes
    assert net.forwarding["a"].publish("s", b"t").hold_ns == 0
    net.measure("a", "b", 5.0)
    net.settle()
    assert net.forwarding["a"].publish("s", b"t").hold_ns == 16_000_000
    net.measure("a", "c", 1.0)
    net.measure("c", "b", 1.0)
    net.settle()
    assert net.forwarding["a"].publish("s", b"other").hold_ns == 0  # never published before: nothing is under way


def test_what_both_ways_vary_by_counts_for_the_wait() -> None:
    net = mesh({"": "a b c"}, "a-b:5 a-c:10 c-b:10")
    net.subscribe("b", "t")
    net.settle()
    net.forwarding["a"].publish("s", b"t")
    net.measure("a", "b", 50.0, jitter=0.1)
    net.measure("c", "b", 10.0, jitter=0.2)
    net.settle()
    assert (
        net.forwarding["a"].publish("s", b"t").hold_ns == 38_000_000
    )  # 50 less 20, 5 and 2 for jitter, 1 for busy nodes


def test_a_slower_way_does_not_wait() -> None:
    net = mesh({"": "a b c"}, "a-b:5 a-c:10 c-b:10")
    net.subscribe("b", "t")
    net.settle()
    net.forwarding["a"].publish("s", b"t")
    net.cut("a", "b")
    net.settle()
    outputs = net.forwarding["a"].publish("s", b"t")
    assert [peer for peer, _ in outputs.branches] == ["c"]
    assert outputs.hold_ns == 0


def test_the_memory_of_ways_is_bounded() -> None:
    net = mesh({"": "a b"}, "a-b")
    net.subscribe("b", "#")
    net.settle()
    forwarding = net.forwarding["a"]
    forwarding._last = PreviousRoutes(topics=10)
    for number in range(100):
        forwarding.publish("s", str(number).encode())
    assert len(forwarding._last) == 10


def test_the_memory_of_ways_is_bounded_by_what_they_hold() -> None:
    route = Route((VertexId(0, "b"),), (b"",), 1.0, 1.0)
    big = [Planned(routes={VertexId(0, str(n)): ((), route) for n in range(10)}) for _ in range(5)]
    last = PreviousRoutes(routes=30)
    for number in range(6):
        assert last.replace(("s", bytes([number])), big[0]) is None  # shared: it counts once
    assert len(last) == 6
    assert last.replace(("s", b"\0"), big[0]) is big[0]
    for number in range(5):
        last.replace(("s", bytes([number])), big[number])
    assert len(last) == 3
    assert last.replace(("s", b"\4"), big[0]) is big[4]
    assert last.replace(("s", b"\0"), big[0]) is None


def test_a_plan_that_is_the_same_again_is_the_old_one() -> None:
    net = mesh({"": "a b c"}, "a-b:5 a-c:7")
    net.subscribe("b", "#")
    net.settle()
    forwarding = net.forwarding["a"]
    forwarding.publish("s", b"t")
    (first,) = forwarding._plans.values()
    forwarding.changed()
    forwarding.changed()
    forwarding.publish("s", b"t")
    assert list(forwarding._plans.values()) == [first]


def test_topics_that_match_alike_share_one_plan() -> None:
    net = mesh({"": "a b c"}, "a-b a-c")
    net.subscribe("b", "t/#")
    net.subscribe("c", "t/1/#")
    net.settle()
    forwarding = net.forwarding["a"]
    forwarding.changed()
    answers = {forwarding.publish("s", f"t/{number % 2}/{number}".encode()).branches for number in range(2000)}
    assert len(answers) == len(forwarding._plans) == 2
    assert (
        len({id(source_route) for answer in answers for _, source_route in answer}) == 3
    )  # encoded once for each tree


def test_topics_have_a_profile_of_their_own() -> None:
    net = mesh({"": "a b"}, "a-b")
    net.subscribe("b", "#")
    net.settle()
    net.forwarding["a"].profiles = ((Pattern("s", "av/#"), "media"), (Pattern("s", "#"), "bulk"))
    assert way_to(net.forwarding["a"].publish("s", b"av/1"), "b").profile == "media"
    assert way_to(net.forwarding["a"].publish("s", b"t"), "b").profile == "bulk"


def test_a_profile_that_only_others_know_counts_as_default() -> None:
    net = mesh({"x/a": "a1", "x/b": "b1 b2"}, "a1-b1 b1-b2")
    net.subscribe("b2", "t")
    net.settle()
    source_route = encode(SourceRoute((), (Unit(1, "x/b"),), ("x/a",), "theirs"))
    outputs = net.forwarding["b1"].forward("a1", source_route, "s", b"t")
    assert way_to(outputs, "b2").profile == "theirs"


# --- losses


def test_what_a_lost_neighbour_had_not_confirmed_takes_another_way() -> None:
    net = mesh({"": "a b c d"}, "a-b:1 b-d:1 a-c:5 c-d:5")
    net.subscribe("d", "t")
    net.settle()
    sent = dict(net.forwarding["a"].publish("s", b"t").branches)["b"]
    net.cut("a", "b")
    outputs = net.forwarding["a"].reroute(sent)
    assert way_to(outputs, "c") == SourceRoute((Step("c", 1, False), Step("d")), reroutes=1)
    assert not outputs.local
    assert outputs.rest == b""


def test_what_has_no_way_now_is_kept_apart_for_later() -> None:
    net = mesh({"": "a b c d"}, "a-b b-c a-d")
    net.subscribe("c", "t")
    net.subscribe("d", "t")
    net.settle()
    source_route = encode(SourceRoute((Step("b", 2, False), Step("c"), Step("d"))))
    net.cut("b", "c")
    net.settle()
    outputs = net.forwarding["a"].reroute(source_route)
    assert [peer for peer, _ in outputs.branches] == ["d"]
    assert outputs.undeliverable == (VertexId(0, "c"),)
    assert decode(outputs.rest) == SourceRoute((Step("b", 2, False), Step("c"), Step("d", 0, False)))
    net.link("a", "c")
    net.settle()
    later = net.forwarding["a"].reroute(outputs.rest)
    assert [peer for peer, _ in later.branches] == ["c"]


def test_a_gateway_that_lost_its_link_hands_over_to_another() -> None:
    net = mesh({"x/a": "a1 a2 a3", "x/b": "b1"}, "a1-a2:1 a1-a3:1 a2-b1:1 a3-b1:9")
    net.subscribe("b1", "t")
    net.settle()
    sent = dict(net.forwarding["a1"].publish("s", b"t").branches)["a2"]
    net.cut("a2", "b1")
    net.settle()
    outputs = net.forwarding["a2"].forward("a1", sent, "s", b"t")
    assert way_to(outputs, "a1").reroutes == 1
    assert way_to(outputs, "a1").tree == (Step("a1", 1, False), Step("a3", 0, False, (), (Unit(1, "x/b"),)))


def test_gateways_that_lost_their_links_at_once_do_not_hand_an_event_to_and_fro() -> None:
    net = mesh({"x/a": "a1 a2 a3 a4", "x/b": "b1"}, "a1-a2:1 a1-a3:1 a2-a3:1 a1-a4:1 a2-b1:1 a3-b1:2 a4-b1:9")
    net.subscribe("b1", "t")
    net.settle()
    source_route = dict(net.forwarding["a1"].publish("s", b"t").branches)["a2"]
    net.cut("a2", "b1")
    net.cut("a3", "b1")
    source_route = dict(net.forwarding["a2"].forward("a1", source_route, "s", b"t").branches)["a3"]
    source_route = dict(net.forwarding["a3"].forward("a2", source_route, "s", b"t").branches)["a2"]
    outputs = net.forwarding["a2"].forward("a3", source_route, "s", b"t")
    assert outputs.branches == (), "it knows no better than a3 does: both wait until they have heard of each other"
    net.settle()
    later = net.forwarding["a2"].reroute(outputs.rest)
    assert way_to(later, "a1").tree == (Step("a1", 1, False), Step("a4", 0, False, (), (Unit(1, "x/b"),)))


def test_reroutes_come_to_an_end() -> None:
    net = mesh({"": "a b c"}, "a-b a-c c-b")
    net.subscribe("b", "t")
    net.settle()
    source_route = SourceRoute((Step("b"),), reroutes=8)
    outputs = net.forwarding["a"].reroute(encode(source_route))
    assert outputs.branches == ()
    assert outputs.undeliverable == (VertexId(0, "b"),)
    assert decode(outputs.rest) == source_route
