"""The five phases in one cloud: order, barriers, time-outs, routers that come and go, requests that meet."""

from __future__ import annotations

import pytest

from chappe.status.modes.arbitration import Reply
from chappe.status.modes.machines import LeafModes, PersistMode, SendCommand, Step
from chappe.wire.base import Command
from chappe.wire.control import PrepareMode, SetMode
from chappe.wire.management import ChangeMode, CommitMode, InformMode

SECOND = 1_000_000_000
EDGES, INNER = {"e0", "e1", "e2"}, {"i0", "i1", "b0"}


def orders(steps: list[Step]) -> dict[str, str]:
    return {step.router: f"{step.command.__name__} {step.mode}" for step in steps if isinstance(step, SendCommand)}


def replies(steps: list[Step]) -> list[Reply]:
    return [step for step in steps if isinstance(step, Reply)]


def entered(steps: list[Step]) -> list[PersistMode]:
    return [step for step in steps if isinstance(step, PersistMode)]


def all_answer(modes: LeafModes, steps: list[Step], now_ns: int = 0, *, but: tuple[str, ...] = ()) -> list[Step]:
    """Every router that was told something confirms it; returns what follows from all of that."""
    after: list[Step] = []
    for step in steps:
        if isinstance(step, SendCommand) and step.router not in but:
            after += modes.answered(step.router, True, "", now_ns, step.number)
    return after


def run(modes: LeafModes, steps: list[Step], now_ns: int = 0, *, but: tuple[str, ...] = ()) -> list[Step]:
    """Answers until nothing more is ordered; returns all steps."""
    seen = list(steps)
    while steps := all_answer(modes, steps, now_ns, but=but):
        seen += steps
    return seen


def changed(mode: int, rank: int = 1) -> LeafModes:
    """A cloud without routers, changed to that mode."""
    modes = LeafModes()
    modes.change("parent", ChangeMode(id=1, mode=mode, rank=rank), set(), set(), 0)
    return modes


@pytest.mark.spec("GS-111")
def test_the_change_1_to_2_gives_its_commands_in_five_phases_with_a_barrier_after_each() -> None:
    modes = LeafModes(mode=1)
    expected = [
        dict.fromkeys(EDGES, "InformMode 2"),
        dict.fromkeys(EDGES, "PrepareMode 2"),
        dict.fromkeys(INNER, "SetMode 2"),
        dict.fromkeys(EDGES, "SetMode 2"),
        dict.fromkeys(EDGES, "CommitMode 2"),
    ]
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0)
    for phase, orders_of_phase in enumerate(expected, start=1):
        assert modes.phase == phase
        assert orders(steps) == orders_of_phase
        assert modes.next == 2
        waiting = [step for step in steps if isinstance(step, SendCommand)]
        for order in waiting[:-1]:
            assert modes.answered(order.router, True, "", 0, order.number) == []
        steps = modes.answered(waiting[-1].router, True, "", 0, waiting[-1].number)
    assert replies(steps) == [Reply("operator/1", True, "", "", 7)]
    assert (modes.mode, modes.next, modes.phase) == (2, None, 0)


def test_the_new_mode_is_durable_before_the_first_inner_router_changes() -> None:
    modes = LeafModes(mode=1)
    steps = all_answer(modes, modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0))
    assert modes.mode == 1
    steps = all_answer(modes, steps)
    assert steps[0] == PersistMode(2, 1)
    assert orders(steps) == dict.fromkeys(INNER, "SetMode 2")
    assert modes.mode == 2


def test_a_cloud_of_edges_only_skips_the_third_phase_and_an_empty_one_is_done_at_once() -> None:
    modes = LeafModes()
    seen = run(modes, modes.change("operator/1", ChangeMode(id=7, mode=3), {"e0"}, set(), 0))
    assert [step.command for step in seen if isinstance(step, SendCommand)] == [
        InformMode,
        PrepareMode,
        SetMode,
        CommitMode,
    ]
    empty = LeafModes()
    steps = empty.change("operator/1", ChangeMode(id=7, mode=3), set(), set(), 0)
    assert steps == [PersistMode(3, 1), Reply("operator/1", True, "", "", 7)]


@pytest.mark.spec("GS-117")
def test_a_request_for_the_present_mode_is_answered_and_nothing_is_sent() -> None:
    modes = LeafModes(mode=4, rank=1)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=4), EDGES, INNER, 0)
    assert steps == [Reply("operator/1", True, "", "", 7)]


