"""Ways while a unit is in parts, or has just become one again."""

from __future__ import annotations

from chappe.events.source_route import SourceRoute, Step, Unit, decode, encode
from tests.unit.events.test_forwarding import mesh, way_to


def test_who_names_a_unit_as_a_whole_reaches_its_parts() -> None:
    """b fell apart, which the publisher has not heard: the first node of b sends on to the other part, over c."""
    net = mesh({"x/a": "a", "x/b": "b1 b2", "x/c": "c"}, "a-b1:1 b1-b2:1 b2-c:1 a-c:5")
    for node in ("b1", "b2"):
        net.subscribe(node, "t")
    net.settle()
    sent = dict(net.forwarding["a"].publish("s", b"t").branches)["b1"]
    net.cut("b1", "b2")
    net.settle()
    outputs = net.forwarding["b1"].forward("a", sent, "s", b"t")
    assert outputs.local
    (peer, source_route), *_ = outputs.branches
    assert peer == "a"
    assert [unit.name for unit in decode(source_route).units] == ["x/a", "x/c", "x/b@b2"]
    assert decode(source_route).reroutes == 1


def test_what_comes_back_to_the_wrong_part_of_a_unit_goes_on_to_the_right_one() -> None:
    """a still takes b for whole and led the event for b's other part back: it is not delivered again, nor lost."""
    net = mesh({"x/a": "a", "x/b": "b1 b2", "x/c": "c"}, "a-b1:1 b1-b2:1 b2-c:1 a-c:5")
    for node in ("b1", "b2"):
        net.subscribe(node, "t")
    net.settle()
    at_a = SourceRoute((), (Unit(1, "x/a", 1, False), Unit(1, "x/b@b2")), ("x/b@b1",), reroutes=1)
    (back,) = net.forwarding["a"].forward("b1", encode(at_a), "s", b"t").branches  # it has not heard that b fell apart
    assert back[0] == "b1"
    assert [unit.name for unit in decode(back[1]).units] == ["x/b@b2"]
    net.cut("b1", "b2")
    net.settle()
    outputs = net.forwarding["b1"].forward("a", back[1], "s", b"t")
    assert not outputs.local
    assert [unit.name for unit in way_to(outputs, "a").units] == ["x/a", "x/c", "x/b@b2"]
    assert way_to(outputs, "a").reroutes == 2
    first = net.forwarding["b1"].forward("a", encode(SourceRoute((), (Unit(1, "x/b@b2"),), ("x/a",))), "s", b"t")
    assert first.local, "it was not here before, and who sent it may be right"
    assert [unit.name for unit in way_to(first, "a").units] == ["x/a", "x/c", "x/b@b2"]


def test_what_leads_back_to_a_part_that_sent_it_counts_as_planned_anew() -> None:
    """b1 reaches c through a and the other part of its own unit; a takes b for whole, and b1 is its way into it."""
    net = mesh({"x/a": "a", "x/b": "b1 b2", "x/c": "c"}, "a-b1:1 b1-b2:1 b2-c:1 a-b2:5")
    net.subscribe("c", "t")
    net.settle()
    sent = SourceRoute((), (Unit(1, "x/a", 2, False), Unit(1, "x/b@b2", 1, False), Unit(1, "x/c")), ("x/b@b1",))
    outputs = net.forwarding["a"].forward("b1", encode(sent), "s", b"t")
    assert outputs.back
    ((peer, source_route),) = outputs.branches
    assert peer == "b1"
    assert decode(source_route).reroutes == 1
    net.cut("b1", "b2")
    net.settle()
    again = net.forwarding["b1"].forward("a", source_route, "s", b"t")
    assert way_to(again, "a").reroutes == 2
    assert [unit.name for unit in way_to(again, "a").units] == ["x/a", "x/b@b2", "x/c"]


def test_a_node_that_is_in_another_part_now_is_found_there() -> None:
    net = mesh({"x/a": "a1 a2 a3", "x/b": "b"}, "a1-a2:1 a2-a3:1 a3-b:1 a1-b:1")
    net.subscribe("a3", "t")
    net.settle()
    source_route = encode(SourceRoute((Step("a2", 1, False), Step("a3"))))
    net.cut("a1", "a2")
    net.settle()
    net.cut("a2", "a3")
    net.settle()
    outputs = net.forwarding["a1"].reroute(source_route)
    assert set(dict(outputs.branches)) == {"b"}
    assert "x/a@a3" in [unit.name for unit in way_to(outputs, "b").units]


def test_what_waits_for_another_part_of_the_own_unit_goes_on_when_that_is_whole_again() -> None:
    """b1 keeps an event for b3, in another part; both parts are one again before anybody led it there."""
    net = mesh({"x/a": "a", "x/b": "b1 b2 b3", "x/c": "c"}, "a-b1:1 b1-b2:1 b2-b3:1 b3-c:1")
    net.subscribe("b3", "t")
    net.settle()
    net.cut("b1", "b2")
    net.settle()
    waiting = encode(SourceRoute((Step("b1", 0, False, (), (Unit(1, "x/b@b2"),)),), (), ("x/a", "x/b@b1"), reroutes=2))
    outputs = net.forwarding["b1"].reroute(waiting)
    assert (outputs.branches, outputs.rest) == ((), waiting)
    net.link("b1", "b2", 1)
    net.settle()
    outputs = net.forwarding["b1"].reroute(waiting)
    assert outputs.rest == b""
    ((peer, source_route),) = outputs.branches
    assert peer == "b2"
    assert decode(source_route) == SourceRoute((), (Unit(1, "x/b"),), ("x/a",), reroutes=3)
    assert dict(net.forwarding["b2"].forward("b1", source_route, "s", b"t").branches).keys() == {"b3"}


def test_a_part_that_is_out_of_reach_is_not_taken_for_one_with_this_one() -> None:
    """b3 lives on, alone in its part, and the link to it is down: what is for it waits, however long that takes."""
    net = mesh({"x/a": "a", "x/b": "b1 b2 b3"}, "a-b1:1 b1-b2:1 b2-b3:1 b3-a:1")
    net.subscribe("b3", "t")
    net.settle()
    net.cut("b2", "b3")
    net.settle()
    net.cut("b3", "a")
    net.settle()
    waiting = encode(SourceRoute((Step("b1", 0, False, (), (Unit(1, "x/b@b3"),)),), (), ("x/a", "x/b@b1"), reroutes=2))
    outputs = net.forwarding["b1"].reroute(waiting)
    assert (outputs.branches, outputs.rest) == ((), waiting)
    net.link("b3", "a", 1)
    net.settle()
    assert dict(net.forwarding["b1"].reroute(waiting).branches).keys() == {"a"}


def test_who_plans_a_whole_unit_anew_may_be_one_that_the_event_had_left() -> None:
    net = mesh({"p/y": "a", "p/x": "b", "p/w": "c", "q/z": "d"}, "a-b:1 b-c:1 c-d:1 a-d:1")
    net.subscribe("c", "t")
    net.settle()
    source_route = encode(
        SourceRoute((Step("b", 0, False, (), (Unit(2, "p@c"),)),), (), ("p/y", "p@a", "q"), reroutes=2)
    )
    ((peer, handed),) = net.forwarding["b"].reroute(source_route).branches
    assert peer == "a"
    assert decode(handed) == SourceRoute((), (Unit(2, "p"),), ("q",), reroutes=3)
    assert dict(net.forwarding["a"].forward("b", handed, "s", b"t").branches).keys() == {"b"}
