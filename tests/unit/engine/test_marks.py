"""A node that has not passed an event on says only that it has it: the node before keeps it until the next ones do."""

from __future__ import annotations

import struct

from chappe.engine._engine import Engine, ForwardingDecision
from tests.model.engine import ECHO, EVENT, PROBE, frame
from tests.unit.engine.test_engine import PUBLISHER, SUBSCRIBER, define, event, split, written
from tests.unit.engine.test_forwarding import Guide, events, issuer, route

PASSED_ON = 1 << 60
ASKED = 1 << 63 | 2 << 61 | PASSED_ON  # class 2: events have priority 4 unless told otherwise


def probe(token: int) -> bytes:
    return frame(PROBE, struct.pack(">QQ", token, 5))


def echo(token: int) -> bytes:
    return frame(ECHO, struct.pack(">QQ", token, 5))


def tokens(data: bytes, kind: int = ECHO) -> list[int]:
    return [struct.unpack(">Q", payload[:8])[0] for found, payload in split(data) if found == kind]


def between() -> tuple[Guide, Engine, int, int, int]:
    """A node on a route: events come on one link and go on by another; a third leads elsewhere."""
    guide = Guide()
    engine = guide.engine()
    inward, outward, spare = (engine.open_port(peer=True, retain=True) for _ in range(3))
    guide.forward[b"in"] = ForwardingDecision(False, [(outward, b"on")])
    engine.feed(inward, issuer(0, PUBLISHER) + route(1, b"in", "a") + define(2, "plain"))
    return guide, engine, inward, outward, spare


def test_an_event_is_confirmed_at_once_and_given_free_when_the_next_node_has_it() -> None:
    _, engine, inward, outward, _ = between()
    engine.feed(inward, event(1, b"1") + probe(ASKED | 7))
    assert tokens(written(engine, inward)) == [(ASKED | 7) & ~PASSED_ON], "it came, and is nowhere else yet"
    (asked,) = tokens(written(engine, outward), PROBE)
    assert asked & PASSED_ON
    engine.feed(outward, echo(asked & ~PASSED_ON))
    assert tokens(written(engine, inward)) == [ASKED | 7], "the next node has it: whether it passed it on is its affair"
    assert engine.unacknowledged(outward) > 0
    engine.feed(outward, echo(asked))
    assert engine.unacknowledged(outward) == 0


def test_what_ends_here_or_has_no_route_is_confirmed_with_one_echo() -> None:
    guide, engine, inward, _, _ = between()
    client = engine.open_port(issuer=SUBSCRIBER)
    engine.topics.subscribe(client, "#")
    guide.forward[b"here"] = ForwardingDecision(True)
    engine.feed(inward, route(3, b"here", "b") + event(1, b"1", number=3) + event(2, b"2", number=2) + probe(ASKED))
    assert tokens(written(engine, inward)) == [ASKED]


def test_a_probe_is_answered_for_its_class_and_for_what_came_before_it() -> None:
    _, engine, inward, outward, _ = between()
    engine.feed(inward, event(1, b"1", priority=1) + probe(ASKED | 1))
    assert tokens(written(engine, inward)) == [ASKED | 1], "the event is of another class"
    engine.feed(inward, event(2, b"2") + probe(ASKED | 2))
    first = tokens(written(engine, outward), PROBE)
    engine.feed(inward, event(3, b"3"))
    written(engine, outward)
    written(engine, inward)
    for token in first:
        engine.feed(outward, echo(token))
    assert tokens(written(engine, inward)) == [ASKED | 2], "the third event came later"


def test_events_that_take_another_route_are_waited_for_there() -> None:
    _, engine, inward, outward, spare = between()
    engine.feed(inward, event(1, b"1") + probe(ASKED))
    written(engine, inward)
    written(engine, outward)
    (taken,) = engine.take_unconfirmed(outward)
    engine.reroute(taken, [(spare, b"round")])
    assert engine.take_unconfirmed(outward) == []
    engine.forget_undelivered(outward)
    assert tokens(written(engine, inward)) == []
    (asked,) = tokens(written(engine, spare), PROBE)
    engine.feed(spare, echo(asked))
    assert tokens(written(engine, inward)) == [ASKED]


def test_events_without_a_route_are_waited_for_until_they_have_gone() -> None:
    guide, engine, inward, _, spare = between()
    guide.forward[b"in"] = ForwardingDecision(False, unreachable=b"rest")
    engine.feed(inward, event(1, b"1") + probe(ASKED))
    assert tokens(written(engine, inward)) == [ASKED & ~PASSED_ON]
    engine.forget_undelivered()
    assert tokens(written(engine, inward)) == [], "nobody has even looked at it"
    (kept,) = engine.take_undeliverable()
    engine.reroute(kept, [(spare, b"later")])
    engine.forget_undelivered()
    (asked,) = tokens(written(engine, spare), PROBE)
    engine.feed(spare, echo(asked))
    assert tokens(written(engine, inward)) == [ASKED]


