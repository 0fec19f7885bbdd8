"""Quality as people write it, on the wire, and shared by several watches."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from chappe.client.merging import common_interval, merge_requests
from chappe.client.quality import (
    ALL_MODES,
    Granted,
    Qos,
    QosRequest,
    Quality,
    granted_by_mode,
    multiple,
    periods,
    qos_request,
)
from chappe.client.requests import refusal
from chappe.errors import QosError, RefusedError
from chappe.wire import control

MS = 1_000_000


@pytest.mark.spec("GS-040", "GS-042")
def test_seconds_become_nanoseconds_and_what_worst_leaves_out_may_not_get_worse() -> None:
    qos = Qos(
        interval=0.1, latency=0.05, redundancy=2, priority=1, security=1,
        worst=Qos(interval=Fraction(1, 2), redundancy=1),
    )  # fmt: skip
    assert qos.wire() == control.Qos(
        interval_ns=100 * MS, latency_ns=50 * MS, redundancy=2, priority=1, security=1, worst_interval_ns=500 * MS,
        worst_latency_ns=0, worst_redundancy=1, worst_priority=0,
    )  # fmt: skip
    assert Qos().wire() == control.Qos()
    unbounded = Qos(latency=0.05, worst=Qos(latency=math.inf)).wire()
    assert unbounded.worst_latency_ns > 10**18


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Qos(interval=0), "interval is a positive"),
        (lambda: Qos(latency=-1), "latency is a positive"),
        (lambda: Qos(redundancy=0), "number of paths"),
        (lambda: Qos(priority=7), "0 .alert. to 6"),
        (lambda: Qos(security=3), "security is 0"),
        (lambda: Qos(interval=1, worst=Qos(interval=0.5)), "worst interval 0.5 is better"),
        (lambda: Qos(worst=Qos(latency=1)), "worst latency 1 is better"),
        (lambda: Qos(redundancy=1, worst=Qos(redundancy=2)), "worst redundancy 2 is more"),
        (lambda: Qos(priority=4, worst=Qos(priority=3)), "worst priority 3 is better"),
        (lambda: Qos(worst=Qos(worst=Qos())), "worst has"),
        (lambda: qos_request(Qos(), interval=1), "not both"),
        (lambda: qos_request({0: Qos()}, modes=[1]), "leave out modes"),
        (lambda: qos_request({16: Qos()}), "0 to 15"),
        (lambda: qos_request(None, modes=[]), "some of 0 to 15"),
    ],
)
def test_a_contradiction_is_named(make: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()  # type: ignore[operator]


@pytest.mark.spec("GS-041")
def test_quality_by_mode_says_the_modes() -> None:
    request = qos_request({0: Qos(interval=1), 3: Qos(interval=0.1)})
    assert request.modes == 0b1001
    assert [request.in_mode(mode) is not None for mode in range(5)] == [True, False, False, True, False]
    assert request.in_mode(3) == control.Qos(interval_ns=100 * MS)
    assert len(request.qos) == 16
    assert qos_request(Qos(interval=1), modes=[2]).modes == 0b100
    assert qos_request(None, interval=0.1) == QosRequest((control.Qos(interval_ns=100 * MS),), ALL_MODES)


@pytest.mark.spec("GS-042")
def test_a_refusal_for_capacity_says_what_could_be_granted() -> None:
    best = (control.Grant(500 * MS, 5, 20 * MS, 1, 3),)
    error = refusal(control.Failed(id=1, reason="no second path", code="capacity", best=best))
    assert isinstance(error, QosError)
    assert isinstance(error, RefusedError)
    assert error.best[7] == Granted(interval=0.5, every=5, latency=0.02, redundancy=1, priority=3)
    by_mode = granted_by_mode((None,) * 3 + best + (None,) * 12, ALL_MODES)
    assert set(by_mode) == {3}


def test_watches_of_one_variable_are_asked_for_together() -> None:
    rate = (1, 10 * MS)  # 100 a second
    fine, coarse = qos_request(None, 0.02), qos_request(None, 0.03)
    assert merge_requests([fine, fine], *rate) is fine
    assert merge_requests([fine, coarse], *rate).qos[0].interval_ns == 0, "20 and 30 ms meet only at 10 ms"
    assert merge_requests([fine, qos_request(None, 0.06)], *rate).qos[0].interval_ns == 20 * MS
    strict = Qos(latency=0.01, redundancy=2, priority=1, worst=Qos(latency=0.03))
    loose = Qos(latency=0.5, priority=5, security=2)
    both = merge_requests([qos_request(strict), qos_request(loose)], *rate).qos[0]
    assert (both.latency_ns, both.redundancy, both.priority, both.security) == (10 * MS, 2, 1, 2)
    assert (both.worst_latency_ns, both.worst_redundancy) == (30 * MS, 0)


def test_watches_of_different_modes_are_merged_mode_by_mode() -> None:
    both = merge_requests(
        [qos_request({0: Qos(interval=1)}), qos_request({0: Qos(interval=2), 1: Qos(interval=3)})], 1, 1000 * MS
    )
    assert both.modes == 0b11
    assert [both.in_mode(mode).interval_ns for mode in (0, 1)] == [0, 3000 * MS]  # type: ignore[union-attr]


def test_periods_are_counted_as_the_node_counts_them() -> None:
    assert [periods(wanted * MS, 3, 100 * MS) for wanted in (0, 33, 34, 99, 100, 101)] == [1, 1, 1, 2, 3, 3]
    assert periods(100 * MS, 0, 1) == 1
    assert [multiple(wanted, 4) for wanted in (1, 4, 5, 8)] == [4, 4, 8, 8]
    assert common_interval(Fraction(20), Fraction(30)) == 60
    assert common_interval(Fraction(1, 2), Fraction(1, 3)) == 1


@pytest.mark.spec("GS-041")
def test_each_watch_keeps_its_own_interval_by_mode() -> None:
    quality = Quality(qos_request({0: Qos(interval=0.3), 1: Qos(interval=0.1)}))
    answer = control.Watching(id=1, variable_id=1, type="float", rate_num=1, rate_den=100 * MS, every=1)
    granted = {mode: Granted(0.1, 1, 0.02, 1, 3) for mode in (0, 1, 2)}
    quality.settle(granted, answer, alone=False)
    assert quality.every == {0: 3, 1: 1}
    assert quality.granted[0] == Granted(0.3, 3, 0.02, 1, 3)
    assert 2 not in quality.granted


def test_the_bound_is_what_was_asked_for_or_what_was_acceptable() -> None:
    quality = Quality(qos_request(Qos(latency=0.05, worst=Qos(latency=0.2))))
    quality.granted = {0: Granted(1, 1, 0.03, 1, 3), 1: Granted(1, 1, 0.1, 1, 3)}
    assert [quality.bound_ns(mode) // MS for mode in (0, 1)] == [50, 200]
    assert Quality(qos_request(Qos(interval=1))).bound_ns(0) == 0
