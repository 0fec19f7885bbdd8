from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from chappe.core.broker.commit_queue import CommitQueue
from chappe.errors import StaleEpochError, StoreError
from chappe.machine import Change, Effect, Persist, Send
from chappe.runtime.broker import commits as broker_commits
from chappe.runtime.broker.commits import Commits, Tally
from chappe.wire.base import Done


class Machine:
    """A broker that leads in an epoch until it is over; every message goes to one port."""

    def __init__(self) -> None:
        self.epoch = 1
        self.queue = CommitQueue()

    @property
    def has_changes(self) -> bool:
        return self.queue.ready

    def changes(self) -> list[Change]:
        return self.queue.take()

    def committed(self, epoch: int) -> list[Effect]:
        return [Send(1, send.message) for send in self.queue.committed()] if epoch == self.epoch else []


class Disk:
    """Commits when it is told to; keeps what was asked and what left, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[Change]]] = []
        self.left: list[int] = []
        self.reasons: list[str] = []
        self.tally = Tally()
        self.gate: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.machine = Machine()
        self.commits = Commits(self.machine, self._commit, self._perform, self._over, self.tally)

    async def _commit(self, epoch: int, changes: Sequence[Change]) -> None:
        self.asked.append((epoch, list(changes)))
        error = await self.gate.get()
        if error is not None:
            raise error

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Send)
            assert isinstance(effect.message, Done)
            self.left.append(effect.message.id)

    def _over(self, epoch: int, reason: str) -> None:
        self.reasons.append(reason)
        self.resign()

    def resign(self) -> None:
        self.machine.epoch, self.machine.queue = self.machine.epoch + 1, CommitQueue()

    def put(self, *effects: Effect) -> list[int]:
        free = [number(send) for send in self.machine.queue.put(effects)]
        self.commits.go()
        return free

    async def let(self, *results: Exception | None) -> None:
        for result in results:
            self.gate.put_nowait(result)
        await turns()


def number(send: Send) -> int:
    assert isinstance(send.message, Done)
    return send.message.id


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def send(number: int, to: str = "router/a") -> Send:
    return Send(to, Done(id=number))


def keep(key: str, value: bytes | None = b"1") -> Persist:
    return Persist((Change("k", key, value),))


async def test_what_follows_from_nothing_new_leaves_at_once() -> None:
    disk = Disk()
    assert disk.put(send(1), send(2)) == [1, 2]
    await turns()
    assert disk.asked == []


async def test_messages_wait_for_the_changes_before_them() -> None:
    disk = Disk()
    assert disk.put(send(1), keep("a"), send(2)) == [1]
    await turns()
    assert disk.left == []
    await disk.let(None)
    assert disk.left == [2]
    assert disk.put(send(3)) == [3]


async def test_everything_of_one_turn_is_one_transaction() -> None:
    disk = Disk()
    for at in range(50):
        assert disk.put(keep(f"{at}"), send(at)) == []
    disk.put(keep("0", None), send(50))
    await turns()
    assert len(disk.asked) == 1
    assert disk.asked[0][1][:2] == [Change("k", "0", None), Change("k", "1", b"1")]
    await disk.let(None)
    assert disk.left == list(range(51))
    assert (disk.tally.commits, disk.tally.changes) == (1, 50)


async def test_what_comes_while_a_commit_runs_is_merged_into_the_next() -> None:
    disk = Disk()
    disk.put(keep("a"), send(1))
    await turns()
    assert disk.put(send(2)) == []  # follows from the commit that runs
    disk.put(keep("b"), send(3))
    await turns()
    disk.put(keep("c"), send(4))
    await turns()
    assert disk.asked == [(1, [Change("k", "a", b"1")])]
    assert disk.machine.queue.waiting == 4
    await disk.let(None)
    assert disk.left == [1, 2]
    assert disk.asked[1:] == [(1, [Change("k", "b", b"1"), Change("k", "c", b"1")])]
    await disk.let(None)
    assert disk.left == [1, 2, 3, 4]
    assert not disk.machine.queue.ready


async def test_a_failure_is_repeated_with_the_same_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_commits, "AGAIN_S", 0.001)
    disk = Disk()
    disk.put(keep("a"), send(1))
    for error in (StoreError("away"), StoreError("away"), None):
        disk.gate.put_nowait(error)
    await disk.commits.settled()
    assert disk.left == [1]
    assert disk.asked == [(1, [Change("k", "a", b"1")])] * 3
    assert disk.reasons == []


async def test_nothing_leaves_once_the_epoch_is_over() -> None:
    disk = Disk()
    disk.put(keep("a"), send(1))
    await turns()
    disk.put(keep("b"), send(2))
    await disk.let(StaleEpochError("cloud", 3))
    assert disk.reasons == ["epoch 3 of cloud is over; another process leads"]
    await disk.let(None)
    assert disk.left == []
    assert len(disk.asked) == 1


async def test_a_commit_that_succeeds_after_the_end_lets_nothing_leave() -> None:
    disk = Disk()
    disk.put(keep("a"), send(1))
    await turns()
    disk.resign()
    await disk.let(None)
    assert disk.left == []
    disk.put(keep("b"), send(2))
    await turns()
    assert disk.asked[1:] == [(2, [Change("k", "b", b"1")])]
    await disk.let(None)
    assert disk.left == [2]


async def test_what_waits_for_a_lost_connection_is_not_sent_to_the_next() -> None:
    disk = Disk()
    disk.put(keep("a"), send(1), send(2, "router/b"))
    await turns()
    disk.put(keep("b"), send(3), send(4, "router/b"))
    disk.machine.queue.forget("router/a")
    await disk.let(None, None)
    assert disk.left == [2, 4]


async def test_a_failure_that_nobody_expected_ends_the_term() -> None:
    disk = Disk()
    disk.put(keep("a"), send(1))
    await turns()
    await disk.let(RuntimeError("broken"))
    assert (disk.left, disk.reasons) == ([], ["RuntimeError: broken"])
    await asyncio.wait_for(disk.commits.settled(), 30)
    assert len(disk.asked) == 1
