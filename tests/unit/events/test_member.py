"""A member of the mesh: joining, measuring, ways by what was measured, and reroute of what a lost neighbour held."""

from __future__ import annotations

import json
import random
import struct
import time
from typing import Any

import pytest

from chappe.engine._engine import Engine
from chappe.errors import RefusedError
from chappe.events.member import Member
from chappe.events.member_settings import MemberSettings
from chappe.events.parts import MemberParts
from chappe.events.reroute import AGAIN_NS
from chappe.events.source_route import SourceRoute, Step, encode
from chappe.linkstate.settings import Settings as MapSettings
from chappe.linkstate.units import Address, VertexId
from chappe.machine import Connected, Disconnected, Publish
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.mesh import LinkAdvert, MeshJoin
from tests.support.members import SECOND, Members, Reader
from tests.support.statements import stated

MS = 1_000_000


def square(**settings: object) -> Members:
    """a - b - d and a - c - d, the first way quicker."""
    mesh = Members(**settings)
    for name in "abcd":
        mesh.node(name)
    mesh.link("a", "b", 2)
    mesh.link("b", "d", 2)
    mesh.link("a", "c", 6)
    mesh.link("c", "d", 6)
    return mesh


def source_route(mesh: Members, at: str, to: str) -> list[str]:
    route = mesh.places[at].member.state.routes.route("default", VertexId(0, to))
    return [] if route is None else [str(vertex_id) for vertex_id in route.vertex_ids]


def test_events_reach_whoever_wants_them_over_several_hops_and_nobody_else() -> None:
    mesh = square()
    wanting, other, publisher = mesh.reader("d"), mesh.reader("c"), mesh.reader("a")
    wanting.subscribe("plant/#")
    other.subscribe("else")
    mesh.run(2)
    publisher.publish("plant/alarm", b"valve 7")
    publisher.publish("nobody/wants", b"this")
    mesh.run(0.1)
    assert wanting.bodies == [b"valve 7"]
    assert other.bodies == []
    assert source_route(mesh, "a", "d") == ["b", "d"]
    sent = {
        name: mesh.places["a"].engine.port_counters(port)["events_out"] for name, port in mesh.places["a"].ports.items()
    }
    assert sent == {"b": 1, "c": 0}


def test_interest_that_ends_stops_the_events() -> None:
    mesh = square()
    wanting, publisher = mesh.reader("d"), mesh.reader("a")
    wanting.subscribe("x")
    mesh.run(2)
    publisher.publish("x", b"1")
    mesh.run(0.1)
    wanting.unsubscribe("x")
    mesh.run(0.5)
    publisher.publish("x", b"2")
    mesh.run(0.1)
    assert wanting.bodies == [b"1"]
    assert mesh.places["a"].engine.port_counters(mesh.places["a"].ports["b"])["events_out"] == 1


@pytest.mark.spec("MR-001", "MR-056", "MR-057")
def test_links_are_measured_and_the_reading_is_half_the_round_trip() -> None:
    mesh = square(readings=True)
    mesh.run(6)
    member = mesh.places["a"].member
    reading = member.measurement.initiator.reading(mesh.places["a"].ports["c"])
    assert reading is not None
    assert reading.metrics.latency_ms == pytest.approx(6, abs=2.1)  # steps of 2 ms each way
    assert {measured.link.port for measured in mesh.places["a"].reporter.readings} == set(
        mesh.places["a"].ports.values()
    )


@pytest.mark.spec("MR-002")
def test_a_link_to_a_client_is_measured_but_not_in_the_map() -> None:
    mesh = Members()
    place = mesh.node("a")
    port = place.engine.open_port(issuer=bytes(16))
    place.member.receive(port, Connected("meter", joins=False), mesh.now_ns)
    frames = bytearray()
    for _ in range(1500):
        mesh.run(0.002)
        if frames:  # a client answers a PROBE with the same bytes as ECHO
            place.engine.feed(port, bytes(frames).replace(b"\x04\x00\x00\x10", b"\x14\x00\x00\x10"))
            frames.clear()
        while piece := bytes(place.engine.peek(port)):
            place.engine.consumed(port, len(piece))
            frames += piece
    reading = place.member.measurement.initiator.reading(port)
    assert reading is not None
    assert place.member.state.link_rows() == []
    place.member.receive(port, Disconnected(), mesh.now_ns)
    with pytest.raises(ValueError, match="no link"):
        place.member.measurement.initiator.reading(port)


