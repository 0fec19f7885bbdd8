"""What neighbours look for is taken as it is, or refused with its reason; nothing of it is believed."""

from __future__ import annotations

import random

import pytest

from chappe.engine._engine import Engine
from chappe.events.discovery import MOST_SOUGHT, SLICE, widened
from chappe.events.member import Member
from chappe.events.member_settings import MemberSettings
from chappe.events.parts import MemberParts
from chappe.linkstate.units import Address
from chappe.machine import Connected, Effect, Log
from chappe.wire.mesh import MAX_SOUGHT, Discover, MeshJoin

VIA = ((0, "n9"),)


def member(*capabilities: str) -> tuple[Member, int]:
    """A member with one neighbour, which can do that."""
    engine = Engine()
    port = engine.open_port(peer=True, retain=True)
    found = Member(MemberParts(Address((), "n1"), engine, MemberSettings(), random.Random(1)))
    found.receive(port, Connected("n2", capabilities=capabilities), 1)
    found.receive(port, MeshJoin(name="n2", unit="", link=bytes(16), kind="tcp"), 1)
    return found, port


def reasons(effects: list[Effect]) -> list[str]:
    return [str(each.fields["reason"]) for each in effects if isinstance(each, Log)]


@pytest.mark.parametrize(
    "pattern", ["", "a//b", "a/#/b", "int:abc/x", "int:5", "long:9", "node:n1/x", "x" * 1025, "\u00e9" * 1000]
)
def test_a_pattern_that_makes_no_sense_is_refused(pattern: str) -> None:
    one, port = member("demand")
    (reason,) = reasons(one.receive(port, Discover(begin=((VIA, pattern), (VIA, "a/b"))), 2))
    assert reason
    assert (one.discovery.refused, one.discovery.size) == (1, 1)


def test_whoever_has_not_said_that_it_can_is_refused() -> None:
    one, port = member()
    assert reasons(one.receive(port, Discover(begin=((VIA, "a/b"),)), 2)) == ["it has not said that it can"]
    assert one.discovery.size == 0


def test_ways_to_nowhere_and_in_circles_lead_nowhere() -> None:
    one, port = member("demand")
    ways = [((16, "x/y@z"), (1, "")), ((3, "a"), (0, "n1")), ((0, "n1"),), ((0, "n2"),) * 32]
    assert reasons(one.receive(port, Discover(begin=tuple((way, "a/#") for way in ways)), 2)) == []
    assert reasons(one.receive(port, Discover(begin=((((17, "x"),), "a/b"),)), 2)) != []
    for now_ns in (3, 4, 5):
        one.tick(now_ns)


def test_a_neighbour_looks_for_so_many_patterns_and_what_ends_makes_room() -> None:
    one, port = member("demand")
    for block in range(0, MOST_SOUGHT, MAX_SOUGHT):
        end = min(block + MAX_SOUGHT, MOST_SOUGHT)
        assert not one.receive(port, Discover(begin=tuple((VIA, f"a/{each}") for each in range(block, end))), 2)
    (reason,) = reasons(one.receive(port, Discover(begin=((VIA, "b"),)), 2))
    assert str(MOST_SOUGHT) in reason
    one.receive(port, Discover(end=((VIA, "a/0"), (VIA, "never begun"))), 2)
    assert not one.receive(port, Discover(begin=((VIA, "b"),)), 2)
    assert one.discovery.size == MOST_SOUGHT


def test_another_map_is_followed_in_slices() -> None:
    one, port = member("demand")
    sought = tuple((VIA, f"a/{each}") for each in range(3 * SLICE))
    one.receive(port, Discover(begin=sought), 2)
    while one.discovery.due:
        one.discovery.tick(3)
    one.discovery.lost(77)  # everything may take another way
    turns = 0
    while one.discovery.due:
        one.discovery.tick(3)
        turns += 1
    assert turns == 3
    assert not one.discovery.busy


def test_too_many_patterns_are_widened_and_take_in_all() -> None:
    patterns = [f"p{number % 3}/v{number}" for number in range(10)]
    assert widened(patterns, 10) == set(patterns)
    assert widened(patterns, 9) == {"p0/#", "p1/#", "p2/#"}
    assert widened([*patterns, "#"], 2) == {"#"}