@pytest.mark.spec("GS-119")
@pytest.mark.parametrize("phase", [1, 2, 3, 4, 5])
def test_a_silent_router_is_left_behind_when_the_phase_is_over_and_the_answer_names_it(phase: int) -> None:
    modes = LeafModes(mode=1, timeout_ns=SECOND)
    silent = "i1" if phase == 3 else "e1"
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0)
    for _ in range(phase - 1):
        steps = all_answer(modes, steps)
    command = next(step.command for step in steps if isinstance(step, SendCommand)).__name__
    assert all_answer(modes, steps, but=(silent,)) == []
    assert modes.tick(SECOND - 1) == []
    seen = run(modes, modes.tick(SECOND), SECOND)
    assert replies(seen)[0].ok
    assert replies(seen)[0].reason == f"left behind: {silent} (no answer to {command} within 1 s)"
    assert (modes.mode, modes.next) == (2, None)
    # It is still told where everybody ends, unless it was already.
    told = [step.command for step in seen if isinstance(step, SendCommand) and step.router == silent]
    assert told == {1: [SetMode, CommitMode], 2: [SetMode, CommitMode], 3: [], 4: [CommitMode], 5: []}[phase]


@pytest.mark.spec("GS-119")
def test_a_lost_edge_does_not_hold_the_change_up() -> None:
    modes = LeafModes(mode=1)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0, away={"e9"})
    assert all_answer(modes, steps, but=("e1",)) == []
    seen = run(modes, modes.lost("e1", 5), 5)
    assert "e1" not in orders(seen)
    assert replies(seen)[0].reason == "left behind: e1 (connection lost), e9 (away)"


def test_a_refusal_leaves_the_router_behind() -> None:
    modes = LeafModes(mode=1)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0)
    all_answer(modes, steps, but=("e0",))
    steps = modes.answered("e0", False, "no memory", 0)
    assert orders(steps) == dict.fromkeys(EDGES - {"e0"}, "PrepareMode 2")
    seen = run(modes, steps)
    assert replies(seen)[0].reason == "left behind: e0 (refused: no memory)"


def test_a_late_answer_of_an_earlier_change_passes_no_barrier_of_the_next() -> None:
    modes = LeafModes(timeout_ns=SECOND)
    first = modes.change("operator/1", ChangeMode(id=7, mode=1), {"e0"}, set(), 0)
    now = 0
    while not replies(modes.tick(now := now + SECOND)):
        pass
    second = modes.change("operator/1", ChangeMode(id=8, mode=2), {"e0"}, set(), now)
    assert all_answer(modes, first, now) == []  # four late ones are open, none of them counts
    assert orders(all_answer(modes, second, now)) == {"e0": "PrepareMode 2"}


EDGE_JOINS = {
    1: [(SetMode, 1), (InformMode, 2)],
    2: [(SetMode, 1), (InformMode, 2), (PrepareMode, 2)],
    3: [(SetMode, 1), (InformMode, 2), (PrepareMode, 2)],
    4: [(SetMode, 2)],
    5: [(SetMode, 2), (CommitMode, 2)],
}


@pytest.mark.parametrize("phase", [1, 2, 3, 4, 5])
def test_an_edge_that_joins_a_running_change_is_brought_to_its_phase_and_takes_part_from_there(phase: int) -> None:
    modes = LeafModes(mode=1)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), {"e0"}, {"i0"}, 0)
    for _ in range(phase - 1):
        steps = all_answer(modes, steps)
    joined = modes.joined("e1", True, 0)
    assert [(step.command, step.mode) for step in joined if isinstance(step, SendCommand)] == EDGE_JOINS[phase]
    after = all_answer(modes, steps)
    if phase != 3:
        assert after == []  # the barrier waits for it too
    after += all_answer(modes, joined)
    seen = run(modes, after)
    later: dict[int, list[type[Command]]] = {1: [PrepareMode, SetMode, CommitMode], 2: [SetMode, CommitMode],
                                             3: [SetMode, CommitMode], 4: [CommitMode], 5: []}  # fmt: skip
    assert [step.command for step in seen if isinstance(step, SendCommand) and step.router == "e1"] == later[phase]
    assert replies(seen)[0].reason == ""


@pytest.mark.parametrize(("phase", "mode"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)])
def test_an_inner_router_that_joins_a_running_change_gets_the_mode_of_its_neighbours(phase: int, mode: int) -> None:
    modes = LeafModes(mode=1)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), {"e0"}, {"i0"}, 0)
    for _ in range(phase - 1):
        steps = all_answer(modes, steps)
    assert orders(modes.joined("i1", False, 0)) == {"i1": f"SetMode {mode}"}


def test_a_router_that_joins_gets_the_mode() -> None:
    assert orders(LeafModes(mode=6).joined("e0", True, 0)) == {"e0": "SetMode 6"}


