"""What the engine does with source routes: it asks once, copies to next hops, and survives whoever answers."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from chappe.engine._engine import Engine, ForwardingDecision
from chappe.errors import ProtocolError
from tests.model.engine import EVENT, ISSUER, ROUTE, TOPIC, frame
from tests.unit.engine.test_engine import PUBLISHER, SUBSCRIBER, define, event, kinds, split, written


def route(number: int, by: bytes, topic: str) -> bytes:
    return frame(ROUTE, struct.pack(">IBBH", number, ord("s"), 0, len(by)) + by + topic.encode())


def issuer(number: int, session: bytes) -> bytes:
    return frame(ISSUER, struct.pack(">II", number, 1) + session)


class Guide:
    """Answers for a mesh, and remembers what it was asked."""

    def __init__(self) -> None:
        self.publish: dict[bytes, Any] = {}
        self.forward: dict[bytes, Any] = {}
        self.asked: list[tuple[Any, ...]] = []

    def engine(self, **more: Any) -> Engine:
        return Engine(plan_route=self._publish, forward_route=self._forward, **more)

    def _publish(self, kind: str, topic: bytes) -> Any:
        self.asked.append((kind, topic))
        return self._answer(self.publish.get(topic, ForwardingDecision(True)))

    def _forward(self, port: int, source_route: bytes, kind: str, topic: bytes) -> Any:
        self.asked.append((port, source_route, kind, topic))
        return self._answer(self.forward.get(source_route, ForwardingDecision(True)))

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


def routes(data: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Number -> (source route, topic) of the ROUTE frames in what a port wrote."""
    found = {}
    for kind, payload in split(data):
        if kind == ROUTE:
            number, _, zero, size = struct.unpack(">IBBH", payload[:8])
            assert zero == 0
            found[number] = payload[8 : 8 + size], payload[8 + size :]
    return found


def events(data: bytes) -> list[tuple[int, bytes]]:
    return [(struct.unpack(">I", payload[:4])[0], payload[12:]) for kind, payload in split(data) if kind == EVENT]


def relay() -> tuple[Guide, Engine, int, list[int], int]:
    """A node with one neighbour that sends, two that get, and a subscriber."""
    guide = Guide()
    engine = guide.engine()
    inward = engine.open_port(peer=True)
    outward = [engine.open_port(peer=True) for _ in range(2)]
    client = engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(client, "#")
    engine.feed(inward, issuer(0, PUBLISHER))
    return guide, engine, inward, outward, client


def test_a_source_route_is_asked_for_once_and_next_hops_get_their_own() -> None:
    guide, engine, inward, outward, client = relay()
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[0], b"left"), (outward[1], b"right")])
    engine.feed(inward, route(7, b"in", "a/b"))
    assert guide.asked == []
    engine.feed(inward, b"".join(event(i, b"%d" % i, number=7) for i in range(1, 101)))
    assert guide.asked == [(inward, b"in", "s", b"a/b")]
    for port, by in zip(outward, (b"left", b"right"), strict=True):
        data = written(engine, port)
        (number,) = routes(data)
        assert routes(data)[number] == (by, b"a/b")
        assert events(data) == [(number, b"%d" % i) for i in range(1, 101)]
        assert engine.port_counters(port)["routed_out"] == engine.port_counters(port)["events_out"] == 100
    data = written(engine, client)
    assert [body for _, body in events(data)] == [b"%d" % i for i in range(1, 101)]
    assert [kind for kind, _ in split(data)].count(TOPIC) == 1
    assert engine.port_counters(inward)["routed_in"] == 100
    assert written(engine, inward) == b""


def test_new_routes_are_asked_for_at_the_next_event_and_subscriptions_do_not_ask() -> None:
    guide, engine, inward, outward, client = relay()
    guide.forward[b"in"] = ForwardingDecision(False, [(outward[0], b"x")])
    engine.feed(inward, route(7, b"in", "a") + event(1, number=7))
    engine.topics.subscribe(client, "other")
    engine.feed(inward, event(2, number=7))
    assert len(guide.asked) == 1
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[1], b"x")])
    engine.topics.forwarding_changed()
    engine.feed(inward, event(3, number=7) + event(4, number=7))
    assert len(guide.asked) == 2
    assert len(events(written(engine, outward[0]))) == 2
    assert len(events(written(engine, outward[1]))) == 2
    assert [body for _, body in events(written(engine, client))] == [b"body", b"body"]


