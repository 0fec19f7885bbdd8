"""Ways of events to the address of a node or inbox: planned from the map alone."""

from __future__ import annotations

import pytest

from chappe.events.forwarding import NextHops
from chappe.events.source_route import SourceRoute, Step, Unit, decode, encode
from chappe.linkstate.units import Address
from tests.support.eventmesh import EventMesh

ID = "0123456789abcdef" * 2


def mesh(units: dict[str, str], links: str) -> EventMesh:
    """`units`: names of nodes by unit; `links`: "a-b c-d:5" with latencies in ms."""
    net = EventMesh(Address.parse(unit, node) for unit, nodes in units.items() for node in nodes.split())
    for text in links.split():
        ends, _, latency = text.partition(":")
        net.link(*ends.split("-"), float(latency) if latency else None)
    net.settle()
    return net


def test_in_a_cluster_it_takes_the_best_route_though_nobody_subscribed() -> None:
    net = mesh({"": "a b c d"}, "a-b:1 b-c:1 c-d:1 a-d:9")
    outputs = net.forwarding["a"].publish("n", f"d@{ID}".encode())
    assert not outputs.local
    assert [peer for peer, _ in outputs.branches] == ["b"]
    assert decode(outputs.branches[0][1]).tree == (Step("b", 2, False), Step("c", 1, False), Step("d", 0))
    journey = net.publish("a", f"d@{ID}", kind="n")
    assert journey.hops == [("a", "b"), ("b", "c"), ("c", "d")]
    assert +journey.delivered == {"d": 1}


def test_at_the_node_itself_it_stays() -> None:
    net = mesh({"u": "a b"}, "a-b")
    assert net.forwarding["a"].publish("n", f"u/a@{ID}".encode()) == NextHops(True)


def test_over_units_each_of_them_finds_its_part() -> None:
    net = mesh(
        {"x/a": "a1 a2", "x/b": "b1 b2 b3", "x/c": "c1", "y/z": "z1 z2"},
        "a1-a2 a2-b1 b1-b2 b1-b3 b2-c1 c1-z1 z1-z2",
    )
    first = decode(dict(net.forwarding["a1"].publish("n", b"y/z/z2").branches)["a2"])
    assert first.tree[0].leaves[-1] == Unit(2, "y")
    journey = net.publish("a1", f"y/z/z2@{ID}", kind="n")
    assert [hop[1] for hop in journey.hops] == ["a2", "b1", "b2", "c1", "z1", "z2"]
    assert +journey.delivered == {"z2": 1}


@pytest.mark.parametrize("address", ["u/nobody", "elsewhere/a", "b", "u/v/b", "x" * 900])
def test_nobody_waits_for_a_node_that_never_was(address: str) -> None:
    """Whoever invents names must not fill what is kept for nodes that are missed."""
    net = mesh({"u": "a b"}, "a-b")
    assert net.forwarding["a"].publish("n", address.encode()) == NextHops(False)


def test_a_node_out_of_reach_is_waited_for() -> None:
    net = mesh({"u": "a b c"}, "a-b b-c")
    assert net.forwarding["a"].publish("n", b"u/c").branches
    net.cut("b", "c")
    net.settle(120)
    outputs = net.forwarding["a"].publish("n", b"u/c")
    assert not outputs.branches
    assert decode(outputs.rest).tree == (Step("a", 1, False), Step("c", 0))
    net.link("a", "c")
    net.settle()
    assert [peer for peer, _ in net.forwarding["a"].reroute(outputs.rest).branches] == ["c"]


def test_after_a_lost_link_it_takes_another_way() -> None:
    net = mesh({"": "a b c d"}, "a-b:1 b-d:1 a-c:5 c-d:5")
    once = iter([True])

    def between() -> None:
        if next(once, False):
            net.cut("b", "d")

    journey = net.publish("a", f"d@{ID}", between, reroute=True, kind="n")
    assert +journey.delivered == {"d": 1}


def test_who_enters_a_unit_that_lacks_the_node_drops_the_event() -> None:
    net = mesh({"x": "a", "y": "b c"}, "a-b b-c")
    source_route = encode(SourceRoute((), (Unit(1, "y"),), ("x",)))
    outputs = net.forwarding["b"].forward("a", source_route, "n", b"y/gone")
    assert not outputs.local
    assert not outputs.branches
    assert not outputs.rest


def test_a_part_of_a_unit_passes_on_what_is_in_the_other_part() -> None:
    """y fell apart into y1 and y2 y3; x takes it for whole and enters it where it likes."""
    net = mesh({"x": "x1 x2", "y": "y1 y2 y3"}, "x1-x2 x1-y1 x2-y2 y1-y2 y2-y3")
    net.cut("y1", "y2")
    for name in ("y1", "y3"):
        journey = net.publish("x1", f"y/{name}@{ID}", lambda: net.step(3), reroute=True, kind="n")
        assert +journey.delivered == {name: 1}
    net.settle()
    for name in ("y1", "y3"):
        assert +net.publish("x1", f"y/{name}@{ID}", kind="n").delivered == {name: 1}
    assert +net.publish("y1", f"y/y3@{ID}", kind="n").delivered == {"y3": 1}