@pytest.mark.spec("GS-120")
def test_a_request_for_the_mode_of_the_running_change_joins_it() -> None:
    modes = LeafModes(mode=1)
    steps = modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0)
    assert modes.change("parent", ChangeMode(id=8, mode=2, rank=3), EDGES, INNER, 0) == []
    seen = run(modes, steps)
    assert [(reply.asker, reply.request_id) for reply in replies(seen)] == [("operator/1", 7), ("parent", 8)]
    assert modes.rank == 3
    assert entered(seen)[-1] == PersistMode(2, 3)


@pytest.mark.spec("GS-120")
def test_a_higher_rank_runs_next_and_lower_ones_cannot_change_its_mode() -> None:
    modes = LeafModes(mode=0)
    steps = modes.change("operator/1", ChangeMode(id=1, mode=2), EDGES, INNER, 0)
    assert modes.change("parent", ChangeMode(id=2, mode=3, rank=2), EDGES, INNER, 0) == []
    refused = replies(modes.change("operator/1", ChangeMode(id=3, mode=4), EDGES, INNER, 0))
    assert (refused[0].code, refused[0].request_id) == ("denied", 3)
    assert "mode 3 was set by a broker of height 2" in refused[0].reason
    seen = run(modes, steps)
    assert [(reply.request_id, reply.ok) for reply in replies(seen)] == [(1, True), (2, True)]
    assert (modes.mode, modes.rank) == (3, 2)
    assert not replies(modes.change("operator/1", ChangeMode(id=4, mode=5), EDGES, INNER, 0))[0].ok
    assert replies(modes.change("operator/1", ChangeMode(id=5, mode=3), EDGES, INNER, 0))[0].ok


@pytest.mark.spec("GS-120")
def test_of_equal_rank_the_latest_wins_and_the_one_it_replaces_is_stale() -> None:
    modes = LeafModes(mode=0)
    steps = modes.change("operator/1", ChangeMode(id=1, mode=2), EDGES, INNER, 0)
    modes.change("operator/2", ChangeMode(id=2, mode=3), EDGES, INNER, 0)
    stale = replies(modes.change("operator/3", ChangeMode(id=3, mode=4), EDGES, INNER, 0))
    assert [(reply.asker, reply.code) for reply in stale] == [("operator/2", "stale")]
    # Back to the mode of the running change: nothing has to follow it.
    stale = replies(modes.change("operator/4", ChangeMode(id=4, mode=2), EDGES, INNER, 0))
    assert [(reply.asker, reply.code) for reply in stale] == [("operator/3", "stale")]
    seen = run(modes, steps)
    assert [reply.request_id for reply in replies(seen)] == [1, 4]
    assert (modes.mode, modes.next) == (2, None)


def test_the_next_change_tells_routers_that_came_during_the_first() -> None:
    modes = LeafModes(mode=0)
    steps = modes.change("operator/1", ChangeMode(id=1, mode=2), {"e0"}, set(), 0)
    modes.change("operator/1", ChangeMode(id=2, mode=3), {"e0"}, set(), 0)
    steps += modes.joined("e1", True, 0)
    seen = run(modes, steps)
    assert {step.router for step in seen if isinstance(step, SendCommand) and step.mode == 3} == {"e0", "e1"}


def test_an_operator_has_the_rank_of_the_broker_it_asks_whatever_it_says() -> None:
    modes = changed(mode=2, rank=2)
    assert not replies(modes.change("operator/1", ChangeMode(id=1, mode=3, rank=9), set(), set(), 0))[0].ok


def test_the_rank_of_the_present_mode_rises_when_a_parent_asks_for_it() -> None:
    modes = changed(mode=2)
    assert modes.change("parent", ChangeMode(id=2, mode=2, rank=3), set(), set(), 0)[0] == PersistMode(2, 3)


@pytest.mark.parametrize("mode", [-1, 16])
def test_a_mode_that_does_not_exist_is_refused(mode: int) -> None:
    modes = LeafModes(mode=1)
    steps = modes.change("operator/1", ChangeMode(id=1, mode=mode), EDGES, INNER, 0)
    assert replies(steps)[0].code == "invalid"
    assert (modes.mode, modes.next, orders(steps)) == (1, None, {})


def test_every_command_has_another_number() -> None:
    modes = LeafModes(mode=1)
    seen = run(modes, modes.change("operator/1", ChangeMode(id=7, mode=2), EDGES, INNER, 0))
    numbers = [step.number for step in seen if isinstance(step, SendCommand)]
    assert len(set(numbers)) == len(numbers) == 4 * len(EDGES) + len(INNER)
    assert {step.command for step in seen if isinstance(step, SendCommand)} == {
        InformMode,
        PrepareMode,
        SetMode,
        CommitMode,
    }