def test_the_same_definition_again_is_not_asked_again() -> None:
    guide, engine, inward, _, _ = relay()
    engine.feed(inward, route(7, b"in", "a") + event(1, number=7))
    engine.feed(inward, route(7, b"in", "a") + event(2, number=7))
    assert len(guide.asked) == 1
    engine.feed(inward, route(7, b"in", "b") + event(3, number=7))
    engine.feed(inward, route(7, b"other", "b") + event(4, number=7))
    assert [topic for *_, topic in guide.asked] == [b"a", b"b", b"b"]
    engine.feed(inward, define(7, "b") + event(5, number=7))
    assert len(guide.asked) == 3


def test_events_of_clients_take_the_planned_route_and_reach_their_own_node() -> None:
    guide, engine, _, outward, client = relay()
    publisher = engine.open_port(issuer=b"q" * 16)
    guide.publish[b"a"] = ForwardingDecision(True, [(outward[0], b"w")])
    engine.feed(publisher, define(1, "a") + define(2, "b"))
    engine.feed(publisher, event(1) + event(2, number=2) + event(3))
    assert guide.asked == [("s", b"a"), ("s", b"b")]
    assert len(events(written(engine, outward[0]))) == 2
    assert len(events(written(engine, client))) == 3


def test_plain_topics_of_peers_ask_nobody() -> None:
    guide, engine, inward, outward, client = relay()
    engine.topics.subscribe(outward[0], "a")  # a static route
    engine.feed(inward, define(1, "a") + event(1))
    assert guide.asked == []
    assert len(events(written(engine, outward[0]))) == len(events(written(engine, client))) == 1


def test_a_peer_with_a_static_route_and_a_source_route_gets_the_latter_only() -> None:
    guide, engine, inward, outward, _ = relay()
    engine.topics.subscribe(outward[0], "a")
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[0], b"w")])
    engine.feed(inward, route(1, b"in", "a") + event(1))
    data = written(engine, outward[0])
    assert [number in routes(data) for number, _ in events(data)] == [True]


def test_only_listed_groups_are_served() -> None:
    guide, engine, inward, _, client = relay()
    engine.topics.unsubscribe(client, "#")
    for group in ("g", "h"):
        engine.topics.subscribe(client, "a", group=group)
    guide.forward[b"in"] = ForwardingDecision(True, groups=("h",))
    engine.feed(inward, route(1, b"in", "a") + event(1) + event(2))
    data = written(engine, client)
    assert len(events(data)) == 2
    assert [payload[6:] for kind, payload in split(data) if kind == TOPIC] == [b"ha"]
    engine.topics.subscribe(client, "a", group="early")
    guide.forward[b"in"] = ForwardingDecision(True, groups=("early", "g"))
    engine.topics.forwarding_changed()
    engine.feed(inward, event(3))
    assert len(events(written(engine, client))) == 2


def test_a_repeat_is_not_delivered_again_but_follows_its_route() -> None:
    """It may come by another route for others: whether it was passed on there cannot be known from its identity."""
    guide, engine, inward, outward, client = relay()
    guide.forward = {
        b"first": ForwardingDecision(True, [(outward[0], b"x")]),
        b"second": ForwardingDecision(True, [(outward[1], b"y")]),
        b"third": ForwardingDecision(True),
    }
    engine.feed(inward, b"".join(route(n, by, "a") for n, by in enumerate((b"first", b"second", b"third"))))
    engine.feed(inward, event(1, number=0) + event(1, number=1) + event(1, number=2))
    assert [len(events(written(engine, port))) for port in (*outward, client)] == [1, 1, 1]
    assert engine.port_counters(inward)["drop_duplicate"] == 2


def test_an_event_that_was_only_passed_on_is_delivered_when_another_copy_says_so() -> None:
    guide, engine, inward, outward, client = relay()
    guide.forward = {b"through": ForwardingDecision(False, [(outward[0], b"x")]), b"here": ForwardingDecision(True)}
    engine.feed(inward, route(0, b"through", "a") + route(1, b"here", "a"))
    engine.feed(inward, event(1, number=0) + event(1, number=0) + event(1, number=1) + event(1, number=1))
    assert len(events(written(engine, client))) == 1
    assert len(events(written(engine, outward[0]))) == 2
    assert engine.port_counters(inward)["drop_duplicate"] == 1


