"""Time limits of calculations, and deadlines of the kernel's clock."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chappe.worker import budget as worker_budget
from chappe.worker.alarm import Alarm
from chappe.worker.budget import Budget, BudgetExceeded


@pytest.fixture
def blame(tmp_path: Path) -> Path:
    file = tmp_path / "blame"
    file.write_bytes(bytes(8))
    return file


@pytest.fixture
def budget(blame: Path) -> Iterator[Budget]:
    before = {number: signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGALRM)}
    yield Budget(0.02, blame)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_ends_in_time_gives_its_result_and_is_blamed_meanwhile(budget: Budget, blame: Path) -> None:
    assert budget.run(7, 1.0, lambda number: (number, blame.read_bytes()[:4]), 3) == (3, bytes((0, 0, 0, 7)))
    assert blame.read_bytes() == bytes(8)
    with budget.loading(9):
        assert blame.read_bytes() == bytes((0, 0, 0, 0, 0, 0, 0, 9))
    assert blame.read_bytes() == bytes(8)


def test_a_loop_is_ended_even_if_it_swallows_exceptions(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_budget, "WAITING", 1000)  # a busy machine may give it little of its processor

    def endless() -> None:
        while True:
            with contextlib.suppress(Exception):
                sum(range(100))

    with pytest.raises(BudgetExceeded, match="more than 20 ms of the processor"):
        budget.run(7, 1.0, endless)


def test_one_that_waits_is_ended_too(budget: Budget) -> None:
    with pytest.raises(BudgetExceeded, match="did not end within 200 ms"):
        budget.run(7, 1.0, time.sleep, 30)


def test_an_error_goes_through_and_the_timers_are_off(budget: Budget, blame: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        budget.run(7, 1.0, lambda: 1 / 0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert blame.read_bytes() == bytes(8)


def test_a_signal_that_comes_late_raises_nothing(budget: Budget) -> None:
    budget.run(7, 1.0, int)
    signal.raise_signal(signal.SIGALRM)


async def test_alarms_come_in_the_order_of_their_times_and_none_too_early() -> None:
    alarm = Alarm(asyncio.get_running_loop())
    heard: list[tuple[str, int]] = []
    done = asyncio.Event()
    start_ns = time.time_ns()
    try:
        for name, after_ms in (("late", 30), ("soon", 5), ("over", -50), ("between", 12)):
            when_ns = start_ns + after_ms * 1_000_000
            alarm.at(when_ns, lambda name=name, when_ns=when_ns: heard.append((name, time.time_ns() - when_ns)))  # type: ignore[misc]
        alarm.at(start_ns + 40_000_000, done.set)
        async with asyncio.timeout(10):
            await done.wait()
    finally:
        alarm.close()
    assert [name for name, _ in heard] == ["over", "soon", "between", "late"]
    assert all(late_ns >= 0 for _, late_ns in heard)
