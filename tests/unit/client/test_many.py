"""Very many variables: what a watch and a request cost does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.client._core import ClientCore
from chappe.client._status import StatusStream, Watch
from chappe.client._watches import WatchTable
from chappe.client.requests import all_within, outcomes
from chappe.errors import DeniedError, TimeoutExpired
from tests.support.clientpeer import Peer, status

MANY = 20_000


def granted(number: int, stream: StatusStream) -> Watch:
    watch = Watch("p", f"v{number}", stream=stream)
    watch.admit(number, "float", 1, 10, 1)
    return watch


def test_adding_watches_one_by_one_moves_each_entry_a_few_times() -> None:
    core = ClientCore()
    Peer(core)
    stream = StatusStream(max_queue=MANY)
    watches = [granted(number, stream) for number in range(1, MANY + 1)]
    for watch in watches:
        core.watches.add([watch])
    assert len(core.watches) == MANY
    assert core.watches.moves <= 4 * MANY
    for number in range(1, MANY + 1, 500):
        core.feed(status((number, 1, float(number))))
        assert watches[number - 1].value == float(number)


def test_removing_watches_one_by_one_moves_few() -> None:
    table = WatchTable()
    stream = StatusStream()
    watches = [granted(number * 97, stream) for number in range(1, MANY + 1)]
    table.add(watches)
    before = table.moves
    for watch in watches:
        assert table.remove([watch]) == [watch.variable_id]
    assert len(table) == 0
    assert table.moves - before <= 2 * MANY


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 40).map(lambda number: number * 64 + number % 3)), max_size=120)
)
def test_after_any_order_of_adding_and_removing_every_watch_is_found(steps: list[tuple[bool, int]]) -> None:
    core = ClientCore()
    Peer(core)
    core.watches.clear()
    stream = StatusStream(max_queue=1 << 20)
    stream.take_nowait()
    present: dict[int, list[Watch]] = {}
    for adding, number in steps:
        if adding:
            watch = granted(number, stream)
            core.watches.add([watch])
            present.setdefault(number, []).append(watch)
        elif present.get(number):
            core.watches.remove([present[number].pop()])
    for number in {number * 64 + offset for number in range(1, 41) for offset in range(3)}:
        core.feed(status((number, 1, 1.0)))
        assert len(stream.take_nowait()) == len(present.get(number, ()))


class Questions:
    """Answers after a turn of the loop, and counts what is open."""

    def __init__(self, count: int, failing: int = -1) -> None:
        self.count = count
        self.failing = failing
        self.asked = self.open = self.most_open = 0

    def __iter__(self) -> Iterator[Callable[[], asyncio.Future[Any]]]:
        return iter([self.ask] * self.count)

    def ask(self) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0, self.answer, future, self.asked == self.failing)
        self.asked += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        return future

    def answer(self, future: asyncio.Future[Any], refuse: bool) -> None:
        self.open -= 1
        future.set_exception(DeniedError("no")) if refuse else future.set_result(None)


async def test_requests_are_bounded_in_flight_and_not_sent_one_by_one() -> None:
    questions = Questions(MANY)
    assert await outcomes(questions, 5.0, "ask", window=512) == [None] * MANY
    assert questions.asked == MANY
    assert 256 < questions.most_open <= 512


async def test_an_error_ends_the_asking_after_what_is_open() -> None:
    questions = Questions(MANY, failing=10)
    with pytest.raises(DeniedError):
        await all_within(questions, 5.0, "ask")
    assert questions.open == 0
    assert questions.asked < MANY // 2


async def test_a_batch_without_an_answer_ends_with_what_was_asked() -> None:
    with pytest.raises(TimeoutExpired, match="ask the node"):
        await all_within([asyncio.get_running_loop().create_future], 0.05, "ask the node")