NO_DECISIONS = [
    ValueError("no map"),
    None,
    (True, [], 0, None, b"", False, 0, 0),
    ForwardingDecision(True, [(1, "text")]),  # type: ignore[list-item]
    ForwardingDecision(True, withheld_by_rules=-1),
]


@pytest.mark.parametrize("answer", NO_DECISIONS)
def test_an_error_of_whoever_is_asked_ends_there(answer: Any) -> None:
    guide, engine, inward, outward, client = relay()
    publisher = engine.open_port(issuer=b"q" * 16)
    guide.forward[b"in"] = guide.publish[b"a"] = answer
    engine.feed(inward, route(1, b"in", "a") + event(1) + event(2))
    engine.feed(publisher, define(1, "a") + event(1))
    assert len(guide.asked) == 2
    assert engine.route_error is not None
    assert [engine.port_counters(port)["route_errors"] for port in (inward, publisher)] == [1, 1]
    assert [engine.port_counters(port)["drop_no_route"] for port in (inward, publisher)] == [2, 1]
    assert ("topic", "a", "drop_no_route", 3) in engine.address_drops()
    assert len(events(written(engine, client))) == 1, "subscribers of this node need no route"
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[0], b"x")])
    engine.topics.forwarding_changed()
    engine.feed(inward, event(3))
    assert len(events(written(engine, outward[0]))) == 1


def test_answers_that_lead_nowhere_are_counted() -> None:
    guide, engine, inward, outward, client = relay()
    engine.close_port(outward[1])
    guide.forward = {
        b"nothing": ForwardingDecision(False),
        b"back": ForwardingDecision(False, [(inward, b"x")]),
        b"closed": ForwardingDecision(False, [(outward[1], b"x"), (outward[0], b"x")]),
        b"client": ForwardingDecision(False, [(client, b"x")]),
        b"nobody": ForwardingDecision(False, [(99, b"x"), (-1, b"x")]),
        b"empty": ForwardingDecision(False, [(outward[0], b"")]),
        b"long": ForwardingDecision(False, [(outward[0], bytes(65536))]),
    }
    for number, by in enumerate(guide.forward):
        engine.feed(inward, route(number, by, "a") + event(number + 1, number=number))
    assert engine.port_counters(inward)["drop_no_route"] == 8
    assert len(events(written(engine, outward[0]))) == 1
    assert events(written(engine, client)) == events(written(engine, inward)) == []


def test_a_closed_neighbour_is_asked_around_and_its_number_may_come_back_as_a_client() -> None:
    guide, engine, inward, outward, _ = relay()
    guide.forward[b"in"] = ForwardingDecision(False, [(outward[0], b"x")])
    engine.feed(inward, route(1, b"in", "a") + event(1))
    engine.close_port(outward[0])
    assert engine.free_port(outward[0])
    assert engine.open_port(issuer=b"n" * 16) == outward[0]
    guide.forward[b"in"] = ForwardingDecision(False, [(outward[1], b"y")])
    engine.feed(inward, event(2))
    assert len(guide.asked) == 2
    assert written(engine, outward[0]) == b""
    assert len(events(written(engine, outward[1]))) == 1


def test_a_parked_neighbour_gets_definitions_and_events_when_it_is_back() -> None:
    guide, engine, inward, _, _ = relay()
    port = engine.open_port(peer=True, retain=True)
    guide.forward[b"in"] = ForwardingDecision(False, [(port, b"x")])
    engine.feed(inward, route(1, b"in", "a") + event(1))
    assert len(events(written(engine, port))) == 1
    engine.park_port(port)
    engine.feed(inward, event(2))
    engine.resume_port(port)
    data = written(engine, port)
    (number,) = routes(data)
    assert [found for found, _ in events(data)] == [number, number]
    assert len(guide.asked) == 1


def test_a_route_from_a_client_is_a_bad_frame() -> None:
    engine = Engine()
    port = engine.open_port(issuer=PUBLISHER)
    with pytest.raises(ProtocolError, match="ROUTE from a client"):
        engine.feed(port, route(1, b"w", "a"))


