"""Measuring how long a loop is busy without a pause."""

from __future__ import annotations

import asyncio
import time

import pytest

from chappe.links._turns import BOUNDS_S, LoopTurns


async def test_a_turn_that_takes_long_is_seen_and_waiting_is_not() -> None:
    turns = LoopTurns(asyncio.get_running_loop())
    try:
        began_ns = time.perf_counter_ns()
        await asyncio.sleep(0.3)
        waited_ns = time.perf_counter_ns() - began_ns
        assert turns.busy_ns < waited_ns - 200_000_000
        time.sleep(0.06)  # noqa: ASYNC251  this is what is measured
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert turns.longest_ns >= 60_000_000
        assert sum(turns.counts()) == turns.count
        assert sum(turns.counts()[BOUNDS_S.index(0.05) + 1 :]) >= 1
        assert turns.take_recent() >= 60_000_000
        await asyncio.sleep(0.001)
        assert turns.recent_longest_ns < turns.longest_ns
        turns.restart()
        assert (turns.longest_ns, turns.count) == (0, 0)
    finally:
        turns.close()
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        _ = turns.count


def test_another_kind_of_loop_is_refused() -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        with pytest.raises(RuntimeError, match="uvloop"):
            LoopTurns(loop)
    finally:
        loop.close()
