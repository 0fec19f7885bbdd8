"""A thread beside a loop: order, errors, cancellation, shutdown."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from structlog.testing import capture_logs

from chappe.executor import SerialExecutor


def _numbered(number: int) -> tuple[int, int]:
    return number, threading.get_ident()


async def test_actions_run_in_order_in_one_thread_that_begins_first() -> None:
    begun: list[int] = []
    executor = SerialExecutor("one", lambda: begun.append(threading.get_ident()))
    try:
        found = await asyncio.gather(*(executor.run(partial(_numbered, number)) for number in range(50)))
    finally:
        executor.shutdown()
    assert [number for number, _ in found] == list(range(50))
    assert {thread for _, thread in found} == set(begun)
    assert threading.get_ident() not in begun


async def test_an_error_reaches_the_caller_and_the_next_action_runs() -> None:
    executor = SerialExecutor("one")

    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        await executor.run(fail)
    assert await executor.run(lambda: 7) == 7
    executor.shutdown()


async def test_an_action_whose_caller_is_cancelled_runs_to_its_end_and_its_error_is_logged() -> None:
    executor = SerialExecutor("one")
    begun, go = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go.wait(10)
        raise OSError("no room")

    waiting = asyncio.ensure_future(executor.run(fail))
    behind = asyncio.ensure_future(executor.run(lambda: "done"))
    await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    with capture_logs() as logs:
        go.set()
        assert await behind == "done"
    executor.shutdown()
    assert waiting.cancelled()
    assert [entry["reason"] for entry in logs] == ["OSError: no room"]


async def test_shutdown_waits_for_what_is_under_way_and_nothing_runs_afterwards() -> None:
    executor = SerialExecutor("one")
    done: list[int] = []
    waiting = asyncio.ensure_future(executor.run(lambda: done.append(1)))
    await asyncio.sleep(0)
    executor.shutdown()
    assert done == [1]
    await waiting
    with pytest.raises(RuntimeError, match="shut down"):
        await executor.run(lambda: None)


async def test_one_that_never_ran_can_be_shut_down() -> None:
    SerialExecutor("none").shutdown()


def test_a_loop_that_is_closed_meanwhile_does_not_end_the_thread() -> None:
    executor = SerialExecutor("one")
    go = threading.Event()

    async def leave() -> None:
        waiting = asyncio.ensure_future(executor.run(lambda: go.wait(10)))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave())
    go.set()
    assert asyncio.run(executor.run(lambda: 5)) == 5
    executor.shutdown()