def test_routed_topics_are_bounded_and_their_numbers_come_back() -> None:
    guide = Guide()
    engine = guide.engine(max_routed_topics=10)
    inward, outward = engine.open_port(peer=True), engine.open_port(peer=True)
    engine.feed(inward, issuer(0, PUBLISHER))
    engine.feed(inward, route(1, b"in", "a"))
    highest = 0
    for turn in range(1, 200):
        guide.forward[b"in"] = ForwardingDecision(False, [(outward, b"route %d" % turn)])
        engine.topics.forwarding_changed()
        engine.feed(inward, event(turn))
        data = written(engine, outward)
        assert [body for _, body in events(data)] == [b"body"]
        assert routes(data)[events(data)[0][0]] == (b"route %d" % turn, b"a")
        highest = max(highest, *routes(data))
    assert highest <= 12
    assert engine.topics.routed_topics <= 10
    # without room the next hop is left out and counted
    next_hops = [(outward, b"many %d" % i) for i in range(30)]
    guide.forward[b"in"] = ForwardingDecision(False, next_hops)
    engine.topics.forwarding_changed()
    engine.feed(inward, event(200))
    sent = len(events(written(engine, outward)))
    assert 0 < sent <= 10
    assert engine.port_counters(inward)["drop_no_route"] == 30 - sent


def test_unused_routes_do_not_pile_up() -> None:
    guide = Guide()
    engine = guide.engine()
    inward, outward = engine.open_port(peer=True), engine.open_port(peer=True)
    engine.feed(inward, issuer(0, PUBLISHER) + route(1, b"in", "a"))
    for turn in range(1, 5000):
        guide.forward[b"in"] = ForwardingDecision(False, [(outward, b"route %d" % turn)])
        engine.topics.forwarding_changed()
        engine.feed(inward, event(turn))
        written(engine, outward)
    assert engine.topics.routed_topics < 2100


def test_nothing_is_allocated_while_routes_stay() -> None:
    guide, engine, inward, outward, client = relay()
    guide.forward[b"in"] = ForwardingDecision(True, [(port, b"x") for port in outward])
    engine.feed(inward, route(1, b"in", "a"))

    def turn(first: int) -> None:
        engine.feed(inward, b"".join(event(first + i) for i in range(50)))
        for port in (*outward, client):
            written(engine, port)

    turn(1)
    before = engine.allocations
    for first in range(51, 1000, 50):
        turn(first)
    assert engine.allocations == before


def test_freeing_a_port_gives_its_source_routes_back() -> None:
    guide, engine, inward, outward, _ = relay()
    before = engine.memory_bytes()
    guide.forward[b"w" * 60000] = ForwardingDecision(False, [(outward[0], b"x")])
    for number in range(20):
        engine.feed(inward, route(number, b"w" * 60000, f"t/{number}") + event(number + 1, number=number))
    assert engine.memory_bytes() > before + 1_000_000
    engine.close_port(inward)
    assert engine.free_port(inward)
    written(engine, outward[0])
    assert engine.memory_bytes() < before + 200_000


def test_a_link_that_defines_too_many_bytes_of_source_routes_loses_the_events_not_the_node() -> None:
    _, engine, inward, _, _ = relay()
    for number in range(300):
        engine.feed(inward, route(number, bytes([1]) * 65000, f"t/{number}"))
    engine.feed(inward, event(1, number=1) + event(2, number=299))
    assert engine.port_counters(inward)["drop_no_room"] == 1
    assert kinds(engine, inward, EVENT) == []


def test_a_next_hop_leads_back_only_where_the_answer_says_so() -> None:
    guide, engine, inward, _, _ = relay()
    guide.forward[b"ordinary"] = ForwardingDecision(False, [(inward, b"x")])
    guide.forward[b"rerouted"] = ForwardingDecision(False, [(inward, b"x")], may_return=True)
    engine.feed(inward, route(1, b"ordinary", "a") + event(1, b"1"))
    assert events(written(engine, inward)) == []
    assert engine.port_counters(inward)["drop_no_route"] == 1
    engine.feed(inward, route(2, b"rerouted", "a") + event(2, b"2", number=2))
    assert [body for _, body in events(written(engine, inward))] == [b"2"]


