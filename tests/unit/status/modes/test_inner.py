"""A change of mode at an inner broker: children in parallel, one answer for all of them."""

from __future__ import annotations

import pytest

from chappe.status.modes.arbitration import Reply
from chappe.status.modes.machines import InnerModes, PersistMode, SendCommand, Step
from chappe.wire.management import ChangeMode

SECOND = 1_000_000_000


def told(steps: list[Step]) -> dict[str, tuple[int, int]]:
    return {step.router: (step.mode, step.rank) for step in steps if isinstance(step, SendCommand)}


def replies(steps: list[Step]) -> list[Reply]:
    return [step for step in steps if isinstance(step, Reply)]


@pytest.mark.spec("GS-117")
def test_all_children_are_told_at_once_and_the_answer_comes_when_all_have_answered() -> None:
    modes = InnerModes(height=2)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), {"north", "south"}, 0)
    assert steps[0] == PersistMode(2, 2)
    assert told(steps) == {"north": (2, 2), "south": (2, 2)}
    assert modes.answered("south", True, "", 0) == []
    assert modes.answered("north", True, "", 0) == [Reply("operator/1", True, "", "", 7)]
    assert modes.next is None


@pytest.mark.spec("GS-117")
def test_a_request_for_the_present_mode_tells_nobody() -> None:
    modes = InnerModes(height=2, mode=2, rank=2)
    assert modes.change("operator/1", ChangeMode(id=7, mode=2), {"north"}, 0) == [Reply("operator/1", True, "", "", 7)]


def test_a_higher_rank_that_confirms_the_present_mode_is_passed_on() -> None:
    modes = InnerModes(height=2, mode=2, rank=2)
    steps = modes.change("parent", ChangeMode(id=7, mode=2, rank=3), {"north"}, 0)
    assert told(steps) == {"north": (2, 3)}
    assert steps[0] == PersistMode(2, 3)
    assert replies(steps)[0].ok


@pytest.mark.spec("GS-119")
def test_a_silent_a_lost_and_an_absent_child_are_named() -> None:
    modes = InnerModes(height=2, timeout_ns=SECOND)
    modes.change("operator/1", ChangeMode(id=7, mode=2), {"a", "b", "c"}, 0, away={"d"})
    assert modes.lost("b", 1) == []
    assert modes.answered("c", True, "left behind: e3 (away)", 1) == []
    answer = replies(modes.tick(SECOND))[0]
    assert answer.ok
    expected = "a (no answer within 1 s), b (connection lost), c (left behind: e3 (away)), d (away)"
    assert answer.reason == f"left behind: {expected}"
    assert modes.mode == 2


def test_a_child_that_joins_gets_the_mode_that_was_decided_and_nothing_before() -> None:
    modes = InnerModes(height=2)
    assert modes.joined("a", 0) == []
    modes.change("operator/1", ChangeMode(id=7, mode=2), {"a"}, 0)
    modes.answered("a", True, "", 0)
    assert told(modes.joined("b", 0)) == {"b": (2, 2)}
    assert modes.answered("b", True, "", 0) == []


def test_a_child_that_comes_back_during_a_change_takes_part_again() -> None:
    modes = InnerModes(height=2)
    modes.change("operator/1", ChangeMode(id=7, mode=2), {"a", "b"}, 0)
    modes.lost("a", 0)
    back = modes.joined("a", 0)
    assert modes.answered("b", True, "", 0) == []
    assert isinstance(back[0], SendCommand)
    assert replies(modes.answered("a", True, "", 0, back[0].number))[0].reason == ""


def test_an_answer_to_an_order_from_before_the_loss_counts_for_nothing() -> None:
    modes = InnerModes(height=2)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), {"a"}, 0)
    modes.lost("a", 0)
    first = next(step for step in steps if isinstance(step, SendCommand))
    modes.change("operator/1", ChangeMode(id=8, mode=3), {"a"}, 0)
    assert modes.answered("a", True, "", 0, first.number) == []


@pytest.mark.spec("GS-120")
def test_requests_that_meet_are_ranked_as_in_a_leaf() -> None:
    modes = InnerModes(height=2)
    modes.change("operator/1", ChangeMode(id=1, mode=2), {"a"}, 0)
    modes.change("operator/1", ChangeMode(id=2, mode=3), {"a"}, 0)
    stale = replies(modes.change("parent", ChangeMode(id=3, mode=4, rank=3), {"a"}, 0))
    assert [(reply.request_id, reply.code) for reply in stale] == [(2, "stale")]
    steps = modes.answered("a", True, "", 0)
    assert [reply.request_id for reply in replies(steps)] == [1]
    assert told(steps) == {"a": (4, 3)}
    assert replies(modes.change("operator/1", ChangeMode(id=4, mode=5), {"a"}, 0))[0].code == "denied"


def test_the_time_out_grows_with_the_height() -> None:
    low, high = InnerModes(height=2), InnerModes(height=4)
    for modes in (low, high):
        modes.change("operator/1", ChangeMode(id=1, mode=2), {"a"}, 0)
    assert replies(low.tick(12 * SECOND))
    assert high.tick(12 * SECOND) == []
