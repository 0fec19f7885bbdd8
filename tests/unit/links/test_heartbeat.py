from __future__ import annotations

import pytest

from chappe.links.heartbeat import Heartbeat, LinkStatus, Verdict

S = 1_000_000_000


@pytest.mark.spec("GS-004")
def test_a_quiet_link_becomes_suspect_and_then_fails_once() -> None:
    beat = Heartbeat(S, 3)
    assert beat.status is LinkStatus.CONNECTING
    beat.connected(100 * S)
    table = [  # now, last heard, status, send, dead
        (100.5, 100, LinkStatus.CONNECTED, False, False),
        (101.0, 100, LinkStatus.CONNECTED, True, False),
        (101.2, 101.1, LinkStatus.CONNECTED, False, False),
        (102.0, 101.1, LinkStatus.CONNECTED, True, False),
        (102.7, 101.1, LinkStatus.SUSPECT, False, False),
        (103.0, 102.9, LinkStatus.CONNECTED, True, False),
        (104.0, 102.9, LinkStatus.CONNECTED, True, False),
        (105.0, 102.9, LinkStatus.SUSPECT, True, False),
        (105.9, 102.9, LinkStatus.FAILED, False, True),
        (106.0, 102.9, LinkStatus.FAILED, False, False),
    ]
    for now, heard, status, send, dead in table:
        verdict = beat.check(int(now * S), int(heard * S))
        assert (verdict.status, verdict.send, verdict.dead) == (status, send, dead), now
    assert beat.last_heard_ns == int(102.9 * S)


@pytest.mark.spec("GS-004")
def test_a_link_that_comes_back_is_connected_again() -> None:
    beat = Heartbeat(S, 2)
    beat.connected(0)
    assert beat.check(2 * S, 0).dead
    beat.connecting()
    assert beat.check(3 * S, 0) == Verdict(LinkStatus.CONNECTING, False, False, 4 * S)
    beat.connected(10 * S)
    assert beat.check(10 * S + 1, 0).status is LinkStatus.CONNECTED
    beat.lost()
    assert not beat.check(20 * S, 0).dead  # whoever said `lost` knows already


@pytest.mark.spec("GS-004")
def test_whoever_stood_still_reads_what_was_said_before_it_judges() -> None:
    """The other side speaks every second; this one stands still from 101 to 109 and then checks before it reads."""
    beat = Heartbeat(S, 3)
    beat.connected(100 * S)
    assert beat.check(101 * S, 100 * S).next_ns == 102 * S
    verdict = beat.check(109 * S, 100 * S)
    assert (verdict.status, verdict.send, verdict.dead) == (LinkStatus.CONNECTED, True, False)
    assert beat.check(110 * S, 109 * S).status is LinkStatus.CONNECTED


@pytest.mark.spec("GS-004")
def test_silence_after_a_check_was_due_raises_no_suspicion() -> None:
    beat = Heartbeat(S, 3)
    beat.connected(100 * S)
    assert beat.check(101 * S, 100 * S).next_ns == 102 * S
    assert beat.check(int(102.8 * S), int(101.3 * S - 1)).status is LinkStatus.CONNECTED
    assert beat.check(int(103.8 * S), int(101.3 * S - 1)).status is LinkStatus.SUSPECT  # this one came in time


@pytest.mark.spec("GS-004")
def test_a_link_that_is_dead_is_found_even_by_one_who_always_comes_late() -> None:
    beat = Heartbeat(S, 3)
    beat.connected(0)
    now_ns = next_ns = 0
    for _ in range(10):
        now_ns = max(now_ns, next_ns) + 3 * S  # three intervals after it should have come
        verdict = beat.check(now_ns, 0)
        next_ns = verdict.next_ns
        if verdict.dead:
            break
    assert 3 * S < now_ns < 20 * S
    assert verdict.dead


def test_the_next_check_comes_no_later_than_death() -> None:
    beat = Heartbeat(S, 1)
    beat.connected(0)
    assert beat.check(S // 2, S // 4).next_ns == S
    verdict = beat.check(S, S // 4)
    assert verdict.send
    assert verdict.next_ns == S + S // 4


@pytest.mark.parametrize(("interval_ns", "misses"), [(0, 3), (-1, 3), (S, 0)])
def test_senseless_settings_are_refused(interval_ns: int, misses: int) -> None:
    with pytest.raises(ValueError, match="heartbeat needs"):
        Heartbeat(interval_ns, misses)