def test_what_cannot_be_reached_is_kept_and_the_next_hops_go_on() -> None:
    guide, engine, inward, outward, client = relay()
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[0], b"on")], unreachable=b"rest")
    engine.feed(inward, route(1, b"in", "a") + event(1, b"1") + event(2, b"2"))
    assert [body for _, body in events(written(engine, outward[0]))] == [b"1", b"2"]
    assert [body for _, body in events(written(engine, client))] == [b"1", b"2"]
    kept = engine.take_undeliverable()
    assert [(item.issuer, item.sequence, item.topic, item.source_route, item.frame[16:]) for item in kept] == [
        (PUBLISHER, 1, b"a", b"rest", b"1"),
        (PUBLISHER, 2, b"a", b"rest", b"2"),
    ]
    assert engine.take_undeliverable() == []
    assert engine.counters()["drop_no_route"] == 0
    engine.reroute(kept[0], [(outward[1], b"later")])
    data = written(engine, outward[1])
    assert list(routes(data).values()) == [(b"later", b"a")]
    assert [body for _, body in events(data)] == [b"1"]
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[0], b"on")])
    engine.topics.forwarding_changed()
    engine.feed(inward, event(3, b"3"))
    assert engine.take_undeliverable() == []


def test_events_of_clients_are_kept_and_repeats_follow_them() -> None:
    guide, engine, inward, _, _ = relay()
    publisher = engine.open_port(issuer=b"q" * 16)
    guide.publish[b"a"] = ForwardingDecision(True, unreachable=b"far")
    engine.feed(publisher, define(1, "a") + event(1, b"1"))
    assert [item.frame[16:] for item in engine.take_undeliverable()] == [b"1"]
    guide.forward[b"in"] = ForwardingDecision(True, unreachable=b"rest")
    engine.feed(inward, route(1, b"in", "a") + event(1, b"1") + event(1, b"1"))
    assert len(engine.take_undeliverable()) == 2, "the first copy may have had another route"


def test_what_is_kept_is_bounded_and_counted_by_topic() -> None:
    guide, engine, inward, _, _ = relay()
    guide.forward[b"in"] = ForwardingDecision(False, unreachable=b"rest")
    engine.feed(inward, route(1, b"in", "a"))
    for number in range(1, 201):
        engine.feed(inward, event(number, bytes(60_000)))
    kept = engine.take_undeliverable()
    assert 8_000_000 < sum(len(item.frame) for item in kept) <= 8 << 20
    assert engine.counters()["drop_no_route"] == 200 - len(kept)
    assert ("topic", "a", "drop_no_route", 200 - len(kept)) in engine.address_drops()
    engine.drop_undelivered(kept[0], waited=True)
    assert ("topic", "a", "drop_waited", 1) in engine.address_drops()


def test_an_answer_with_a_destination_route_that_is_no_route_is_an_error_that_ends_there() -> None:
    guide, engine, inward, _, client = relay()
    guide.forward[b"in"] = ForwardingDecision(True, unreachable="text")  # type: ignore[arg-type]
    engine.feed(inward, route(1, b"in", "a") + event(1))
    assert engine.port_counters(inward)["route_errors"] == 1
    assert engine.take_undeliverable() == []
    assert events(written(engine, client)) == []


def test_the_newest_event_of_a_client_that_comes_back_to_its_node_is_a_repeat() -> None:
    guide, engine, inward, outward, client = relay()
    publisher = engine.open_port(issuer=b"q" * 16)
    guide.publish[b"a"] = ForwardingDecision(True, [(inward, b"on")])
    guide.forward[b"in"] = ForwardingDecision(True, [(outward[0], b"further")])
    engine.feed(publisher, define(1, "a") + event(1, b"1") + event(2, b"2"))
    engine.feed(inward, issuer(1, b"q" * 16) + route(1, b"in", "a") + event(2, b"2", issuer=1))
    assert [body for _, body in events(written(engine, client))] == [b"1", b"2"]
    assert engine.port_counters(inward)["drop_duplicate"] == 1
    assert [body for _, body in events(written(engine, outward[0]))] == [b"2"], "it follows its route all the same"
    engine.feed(inward, event(1, b"1", issuer=1) + event(3, b"3", issuer=1))
    assert [body for _, body in events(written(engine, client))] == [b"3"]
