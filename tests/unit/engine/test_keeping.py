"""Events that wait so that nothing is overtaken, and events of a neighbour that was lost."""

from __future__ import annotations

import pytest

from chappe.engine._engine import Engine, ForwardingDecision, Undelivered
from chappe.errors import ChappeError
from tests.model.engine import ECHO, EVENT, frame
from tests.unit.engine.test_engine import PUBLISHER, SUBSCRIBER, define, event, kinds, split, written
from tests.unit.engine.test_forwarding import Guide, events, issuer, relay, route, routes

MS = 1_000_000


def source() -> tuple[Guide, Engine, int, int, int]:
    """A publisher, a subscriber and a neighbour of its node."""
    guide = Guide()
    engine = guide.engine()
    publisher, client = engine.open_port(issuer=PUBLISHER), engine.open_port(issuer=SUBSCRIBER)
    neighbour = engine.open_port(peer=True)
    engine.topics.subscribe(client, "#")
    engine.feed(publisher, define(1, "a") + define(2, "b"))
    return guide, engine, publisher, client, neighbour


def bodies(engine: Engine, port: int) -> list[bytes]:
    return [body for _, body in events(written(engine, port))]


def test_events_on_a_new_route_wait_and_keep_their_order() -> None:
    guide, engine, publisher, client, neighbour = source()
    guide.publish[b"a"] = guide.publish[b"b"] = ForwardingDecision(True, [(neighbour, b"old")])
    engine.feed(publisher, event(1, b"1"))
    assert bodies(engine, neighbour) == [b"1"]
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"new")], 5 * MS)
    engine.topics.forwarding_changed()
    engine.feed(publisher, event(2, b"2") + event(3, b"b", number=2) + event(4, b"3", priority=6))
    assert bodies(engine, client) == [b"1", b"2", b"b", b"3"], "subscribers of this node wait for nothing"
    told = written(engine, neighbour)
    assert [body for _, body in events(told)] == [b"b"]
    assert engine.held_ns() == 5 * MS
    engine.clock(3 * MS, 0)
    assert engine.held_ns() == 2 * MS
    assert engine.release_held() == 0
    engine.feed(publisher, event(5, b"4"))
    engine.clock(5 * MS, 0)
    assert engine.held_ns() == 0
    assert engine.release_held() == 3
    assert engine.held_ns() == -1
    data = written(engine, neighbour)
    assert sorted(body for _, body in events(data)) == [b"2", b"3", b"4"]
    assert [body for _, body in events(data)].index(b"2") < [body for _, body in events(data)].index(b"4")
    assert {routes(told)[number] for number, _ in events(data)} == {(b"new", b"a")}
    engine.feed(publisher, event(6, b"5"))
    assert bodies(engine, neighbour) == [b"5"]
    assert engine.port_counters(publisher)["held"] == 3


def test_an_event_after_the_time_takes_those_before_it_along() -> None:
    guide, engine, publisher, _, neighbour = source()
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"new")], 5 * MS)
    engine.feed(publisher, event(1, b"1"))
    engine.clock(6 * MS, 0)
    engine.feed(publisher, event(2, b"2"))
    assert bodies(engine, neighbour) == [b"1", b"2"]
    assert engine.held_ns() == -1


def test_routes_that_change_while_events_wait_take_them_along() -> None:
    guide, engine, publisher, _, neighbour = source()
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"gone")], 5 * MS)
    engine.feed(publisher, event(1, b"1"))
    engine.close_port(neighbour)
    other = engine.open_port(peer=True)
    guide.publish[b"a"] = ForwardingDecision(True, [(other, b"new")])
    engine.clock(5 * MS, 0)
    assert engine.release_held() == 1
    assert bodies(engine, other) == [b"1"]
    guide.publish[b"a"] = ForwardingDecision(True, [(other, b"newer")], 5 * MS)
    engine.topics.forwarding_changed()
    engine.feed(publisher, event(2, b"2"))
    guide.publish[b"a"] = ForwardingDecision(True)
    engine.topics.forwarding_changed()
    engine.clock(20 * MS, 0)
    assert engine.release_held() == 1
    assert bodies(engine, other) == []
    assert engine.counters()["unrouted"] == 1


