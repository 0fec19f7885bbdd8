"""What the mesh says of itself: topics, bodies, and who says it."""

from __future__ import annotations

import math

import msgspec
import pytest

from chappe.events import notices
from chappe.linkstate.changes import CostAdvertised, Notice
from chappe.linkstate.units import Address, VertexId
from chappe.measure.cost import Metrics
from chappe.wire.events import check_topic
from chappe.wire.patterns import Pattern
from tests.support.eventmesh import EventMesh

ME = Address.parse("east/p3/hall", "n1")


@pytest.mark.parametrize(
    ("vertex_id", "topic"),
    [
        (VertexId(0, "n7"), "mesh/members/east/p3/hall"),
        (VertexId(1, "east/p3/yard"), "mesh/members/east/p3"),
        (VertexId(2, "east/p4@n9"), "mesh/members/east"),
        (VertexId(3, "west"), "mesh/members"),
    ],
)
def test_a_change_of_members_is_told_in_the_unit_where_it_happened(vertex_id: VertexId, topic: str) -> None:
    told, body = notices.membership(ME, Notice("left", vertex_id, "its links are gone"), 17)
    assert told == topic
    assert msgspec.json.decode(body) == {
        "change": "left", "name": vertex_id.name, "level": vertex_id.level, "reason": "its links are gone",
        "seen_by": "n1", "stamp": 17,
    }  # fmt: skip


def test_a_cost_is_told_as_json_without_numbers_that_json_lacks() -> None:
    topic, body = notices.performance(
        ME, CostAdvertised(bytes(range(16)), 12.5, Metrics(2.5, loss=0.1), "east/p3", 4, 99), wall_ns=5
    )
    assert topic == "PBR/PerformanceData/east/p3"
    told = msgspec.json.decode(body)
    assert (told["link"], told["cost"], told["gone"]) == (bytes(range(16)).hex(), 12.5, False)
    assert (told["latency_ms"], told["loss"], told["bandwidth"]) == (2.5, 0.1, None)
    assert (told["origin"], told["sequence"], told["stamp"]) == ("n1", 4, 5)
    topic, body = notices.performance(ME, CostAdvertised(bytes(16), math.inf, Metrics(math.nan), "", 5, 99))
    assert topic == "PBR/PerformanceData"
    assert (msgspec.json.decode(body)["cost"], msgspec.json.decode(body)["gone"]) == (None, True)


def test_long_paths_end_at_a_wider_unit() -> None:
    deep = Address.parse("/".join(letter * 250 for letter in "abcdefgh"), "n")
    topic, _ = notices.membership(deep, Notice("joined", VertexId(0, "m"), ""))
    check_topic(topic)
    assert topic == "/".join(["mesh/members", "a" * 250, "b" * 250, "c" * 250, "d" * 250])


@pytest.mark.parametrize(
    "topic", ["mesh", "mesh/members/x", "mesh/anything", "PBR/PerformanceData", "PBR/PerformanceData/x"]
)
def test_reserved_topics_are_for_nodes(topic: str) -> None:
    assert notices.reserved("s", topic.encode())


@pytest.mark.parametrize("topic", ["meshed", "a/mesh", "PBR/Report/r/n", "PBR", "PBR/PerformanceDataX"])
def test_others_are_for_everybody(topic: str) -> None:
    assert not notices.reserved("s", topic.encode())
    assert not notices.reserved("l", b"mesh/abc")


def test_one_node_tells_of_each_change() -> None:
    net = EventMesh(
        Address.parse(unit, node) for unit, node in [("x/a", "a1"), ("x/a", "a2"), ("x/b", "b1"), ("y/c", "c1")]
    )
    for a, b in [("a1", "a2"), ("a2", "b1"), ("b1", "c1")]:
        net.link(a, b)
    net.settle()

    def tellers(seen: str, vertex_id: VertexId) -> list[str]:
        """Those who tell, of the nodes of the unit in which the thing is seen."""
        return [
            name
            for name, address in net.addresses.items()
            if f"{address}/".startswith(seen)
            and notices.publishes(address, net.states[name], vertex_id)
            and ("@" in vertex_id.name or address.path(vertex_id.level) != vertex_id.name)
        ]

    assert tellers("x/a/", VertexId(0, "a2")) == ["a1"]
    assert tellers("x/a/", VertexId(0, "a1")) == ["a2"]
    assert tellers("x/", VertexId(1, "x/b")) == ["a1"]
    assert tellers("x/", VertexId(1, "x/a")) == ["b1"]
    assert tellers("", VertexId(2, "y")) == ["a1"]
    assert tellers("y/", VertexId(2, "x")) == ["c1"]
    assert tellers("x/b/", VertexId(1, "x/b@b1")) == ["b1"]


@pytest.mark.spec("MR-133")
def test_publications_are_advertised_and_found_by_what_one_wants() -> None:
    net = EventMesh(
        Address.parse(unit, node) for unit, node in [("x/a", "a1"), ("x/a", "a2"), ("x/b", "b1"), ("x/b", "b2")]
    )
    for a, b in [("a1", "a2"), ("a2", "b1"), ("b1", "b2")]:
        net.link(a, b)
    net.advertise("b2", Pattern("s", "plant/3/#"))
    net.advertise("a2", Pattern("s", "plant/4/heat"))
    net.settle()
    told = net.states["a1"].publications()
    assert notices.publishers(told, Pattern("s", "plant/+/heat")) == [VertexId(0, "a2"), VertexId(1, "x/b")]
    assert notices.publishers(told, Pattern("s", "plant/3")) == [VertexId(1, "x/b")]
    assert notices.publishers(told, Pattern("s", "other/#")) == []
    topic, body = notices.publications(net.addresses["b2"], [Pattern("s", "plant/3/#")], 8)
    assert topic == "mesh/publications"
    assert msgspec.json.decode(body) == {
        "node": "b2", "unit": "x/b", "publications": [{"kind": "s", "topic": "plant/3/#"}], "stamp": 8,
    }  # fmt: skip


@pytest.mark.spec("MR-111")
def test_only_subscribers_get_costs() -> None:
    """Costs of the cluster x/a are events on its own topic: of four nodes the two that subscribed get them."""
    net = EventMesh(
        Address.parse(unit, node) for unit, node in [("x/a", "a1"), ("x/a", "a2"), ("x/a", "a3"), ("x/b", "b1")]
    )
    for a, b in [("a1", "a2"), ("a2", "a3"), ("a3", "b1")]:
        net.link(a, b)
    net.subscribe("a2", "PBR/PerformanceData/x/a")
    net.subscribe("b1", "PBR/PerformanceData/#")
    net.settle()
    topic, _ = notices.performance(net.addresses["a1"], CostAdvertised(bytes(16), 3.0, Metrics(3.0), "x/a", 1, 0))
    assert +net.publish("a1", topic).delivered == {"a2": 1, "b1": 1}
    wider, _ = notices.performance(net.addresses["a3"], CostAdvertised(bytes(16), 3.0, Metrics(3.0), "x", 1, 0))
    assert +net.publish("a3", wider).delivered == {"b1": 1}
