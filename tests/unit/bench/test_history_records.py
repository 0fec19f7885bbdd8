"""What clients write down, read back as operations with their answers; and the plan of faults."""

from __future__ import annotations

from pathlib import Path

from bench.history.client import body_of, event_of
from bench.history.nemesis import CUTS, PARTS, Step, Targets, plan
from bench.history.records import (
    NOTICE_NS,
    OK,
    UNKNOWN,
    Connected,
    Durable,
    Event,
    ModeChange,
    ModeRead,
    Published,
    Received,
    Writer,
    connections,
    lines,
    mode_operations,
    publications,
    receipts,
)

TARGETS = Targets(
    cut=("a-b", "b-c"),
    isolate=("a", "b"),
    split=("a", "a+b"),
    pause=("a", "b", "x"),
    kill=("a", "b"),
    blackout=("a+b", "a+x"),
    clock=("a", "x"),
    disk=("x",),
)


def test_a_line_is_in_the_file_before_the_next_thing_happens_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history"
    write = Writer(path)
    first = write("publish", 3, 0)
    assert list(lines(path)) == [[first, "publish", 3, 0]]
    with path.open("ab") as file:
        file.write(b'[5,"fl')
    assert list(lines(path)) == [[first, "publish", 3, 0]]
    write.close()
    assert list(lines(tmp_path / "none")) == []


def test_a_flush_confirms_what_was_published_before_it() -> None:
    plain, durable = publications("p", [
        [1, "publish", 3, 0], [2, "publish", 1, 0], [3, "flush", 1], [4, "publish", 3, 1], [5, "flushed", 1],
        [6, "flush", 2], [7, "unflushed", 2, "lost"], [8, "publish", 3, 2], [9, "durable", 4, 0],
        [10, "durable", 4, 1], [11, "stored", 4, 1, OK, "kept"], [12, "flush", 3], [13, "flushed", 3],
        [14, "publish", 3, 3],
    ])  # fmt: skip
    assert plain == [
        Published(Event("p", 3, 0), 1, 5), Published(Event("p", 1, 0), 2, 5), Published(Event("p", 3, 1), 4, 13),
        Published(Event("p", 3, 2), 8, 13), Published(Event("p", 3, 3), 14, 0),
    ]  # fmt: skip
    assert durable == [Durable(Event("p", 4, 0), 9, UNKNOWN, 0), Durable(Event("p", 4, 1), 10, OK, 11)]


def test_a_connection_that_was_lost_may_have_been_lost_before_that_was_noticed() -> None:
    s = NOTICE_NS
    assert connections([[1, "up", "a"], [3 * s, "down", ""], [4 * s, "up", "b"]], 9 * s) == [
        Connected("a", 1, 2 * s), Connected("b", 4 * s, 9 * s),
    ]  # fmt: skip
    assert connections([[1, "up", "a"], [2, "down", ""]], 9 * s) == [Connected("a", 1, 1)]
    assert connections([], 5) == []


def test_receipts_keep_their_order() -> None:
    own = [[1, "up", "a"], [2, "event", "p", 3, 1], [3, "event", "p", 3, 0]]
    assert receipts(own) == [Received(Event("p", 3, 1), 2), Received(Event("p", 3, 0), 3)]


def test_a_mode_change_without_an_answer_is_unknown() -> None:
    changes, reads = mode_operations(
        [[1, "mode", 2], [2, "mode answer", OK], [3, "mode", 1], [5, "mode read", 4, 1], [6, "mode", 3]]
    )
    assert changes == [ModeChange(2, 1, 2, OK), ModeChange(1, 3, 3, UNKNOWN), ModeChange(3, 6, 6, UNKNOWN)]
    assert reads == [ModeRead(1, 4, 5)]


def test_an_event_is_what_its_body_says() -> None:
    event = Event("p1", 3, 77)
    assert event_of(body_of(event)) == event


def test_the_same_seed_gives_the_same_faults_and_every_kind_of_them() -> None:
    assert plan(7, 120, TARGETS) == plan(7, 120, TARGETS)
    assert plan(7, 120, TARGETS) != plan(8, 120, TARGETS)
    for seed in range(50):
        steps = plan(seed, 120, TARGETS)
        assert {step.kind for step in steps} == set(PARTS)
        assert all(step.at_s + step.lasts_s <= 120 for step in steps)
        assert all(step.subject in getattr(TARGETS, step.kind) for step in steps)


def test_nothing_is_done_twice_to_one_process_at_a_time() -> None:
    for seed in range(50):
        steps = plan(seed, 120, TARGETS)
        for one in steps:
            for other in steps:
                apart = one.at_s + one.lasts_s <= other.at_s or other.at_s + other.lasts_s <= one.at_s
                if one is other or apart:
                    continue
                if one.kind in CUTS and other.kind in CUTS:
                    assert one.kind == other.kind == "cut"
                    assert one.subject != other.subject
                elif one.kind not in CUTS and other.kind not in CUTS:
                    assert not set(one.names) & set(other.names)


def test_what_cannot_be_done_here_is_left_out() -> None:
    steps = plan(3, 60, Targets(kill=("a",)))
    assert {step.kind for step in steps} == {"kill"}
    assert plan(3, 60, Targets()) == []


def test_a_fault_says_what_it_is() -> None:
    assert str(Step("cut", "a-b", 1.0, 2.0, both=False)) == "1.0 s cut a-b (one way) for 2.0 s"
    assert str(Step("clock", "a", 1.0, 2.0, -60.0)) == "1.0 s clock a by -60 s for 2.0 s"