def test_waiting_events_are_bounded_and_leave_early() -> None:
    guide, engine, publisher, _, neighbour = source()
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"new")], 5 * MS)
    sequence = 0
    while engine.port_counters(publisher)["held_early"] == 0:
        sequence += 1
        engine.feed(publisher, event(sequence, bytes(4000)))
        assert sequence < 2000
    assert engine.port_counters(publisher)["held_early"] == sequence
    assert 4 << 20 <= sequence * 4016 <= (4 << 20) + 8192
    assert engine.held_ns() == -1
    received = engine.port_counters(neighbour)
    assert received["events_out"] + received["drop_queue_full"] == sequence


def test_what_waits_survives_its_publisher_and_its_numbers_are_not_given_away() -> None:
    guide = Guide()
    engine = guide.engine(max_topics=2, max_issuers=1)
    neighbour, publisher = engine.open_port(peer=True), engine.open_port(issuer=PUBLISHER)
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"new")], 5 * MS)
    engine.feed(publisher, define(1, "a") + event(1, b"1"))
    engine.close_port(publisher)
    assert engine.free_port(publisher)
    for number in range(5):
        port = engine.open_port(issuer=bytes([number]) * 16)
        engine.feed(port, define(1, f"t/{number}") + event(1))
        engine.close_port(port)
        engine.free_port(port)
    engine.clock(5 * MS, 0)
    assert engine.release_held() == 1
    data = written(engine, neighbour)
    assert [(routes(data)[number], body) for number, body in events(data)] == [((b"new", b"a"), b"1")]
    sessions = {payload[1:4]: payload[8:] for kind, payload in split(data) if kind == 0x22}
    assert sessions[next(payload for kind, payload in split(data) if kind == EVENT)[5:8]] == PUBLISHER


def lost() -> tuple[Guide, Engine, int, int, int]:
    """A neighbour that went away with three events unconfirmed, the second of class 1, and one plain one."""
    guide, engine, inward, (spare, _), _ = relay()
    gone = engine.open_port(peer=True, retain=True)
    engine.topics.subscribe(gone, "plain")
    guide.forward[b"in"] = ForwardingDecision(False, [(gone, b"there")])
    engine.feed(inward, route(1, b"in", "a") + define(2, "plain"))
    engine.feed(inward, event(1, b"1") + event(2, b"p", number=2) + event(3, b"2", priority=1))
    written(engine, gone)
    engine.feed(inward, event(4, b"3"))
    return guide, engine, inward, spare, gone


def test_unconfirmed_events_are_taken_with_their_identity_and_rerouted() -> None:
    guide, engine, _, spare, gone = lost()
    engine.park_port(gone)
    taken = engine.take_unconfirmed(gone, 2) + engine.take_unconfirmed(gone, 2)
    assert engine.take_unconfirmed(gone) == []
    assert [(item.sequence, item.frame[16:]) for item in taken] == [(3, b"2"), (1, b"1"), (4, b"3")]
    assert {(item.issuer, item.epoch, item.kind, item.topic, item.source_route) for item in taken} == {
        (PUBLISHER, 1, "s", b"a", b"there")
    }
    assert engine.port_counters(gone)["rerouted"] == 3
    engine.close_port(gone)
    assert engine.port_counters(gone)["drop_closed"] == 0, "the plain event had been written"
    assert [engine.reroute(item, [(spare, b"round")]) for item in taken] == [1, 1, 1]
    data = written(engine, spare)
    assert set(routes(data).values()) == {(b"round", b"a")}
    found = [payload for kind, payload in split(data) if kind == EVENT]
    assert sorted(payload[12:] for payload in found) == [b"1", b"2", b"3"]
    assert all(payload[4] & 0x20 for payload in found), "marked as sent again"
    # a receiver that has one of them already delivers the others only
    far, guide.forward[b"round"] = guide.engine(), ForwardingDecision(True)
    port, client = far.open_port(peer=True), far.open_port(issuer=SUBSCRIBER)
    far.topics.subscribe(client, "#")
    far.feed(port, issuer(9, PUBLISHER) + route(9, b"round", "a") + event(1, b"1", number=9, issuer=9))
    far.feed(port, data)
    assert sorted(bodies(far, client)) == [b"1", b"2", b"3"]


