from __future__ import annotations

from chappe.core.refusals import CLIENTS, LINES, OTHERS, PAUSE_NS, TOPICS, Refusals
from chappe.security.identity import Identity

MALLORY = Identity(name="mallory", role="client", how="token")
START = 10 * PAUSE_NS


def test_a_refusal_is_written_at_once_and_what_follows_once_a_minute_with_its_number() -> None:
    refusals = Refusals()
    refusals.note(MALLORY, "plant/a", "no rule allows it")
    refusals.count(MALLORY, [("plant/a", 3)])
    (line,) = refusals.due(START)
    assert (line.who, line.action, line.target, line.outcome) == (MALLORY, "publish", "plant/a", "denied")
    assert (line.reason, line.details) == ("no rule allows it", {"events": 3})
    refusals.count(MALLORY, [("plant/a", 5_000_000)])
    refusals.note(MALLORY, "plant/a", "no rule allows it")
    assert refusals.due(START + PAUSE_NS - 1) == []
    (line,) = refusals.due(START + PAUSE_NS)
    assert line.details == {"events": 5_000_000}
    assert refusals.due(START + 9 * PAUSE_NS) == []
    assert refusals.rows() == [
        {"kind": "topic", "address": "plant/a", "reason": "drop_not_permitted", "count": 5_000_003,
         "client": "client 'mallory'"},
    ]  # fmt: skip


def test_topics_beyond_the_limit_are_counted_together() -> None:
    refusals = Refusals()
    for number in range(10_000):
        refusals.note(MALLORY, f"t/{number}", "no rule allows it")
        refusals.count(MALLORY, [(f"t/{number}", 1)])
    refusals.count(MALLORY, [("", 7)])
    lines = refusals.due(START)
    assert len(lines) == TOPICS + 1
    (others,) = [line for line in lines if line.target == OTHERS]
    assert others.details == {"events": 10_000 - TOPICS + 7}


def test_many_clients_do_not_fill_the_log() -> None:
    refusals = Refusals()
    for number in range(2 * CLIENTS):
        refusals.count(Identity(name=f"m{number}", role="client", how="token"), [("t", 1)])
    assert len(refusals.rows()) == CLIENTS
    assert len(refusals.due(START)) == LINES
    assert refusals.due(START + 1) == []
    later = refusals.due(START + PAUSE_NS)
    assert len(later) == LINES  # those that had no line yet
    assert not {line.who for line in later} & {line.who for line in refusals.due(START + 2 * PAUSE_NS)}


def test_what_neighbours_are_refused_is_named_by_action_and_address() -> None:
    refusals, node = Refusals("times"), Identity(name="n2", role="node", how="certificate")
    for _ in range(3):
        refusals.add(node, "publish", "closed/a", "denied")
        refusals.add(node, "inbox", "hub", "denied")
    lines = [(line.action, line.target, line.details) for line in refusals.due(START)]
    assert lines == [("publish", "closed/a", {"times": 3}), ("inbox", "hub", {"times": 3})]
    for number in range(1_000):
        refusals.add(node, "register", f"closed/{number}", "denied")
    lines = [(line.action, line.target, line.details) for line in refusals.due(START + 1)]
    assert len(lines) == TOPICS + 1
    assert lines[-1] == ("register", OTHERS, {"times": 1_000 - TOPICS})
    refusals.add(node, "inbox", "hub", "denied")
    assert refusals.due(START + 2) == []
    assert [line.action for line in refusals.due(START + PAUSE_NS)] == ["inbox"]