def test_a_lost_connection_is_waited_for_and_what_a_closed_port_held_is_not_passed_on() -> None:
    _, engine, inward, outward, _ = between()
    engine.feed(inward, event(1, b"1") + probe(ASKED))
    written(engine, inward)
    written(engine, outward)
    engine.park_port(outward)
    engine.resume_port(outward)
    assert tokens(written(engine, inward)) == []
    (asked,) = tokens(written(engine, outward), PROBE)
    engine.feed(outward, echo(asked))
    assert tokens(written(engine, inward)) == [ASKED]
    engine.feed(inward, event(2, b"2") + probe(ASKED | 1))
    assert tokens(written(engine, inward)) == [(ASKED | 1) & ~PASSED_ON]
    engine.close_port(outward)
    assert tokens(written(engine, inward)) == [], "whoever sent it keeps it"
    engine.forget_undelivered()
    assert tokens(written(engine, inward)) == [ASKED | 1]


def test_an_asker_that_lost_its_connection_is_not_answered_on_the_next_one() -> None:
    _, engine, inward, outward, _ = between()
    engine.feed(inward, event(1, b"1") + probe(ASKED))
    (asked,) = tokens(written(engine, outward), PROBE)
    engine.park_port(inward)
    engine.resume_port(inward)
    engine.feed(outward, echo(asked))
    assert tokens(written(engine, inward)) == []
    engine.close_port(inward)
    while not engine.free_port(inward):
        pass
    other = engine.open_port(peer=True, retain=True)
    engine.feed(other, probe(ASKED))
    assert tokens(written(engine, other)) == [ASKED]


def test_nothing_waits_in_a_circle() -> None:
    """Three nodes whose events all go two links round a ring: every one is given free, though each waits for others."""
    nodes = []
    for name in range(3):
        guide = Guide()
        engine = guide.engine()
        left, right = engine.open_port(peer=True, retain=True), engine.open_port(peer=True, retain=True)
        publisher = engine.open_port(issuer=bytes([name]) * 16)
        guide.publish[b"a"] = ForwardingDecision(True, [(right, b"two")])
        guide.forward[b"two"] = ForwardingDecision(False, [(right, b"one")])
        guide.forward[b"one"] = ForwardingDecision(True)
        engine.feed(publisher, define(1, "a"))
        nodes.append((engine, left, right, publisher))

    def carry() -> None:
        for at, (engine, left, right, _) in enumerate(nodes):
            after, before = nodes[(at + 1) % 3], nodes[at - 1]
            after[0].feed(after[1], written(engine, right))
            before[0].feed(before[2], written(engine, left))

    for number in range(1, 21):
        for engine, _, _, publisher in nodes:
            engine.feed(publisher, event(number, b"x"))
        carry()
    for _ in range(6):
        carry()
    assert [engine.unacknowledged(right) for engine, _, right, _ in nodes] == [0, 0, 0]
    assert [engine.port_counters(left)["routed_in"] for engine, left, _, _ in nodes] == [40, 40, 40]


def test_a_slow_link_behind_a_node_does_not_stop_what_others_get_through_it() -> None:
    guide = Guide()
    engine = guide.engine()
    outward = engine.open_port(peer=True, retain=True, queue_bytes=64 << 10)
    publisher = engine.open_port(issuer=PUBLISHER)
    guide.publish[b"a"] = ForwardingDecision(True, [(outward, b"on")])
    engine.feed(publisher, define(1, "a"))
    got = 0
    for number in range(1, 201):
        engine.feed(publisher, event(number, bytes(1000)))
        data = written(engine, outward)
        got += len(events(data))
        for token in tokens(data, PROBE):
            engine.feed(outward, echo(token & ~PASSED_ON))  # it has them, and never passes any on
    assert got == 200
    assert engine.port_counters(outward)["drop_queue_full"] == 0
    assert 32 << 10 <= engine.unacknowledged(outward) <= (32 << 10) + 2048
    assert engine.port_counters(outward)["released_early"] > 100_000
    # what is kept is the newest: that is what a lost neighbour may not have passed on
    kept = [item.sequence for item in engine.take_unconfirmed(outward)]
    assert kept == list(range(201 - len(kept), 201))
    assert len(kept) >= 32


def test_repeats_of_the_same_question_and_padded_ones_are_answered() -> None:
    _, engine, inward, outward, _ = between()
    engine.feed(inward, event(1, b"1") + probe(ASKED | 1) + probe(ASKED | 2) + frame(PROBE, bytes(40)))
    assert tokens(written(engine, inward)) == [(ASKED | 1) & ~PASSED_ON, (ASKED | 2) & ~PASSED_ON, 0]
    data = written(engine, outward)
    assert len([1 for kind, _ in split(data) if kind == EVENT]) == 1
    (asked,) = tokens(data, PROBE)
    engine.feed(outward, echo(asked))
    assert tokens(written(engine, inward)) == [ASKED | 2], "the last one counts: it confirms what the first one would"