@pytest.mark.spec("MR-072")
def test_measuring_can_be_off_and_switched_on_and_off() -> None:
    mesh = square(measures=False)
    mesh.run(3)
    place = mesh.places["a"]
    assert all(place.member.measurement.initiator.reading(port) is None for port in place.ports.values())
    place.member.measurement.wake(mesh.now_ns)
    mesh.run(3)
    assert all(place.member.measurement.initiator.reading(port) is not None for port in place.ports.values())


@pytest.mark.spec("MR-112")
def test_a_small_change_is_seen_at_once_and_told_with_the_next_refresh() -> None:
    mesh = Members(map=MapSettings(refresh_ns=12 * SECOND, lifetime_ns=36 * SECOND))
    for name in "ab":
        mesh.node(name)
    mesh.link("a", "b", 40)
    mesh.run(6)
    place = mesh.places["a"]
    told = [json.loads(each.body)["latency_ms"] for each in place.published if "PerformanceData" in each.topic]
    place.published.clear()
    mesh.wires[frozenset("ab")].delay_ns = 42 * MS  # a twentieth: nobody is told
    mesh.run(5)
    assert not [each for each in place.published if "PerformanceData" in each.topic]
    (row,) = place.member.state.link_rows()
    assert row["latency_ms"] > told[-1] + 0.5
    mesh.run(24)
    again = [json.loads(each.body)["latency_ms"] for each in place.published if "PerformanceData" in each.topic]
    assert again[-1] > told[-1] + 1
    mesh.wires[frozenset("ab")].delay_ns = 60 * MS
    mesh.run(3)
    (row,) = place.member.state.link_rows()
    assert row["told"] > 50


@pytest.mark.spec("MR-009")
def test_a_link_that_becomes_slow_is_left_for_the_other_way_in_order() -> None:
    mesh = square()
    wanting, publisher = mesh.reader("d"), mesh.reader("a")
    wanting.subscribe("n")
    mesh.run(8)
    assert source_route(mesh, "a", "d") == ["b", "d"]
    mesh.wires[frozenset("ab")].delay_ns = 52 * MS
    sent = 0
    for _ in range(1250):
        publisher.publish("n", b"%d" % sent)
        sent += 1
        mesh.run(0.002)
    assert source_route(mesh, "a", "d") == ["c", "d"]
    mesh.run(0.5)
    assert [int(body) for body in wanting.bodies] == list(range(sent))


@pytest.mark.spec("MR-117")
def test_without_performance_routing_costs_change_nothing() -> None:
    mesh = square(map=MapSettings(performance=False))
    mesh.run(4)
    assert source_route(mesh, "a", "d") == ["b", "d"]
    mesh.wires[frozenset("ab")].delay_ns = 80 * MS
    mesh.run(6)
    assert source_route(mesh, "a", "d") == ["b", "d"]


def test_what_a_lost_neighbour_had_not_confirmed_takes_another_way_once() -> None:
    mesh = square()
    wanting, publisher = mesh.reader("d"), mesh.reader("a")
    wanting.subscribe("n")
    mesh.run(4)
    mesh.wires[frozenset("ab")].delay_ns = 400 * MS
    for number in range(50):
        publisher.publish("n", b"%d" % number)
        mesh.run(0.002)
    mesh.kill("b")
    for number in range(50, 100):
        publisher.publish("n", b"%d" % number)
        mesh.run(0.002)
    mesh.run(1)
    assert sorted(int(body) for body in wanting.bodies) == list(range(100))
    assert mesh.places["a"].member.reroute.rerouted > 0


