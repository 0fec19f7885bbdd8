"""A node that has nothing to wait for looks at what is due four times a second; one that has, twenty times."""

from __future__ import annotations

import asyncio

import pytest

from chappe.runtime.ticker import REST_S, TICK_S, Ticker, rest_s


class Ticks:
    """Counts them; the first `failing` raise, each asks for the next after so long."""

    def __init__(self, delay_s: float, failing: int = 0) -> None:
        self.count = 0
        self._delay_s = delay_s
        self._failing = failing
        self._more = asyncio.Condition()
        self._told: set[asyncio.Task[None]] = set()

    def __call__(self) -> float:
        self.count += 1
        task = asyncio.get_running_loop().create_task(self._tell())
        self._told.add(task)
        task.add_done_callback(self._told.discard)
        if self.count <= self._failing:
            raise ValueError("not today")
        return self._delay_s

    async def _tell(self) -> None:
        async with self._more:
            self._more.notify_all()

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(20), self._more:
            await self._more.wait_for(lambda: self.count >= count)


@pytest.mark.parametrize(
    ("heartbeat_ns", "expected_s"),
    [(1 << 62, REST_S), (1_000_000_000, REST_S), (400_000_000, 0.1), (200_000_000, TICK_S), (1_000_000, TICK_S)],
)
def test_a_node_rests_no_longer_than_a_quarter_of_its_shortest_heartbeat(heartbeat_ns: int, expected_s: float) -> None:
    assert rest_s(heartbeat_ns) == pytest.approx(expected_s)


async def test_who_hurries_does_not_wait_for_the_end_of_the_rest() -> None:
    ticks = Ticks(3600.0)
    ticker = Ticker("n", ticks)
    ticker.hurry()  # not started: nothing to bring forward
    ticker.start()
    await ticks.reached(1)
    ticker.hurry()
    ticker.hurry()
    await ticks.reached(2)
    ticker.stop()
    assert ticks.count == 2


async def test_a_tick_that_fails_is_not_the_last() -> None:
    ticks = Ticks(0.0, failing=2)
    ticker = Ticker("n", ticks)
    ticker.start()
    await ticks.reached(5)
    ticker.stop()


async def test_a_ticker_that_was_stopped_in_its_tick_stays_so() -> None:
    ticks = Ticks(0.0)
    stopped: list[int] = []

    def tick() -> float:
        delay_s = ticks()
        ticker.stop()
        stopped.append(ticks.count)
        return delay_s

    ticker = Ticker("n", tick)
    ticker.start()
    await ticks.reached(1)
    await asyncio.sleep(0)
    ticker.hurry()
    for _ in range(100):
        await asyncio.sleep(0)
    assert stopped == [1]