def test_confirmed_events_and_open_ports() -> None:
    _, engine, _, _, gone = lost()
    probes = [payload for kind, payload in split(written(engine, gone)) if kind == 0x04]
    assert probes == [], "one is under way in that class"
    taken = engine.take_unconfirmed(gone)
    assert len(taken) == 3
    assert engine.open_ports().count(gone) == 1
    assert bytes(engine.peek(gone)) == b"", "given up"
    engine.resume_port(gone)
    assert kinds(engine, gone, EVENT) != [], "the plain event is still kept for it"


def test_redirect_counts_what_it_cannot_send_and_refuses_what_is_no_event() -> None:
    _, engine, inward, spare, gone = lost()
    item = engine.take_unconfirmed(gone)[0]
    engine.close_port(gone)
    assert engine.reroute(item, [(gone, b"x"), (inward + 99, b"x"), (spare, b"")]) == 0
    assert engine.counters()["drop_no_route"] == 3
    with pytest.raises(ChappeError, match="take_unconfirmed"):
        engine.reroute(Undelivered(PUBLISHER, 1, 1, "s", b"a", b"w", b"\x05\0\0\0"), [(spare, b"x")])
    with pytest.raises(ChappeError, match="take_unconfirmed"):
        engine.reroute(item._replace(topic=b"a/+"), [(spare, b"x")])


def test_events_wait_for_ten_seconds_at_most() -> None:
    guide, engine, publisher, _, neighbour = source()
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"new")], 60_000 * MS)
    engine.feed(publisher, event(1, b"1"))
    assert engine.held_ns() == 10_000 * MS
    engine.clock(9_999 * MS, 0)
    assert engine.release_held() == 0
    engine.clock(10_000 * MS, 0)
    assert engine.release_held() == 1
    assert bodies(engine, neighbour) == [b"1"]


def test_events_that_waited_and_then_have_no_route_are_kept() -> None:
    guide, engine, publisher, _, neighbour = source()
    guide.publish[b"a"] = ForwardingDecision(True, [(neighbour, b"new")], 5 * MS)
    engine.feed(publisher, event(1, b"1"))
    guide.publish[b"a"] = ForwardingDecision(True, unreachable=b"rest")
    engine.topics.forwarding_changed()
    engine.clock(5 * MS, 0)
    assert engine.release_held() == 1
    assert [(item.source_route, item.frame[16:]) for item in engine.take_undeliverable()] == [(b"rest", b"1")]
    assert engine.counters()["drop_no_route"] == 0


def test_a_lost_neighbour_had_some_of_the_events() -> None:
    guide, engine, inward, _, _ = relay()
    gone = engine.open_port(peer=True, retain=True)
    engine.topics.subscribe(gone, "plain")
    guide.forward[b"in"] = ForwardingDecision(False, [(gone, b"there")])
    engine.feed(inward, route(1, b"in", "a") + define(2, "plain") + event(1, b"1") + event(2, b"p", number=2))
    (asked,) = [payload[:8] for kind, payload in split(written(engine, gone)) if kind == 0x04]
    token = int.from_bytes(asked, "big")
    engine.feed(gone, frame(ECHO, (token & ~(1 << 60)).to_bytes(8, "big") + bytes(8)))
    engine.feed(inward, event(3, b"3"))
    engine.park_port(gone)
    engine.resume_port(gone)
    assert bodies(engine, gone) == [b"1", b"3"], "it has the plain one, and may not have passed the first one on"
    engine.park_port(gone)
    assert [(item.sequence, item.received) for item in engine.take_unconfirmed(gone)] == [(1, False), (3, False)]