def test_with_no_other_way_events_wait_for_the_neighbour() -> None:
    mesh = Members()
    mesh.node("a")
    mesh.node("b")
    mesh.link("a", "b", 1)
    wanting, publisher = mesh.reader("b"), mesh.reader("a")
    wanting.subscribe("n")
    mesh.run(2)
    publisher.publish("n", b"1")
    mesh.cut("a", "b")
    mesh.run(2)
    assert wanting.bodies == []
    mesh.link("a", "b", 1)
    mesh.run(1)
    assert wanting.bodies == [b"1"]


def chain(**settings: Any) -> tuple[Members, Reader, Reader]:
    """a - b - c - d, and e beside c: the way over e is longer. A publisher at a, a subscriber at d."""
    mesh = Members(**settings)
    for name in "abcde":
        mesh.node(name)
    for one, other, delay_ms in (("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("b", "e", 5), ("e", "d", 5)):
        mesh.link(one, other, delay_ms)
    publisher, wanting = mesh.reader("a"), mesh.reader("d")
    wanting.subscribe("n")
    mesh.run(4)
    publisher.publish("n", b"-1")
    mesh.run(0.1)
    assert wanting.bodies == [b"-1"]
    wanting.bodies.clear()
    return mesh, publisher, wanting


def test_a_node_that_dies_with_events_inside_takes_none_with_it() -> None:
    mesh, publisher, wanting = chain()
    mesh.wires[frozenset("cd")].delay_ns = 60 * SECOND
    for number in range(100):
        publisher.publish("n", b"%d" % number)
    mesh.run(0.1)
    b, c = mesh.places["b"], mesh.places["c"]
    assert c.engine.port_counters(c.ports["b"])["routed_in"] == 101
    assert b.engine.unacknowledged(b.ports["c"]) > 0, "c has them all and has said so"
    a = mesh.places["a"]
    assert a.engine.unacknowledged(a.ports["b"]) == 0, "b need not wait for c"
    mesh.kill("c")
    mesh.run(2)
    assert sorted(int(body) for body in wanting.bodies) == list(range(100))


def test_a_node_that_had_delivered_does_not_deliver_again_when_it_is_back() -> None:
    mesh, publisher, wanting = chain()
    passing = mesh.reader("c")
    passing.subscribe("n")
    mesh.run(1)
    mesh.wires[frozenset("cd")].delay_ns = 60 * SECOND
    publisher.publish("n", b"1")
    mesh.run(0.1)
    assert passing.bodies == [b"1"]
    mesh.kill("c")
    mesh.run(0.5)
    assert wanting.bodies == [b"1"]
    fresh = mesh.restart("c")
    again = mesh.reader("c")
    again.subscribe("n")
    for other in "bd":
        mesh.link("c", other, 1)
    mesh.run(5)
    publisher.publish("n", b"2")
    mesh.run(1)
    assert fresh.engine.counters()["bad_frames"] == 0
    assert again.bodies == [b"2"]
    assert wanting.bodies == [b"1", b"2"]


def test_events_on_their_way_are_kept_while_there_is_none_and_come_once() -> None:
    mesh, publisher, wanting = chain()
    mesh.cut("e", "d")
    mesh.run(1)
    publisher.publish("n", b"1")
    mesh.run(0.002)
    mesh.cut("c", "d")  # c hears of the event when its only link to d is gone
    mesh.run(1)
    assert wanting.bodies == []
    assert sum(place.member.reroute.waiting for place in mesh.places.values()) == 1
    mesh.link("e", "d", 5)
    mesh.run(2)
    assert wanting.bodies == [b"1"], "back over b, where it had been"
    assert all(place.member.reroute.waiting == 0 for place in mesh.places.values())
    assert sum(place.engine.counters()["drop_no_route"] for place in mesh.places.values()) == 0


def test_an_answer_from_an_old_map_keeps_the_event_and_the_next_map_sends_it() -> None:
    """The way leads on over a link that is gone, and no other is known at that moment."""
    mesh, _, wanting = chain(undeliverable_bytes=4096)
    mesh.cut("e", "d")
    mesh.cut("c", "d")
    mesh.run(1)
    c = mesh.places["c"]
    c.engine.feed(c.ports["b"], events(SourceRoute((Step("c", 1, False), Step("d"))), 20))
    mesh.run(0.01)
    reroute = c.member.reroute
    assert reroute.waiting + reroute.crowded == 20
    assert reroute.crowded > 0, "the oldest are given up when there is no room"
    assert c.engine.counters()["drop_no_route"] == reroute.crowded
    kept = reroute.waiting
    mesh.link("c", "d", 1)
    mesh.run(2)
    assert [int(body) for body in wanting.bodies] == list(range(21 - kept, 21))
    assert reroute.waiting == 0


def events(source_route: SourceRoute, count: int) -> bytes:
    """Frames of a neighbour: so many events with that way."""
    raw = encode(source_route)
    frames = encode_frame(Kind.ISSUER, (9).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"p" * 16)
    frames += encode_frame(Kind.ROUTE, struct.pack(">IBBH", 999, ord("s"), 0, len(raw)) + raw + b"n")
    for number in range(1, count + 1):
        frames += encode_frame(Kind.EVENT, struct.pack(">IBBHI", 999, 4, 0, 9, number) + b"%d" % number)
    return frames


def test_an_event_that_was_planned_anew_often_waits_though_the_map_changes() -> None:
    """Else two nodes with wrong maps hand it to and fro until it may not be planned anew any more."""
    mesh, _, wanting = chain()
    mesh.cut("e", "d")
    mesh.cut("c", "d")
    mesh.run(1)
    c = mesh.places["c"]
    c.engine.feed(c.ports["b"], events(SourceRoute((Step("c", 1, False), Step("d")), reroutes=4), 1))
    mesh.run(0.01)
    mesh.link("c", "d", 1)
    mesh.run(0.5)
    assert (wanting.bodies, c.member.reroute.waiting) == ([], 1)
    mesh.run(1)
    assert (wanting.bodies, c.member.reroute.waiting) == ([b"1"], 0)


def test_what_waits_for_long_keeps_nothing_else_waiting() -> None:
    mesh, _, _ = chain()
    mesh.cut("e", "d")
    mesh.cut("c", "d")
    mesh.run(1)
    c = mesh.places["c"]
    reroute = c.member.reroute
    c.engine.feed(c.ports["b"], events(SourceRoute((Step("c", 1, False), Step("d"))), 1))
    mesh.run(10)
    mesh.run((reroute.next_ns - c.engine.mono_ns) / 1e9 + 0.01)
    assert reroute.next_ns - c.engine.mono_ns > 4 * AGAIN_NS, "it is looked at seldom by now"
    c.engine.feed(c.ports["b"], events(SourceRoute((Step("c", 1, False), Step("x"))), 1))
    mesh.run(0.01)
    assert reroute.waiting == 2
    assert reroute.next_ns - c.engine.mono_ns <= AGAIN_NS


def test_events_that_waited_too_long_are_given_up_and_counted() -> None:
    mesh = Members(undeliverable_ns=500 * MS)
    mesh.node("a")
    mesh.node("b")
    mesh.link("a", "b", 1)
    wanting, publisher = mesh.reader("b"), mesh.reader("a")
    wanting.subscribe("n")
    mesh.run(2)
    publisher.publish("n", b"1")
    mesh.cut("a", "b")
    mesh.run(2)
    reroute = mesh.places["a"].member.reroute
    assert (reroute.waiting, reroute.expired, reroute.crowded) == (0, 1, 0)
    assert mesh.places["a"].engine.counters()["drop_waited"] == 1


def test_a_neighbour_of_another_depth_is_refused_and_the_reason_names_both() -> None:
    mesh = Members()
    mesh.node("a", "east/hall")
    mesh.node("b", "east")
    mesh.link("a", "b")
    mesh.run(0.1)
    (refusal,) = mesh.places["a"].refusals
    assert "depth 1" in refusal.reason
    assert "depth 2" in refusal.reason
    assert mesh.places["a"].member.state.vertex_ids() == []


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        (MeshJoin(name="mallory", unit="", link=bytes(16)), "joins as 'mallory'"),
        (MeshJoin(name="b", unit="", link=b"short"), "16 bytes"),
        (MeshJoin(name="b", unit="a//b", link=bytes(16)), "name of a unit"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(join: MeshJoin, reason: str) -> None:
    mesh = Members()
    place = mesh.node("a")
    port = place.engine.open_port(peer=True)
    place.member.receive(port, Connected("b"), mesh.now_ns)
    _, output = place.member.receive(port, join, mesh.now_ns)
    assert reason in getattr(output, "reason", "")
    assert place.member.refused == 1


def test_nothing_is_believed_before_the_join() -> None:
    mesh = Members()
    stranger = mesh.node("z")
    port = stranger.engine.open_port(peer=True)
    stranger.member.receive(port, Connected("b"), mesh.now_ns)
    told = LinkAdvert(origin="b", level=0, scope="", originator="b", sequence=1)
    (output,) = stranger.member.receive(port, stated(told), mesh.now_ns)
    assert getattr(output, "level", "") == "warning"
    assert stranger.member.state.vertex_ids() == []


@pytest.mark.spec("MR-110")
def test_costs_that_are_told_are_events_of_the_node() -> None:
    mesh = square()
    mesh.run(4)
    told = [publish for publish in mesh.places["a"].published if publish.topic.startswith("PBR/PerformanceData")]
    assert told
    fact = json.loads(told[-1].body)
    assert fact["origin"] == "a"
    assert fact["cost"] > 0
    assert len(bytes.fromhex(fact["link"])) == 16


def test_a_queue_group_gets_each_event_at_one_place() -> None:
    mesh = square()
    members = [mesh.reader(name) for name in "bcd"]
    for member in members:
        member.subscribe("jobs", group="workers")
    publisher = mesh.reader("a")
    mesh.run(2)
    for number in range(30):
        publisher.publish("jobs", b"%d" % number)
    mesh.run(0.5)
    assert sorted(int(body) for member in members for body in member.bodies) == list(range(30))


def test_a_bad_pattern_or_one_group_too_many_changes_nothing() -> None:
    member = Member(MemberParts(Address.parse("", "a"), Engine(), MemberSettings(), random.Random(1)))
    member.subscriptions.max_groups = 1
    member.subscribed("s", "a", "one")
    with pytest.raises(RefusedError):
        member.subscribed("s", "a", "two")
    member.unsubscribed("s", "never/there")
    assert [pattern.group for pattern in member.subscriptions.patterns()] == ["one"]


def test_a_tick_with_nothing_to_do_costs_microseconds() -> None:
    mesh = square()
    mesh.run(3)
    member = mesh.places["a"].member
    member.collect(mesh.now_ns)
    member.tick(mesh.now_ns)
    best = 1.0
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(100):
            member.collect(mesh.now_ns)
            member.tick(mesh.now_ns)
            member.probe(mesh.now_ns)
        best = min(best, (time.perf_counter() - begun) / 100)
    assert best < 50e-6


def test_publications_are_read_once_a_tick_and_their_notice_follows_in_the_next() -> None:
    """A client may advertise thousands of topics: neither each request nor one turn of the loop pays for all."""
    member = Member(MemberParts(Address.parse("", "a"), Engine(), MemberSettings(), random.Random(1)))
    reads: list[int] = []

    def offered() -> list[tuple[str, str]]:
        reads.append(1)
        return [("s", "plant/#")]

    for _ in range(100):
        member.advertise(offered)
    first, second, third = (
        [output for output in member.tick(now_ns) if isinstance(output, Publish)]
        for now_ns in (SECOND, SECOND + 1, SECOND + 2)
    )
    assert reads == [1]
    assert (first, third) == ([], [])
    (notice,) = second
    assert json.loads(notice.body)["publications"] == [{"kind": "s", "topic": "plant/#"}]
