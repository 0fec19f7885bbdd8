"""The checker of histories: good ones pass, and each kind of broken promise is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.history.checker import (
    HELD_NS,
    SECOND,
    SETTLE_NS,
    SPREAD_NS,
    UNDECIDED_NS,
    Fault,
    History,
    Publisher,
    Reachability,
    Subscriber,
    check,
    differences,
    possible_modes,
)
from bench.history.records import (
    FAILED,
    OK,
    UNKNOWN,
    Connected,
    Durable,
    Event,
    ModeChange,
    ModeRead,
    Published,
    Received,
    Watched,
)

END = 200 * SECOND
LINKS = (("a", "b"), ("b", "c"), ("a", "d"), ("d", "c"))  # two routes from a to c
AT = 50 * SECOND
MS = SECOND // 1000


def event(number: int, priority: int = 3) -> Event:
    return Event("p", priority, number)


def published(number: int, at_ns: int = AT, confirmed: bool = True, priority: int = 3) -> Published:
    return Published(event(number, priority), at_ns + number * MS, at_ns + 100 * MS if confirmed else 0)


def history(*faults: Fault, got: tuple[int, ...] = (0, 1, 2), at_ns: int = AT) -> History:
    """Three events from a to c, where they arrive as `got` says."""
    publisher = Publisher([Connected("a", 0, END)], [published(number, at_ns) for number in range(3)])
    received = [Received(event(number), at_ns + (10 + place) * MS) for place, number in enumerate(got)]
    return History(
        0, END, LINKS, faults, {"p": publisher}, {"s": Subscriber([Connected("c", 0, END)], received)},
    )  # fmt: skip


def rules(history: History) -> list[str]:
    return [each.rule for each in check(history).violations]


def test_a_history_in_which_everything_arrives_is_good() -> None:
    verdict = check(history())
    assert not verdict.violations
    assert verdict.counts["confirmed by flush, delivered"] == 3


# durable events


def durable(outcome: str, archived: list[Event]) -> History:
    answered = Durable(event(0), AT, outcome, AT + SECOND)
    return History(0, END, LINKS, publishers={"p": Publisher([], [], [answered])}, archived=archived)


@pytest.mark.parametrize(
    ("outcome", "archived", "found"),
    [
        (OK, [event(0)], []),
        (OK, [], ["durable lost"]),
        (OK, [event(0), event(0)], ["archived twice"]),
        (UNKNOWN, [], []),
        (UNKNOWN, [event(0)], []),
        (UNKNOWN, [event(0), event(0)], ["archived twice"]),
        (FAILED, [], []),
        (OK, [event(0), event(7)], ["stranger"]),
    ],
)
def test_what_was_confirmed_is_in_the_archive_once(outcome: str, archived: list[Event], found: list[str]) -> None:
    assert rules(durable(outcome, archived)) == found


def test_a_lost_durable_event_is_named_with_its_times() -> None:
    text = check(durable(OK, [])).violations[0].text
    assert text == "p:3:0: published at 50.000 s, confirmed at 51.000 s, not in the archive"


# events that a flush confirmed


def test_an_event_that_a_flush_confirmed_and_nobody_got_is_lost() -> None:
    violations = check(history(got=(0, 2))).violations
    assert [each.rule for each in violations] == ["flush lost"]
    assert "p:3:1" in violations[0].text
    assert "never reached s" in violations[0].text


def test_an_event_that_no_flush_confirmed_may_be_lost() -> None:
    made = history(got=(0, 2))
    made.publishers["p"].published[1] = published(1, confirmed=False)
    assert rules(made) == []


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        (Fault("kill", ("b",), AT + 50 * MS, AT + SECOND), False),  # it may have held it
        (Fault("kill", ("b",), AT + HELD_NS + SECOND, AT + 2 * HELD_NS), True),  # it was delivered long before
        (
            Fault("kill", ("b",), AT - SETTLE_NS, AT - SETTLE_NS + 1),
            True,
        ),  # gone before it was published: the other route
        (Fault("cut", ("a", "b"), AT - SECOND, AT + SECOND), True),  # one route is left
        (Fault("pause", ("d",), AT - SECOND, AT + SECOND), True),
        (Fault("pause", ("c",), AT - SECOND, AT + SECOND), False),  # the node of the subscriber
        (Fault("pause", ("a",), AT - SECOND, AT + SECOND), False),
        (Fault("pause", ("c",), AT - SETTLE_NS - SECOND, AT - SECOND), False),  # it has just come back
        (Fault("pause", ("c",), AT - 2 * SETTLE_NS, AT - SETTLE_NS - SECOND), True),
        (Fault("clock", ("c",), AT - SECOND, AT + SECOND), True),
        (Fault("disk", ("kept",), AT - SECOND, AT + SECOND), True),
    ],
)
def test_only_a_fault_that_can_be_the_reason_excuses_a_loss(fault: Fault, lost: bool) -> None:
    assert rules(history(fault, got=(0, 2))) == ["flush lost"] * lost


def test_a_loss_is_excused_if_no_route_was_left() -> None:
    cuts = [Fault("cut", ("b", "a"), AT - SECOND, AT + SECOND), Fault("cut", ("d", "c"), AT - SECOND, AT + SECOND)]
    assert rules(history(*cuts, got=(0, 2))) == []
    assert rules(history(cuts[0], got=(0, 2))) == ["flush lost"]


@pytest.mark.parametrize(
    ("connected", "lost"),
    [
        ([Connected("c", AT - SPREAD_NS - SECOND, END)], True),
        ([Connected("c", AT - SECOND, END)], False),  # nobody may know of it yet
        ([Connected("c", 0, AT + SECOND)], False),  # its connection ended soon after
        ([Connected("c", 0, AT - SECOND), Connected("c", AT + SECOND, END)], False),
        ([], False),
    ],
)
def test_an_event_is_due_to_a_subscriber_that_was_there_all_the_time(connected: list[Connected], lost: bool) -> None:
    made = history(got=(0, 2))
    made.subscribers["s"].connected[:] = connected
    assert rules(made) == ["flush lost"] * lost


def test_the_last_moments_of_a_run_are_not_judged() -> None:
    assert rules(history(got=(0, 2), at_ns=END - HELD_NS // 2)) == []


# repeats and order


def test_an_event_that_comes_twice_is_found_whatever_happened() -> None:
    kill = Fault("kill", ("b",), AT, AT + SECOND)
    assert rules(history(kill, got=(0, 1, 1, 2))) == ["twice"]


def test_events_out_of_order_are_found_unless_a_link_was_lost() -> None:
    assert rules(history(got=(0, 2, 1))) == ["order"]
    verdict = check(history(Fault("cut", ("a", "b"), AT - SECOND, AT + SECOND), got=(0, 2, 1)))
    assert not verdict.violations
    assert verdict.counts["out of order, sent by another route after a link was lost"] == 1
    assert rules(history(Fault("clock", ("a",), AT - SECOND, AT + SECOND), got=(0, 2, 1))) == ["order"]
    assert rules(history(Fault("cut", ("a", "b"), AT + SECOND, AT + 2 * SECOND), got=(0, 2, 1))) == ["order"]


def test_classes_overtake_each_other() -> None:
    made = history(got=(0, 1, 2))
    urgent = Received(event(0, priority=1), AT + SECOND)
    made.publishers["p"].published.append(published(0, priority=1))
    made.subscribers["s"].received.append(urgent)
    assert rules(made) == []


# modes


def changed(mode: int, at_s: float, outcome: str, took_s: float = 1.0) -> ModeChange:
    return ModeChange(mode, round(at_s * SECOND), round((at_s + took_s) * SECOND), outcome)


@pytest.mark.parametrize(
    ("changes", "at_s", "possible"),
    [
        ([], 10, {0}),
        ([changed(1, 1, OK)], 10, {1}),
        ([changed(1, 1, OK)], 1.5, {0, 1}),  # under way
        ([changed(1, 20, OK)], 10, {0}),
        ([changed(1, 1, OK), changed(2, 5, UNKNOWN)], 10, {1, 2}),
        ([changed(1, 1, OK), changed(2, 5, FAILED)], 10, {1, 2}),
        ([changed(2, 1, UNKNOWN), changed(1, 5, OK)], 10, {1, 2}),  # the first may come late
        ([changed(2, 1, UNKNOWN), changed(1, 3 + UNDECIDED_NS / SECOND, OK)], 100, {1}),
        ([changed(2, 1, OK), changed(1, 5, OK)], 10, {1}),
    ],
)
def test_a_mode_is_the_one_that_was_answered_last(changes: list[ModeChange], at_s: float, possible: set[int]) -> None:
    at_ns = round(at_s * SECOND)
    assert possible_modes(changes, at_ns, at_ns) == possible


def test_modes_that_cannot_be_are_found() -> None:
    made = replace(history(), mode_changes=[changed(1, 1, OK)], modes={"broker": 1, "a": 1})
    assert rules(made) == []
    assert rules(replace(made, modes={"broker": 1, "a": 0})) == ["mode"]
    assert rules(replace(made, modes={"broker": 2, "a": 2})) == ["mode"]
    assert rules(replace(made, mode_reads=[ModeRead(0, 5 * SECOND, 6 * SECOND)])) == ["mode"]
    assert rules(replace(made, mode_reads=[ModeRead(0, SECOND, 6 * SECOND)])) == []


# granted subscriptions


def test_a_granted_subscription_gets_its_values() -> None:
    def watched(received: int) -> History:
        return replace(history(), watched=[Watched("w", "plant/power", 100 * MS, received, 5 * SECOND)])

    assert rules(watched(50)) == []
    assert rules(watched(30)) == []
    assert rules(watched(0)) == ["granted"]


def test_tables_that_differ_are_found() -> None:
    row = {"publisher": "plant", "variable": "power", "routers": ["a", "b"]}
    own = {"publisher": "plant", "variable": "power"}
    assert differences([row], {"a": [own], "b": [own], "c": []}) == []
    assert differences([row], {"a": [], "b": [own, own], "c": [own]}) == [
        "a lacks a path of plant/power",
        "b has a path of plant/power that its broker does not know",
        "c has a path of plant/power that its broker does not know",
    ]
    assert rules(replace(history(), tables=["a lacks a path of plant/power"])) == ["granted"]


# who could reach whom


def test_routes_between_nodes_over_time() -> None:
    cut, pause = Fault("cut", ("a", "b"), 10, 20), Fault("pause", ("d",), 15, 16)
    found = Reachability(LINKS, [cut, pause])
    assert found.joined("a", "c", 0, 14)
    assert not found.joined("a", "c", 0, 16)
    assert not found.joined("a", "c", 15 + SETTLE_NS, 16 + SETTLE_NS)
    assert found.joined("a", "c", 17 + SETTLE_NS, 19 + SETTLE_NS), "the one that was paused is back"
    assert found.joined("b", "c", 0, 100)
    assert not found.joined("a", "d", 12, 18)
    assert not found.joined("d", "d", 12, 18)
