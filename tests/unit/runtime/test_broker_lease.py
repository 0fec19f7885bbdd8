from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from chappe.errors import StoreError
from chappe.runtime.broker import lease as broker_lease
from chappe.runtime.broker.lease import PATIENCE_S, SHARE, Lease
from chappe.store import Store, open_store
from chappe.store.sqlite import SqliteStore

Told = queue.Queue[tuple[str, int]]
Start = Callable[[str], tuple[Lease, Told, "Watched"]]
LEASE_S = 0.03
WAIT_S = 30.0  # how long something may take that is to happen


class Clock:
    """The time of leases and their store: it stands still until a test moves it, however long a machine takes."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A real store that counts what it is asked, and can be made to fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = False
        self.turns = 0  # times that a thread has asked it and has its answer

    def __getattr__(self, name: str) -> Callable[..., object]:
        found: Callable[..., object] = getattr(self._store, name)
        if name not in ("acquire", "renew"):
            return found

        def ask(*arguments: object) -> object:
            try:
                if self.away:
                    raise StoreError("store: away")
                return found(*arguments)
            finally:
                self.turns += 1

        return ask

    def asked_again(self) -> None:
        """Wait until a question that came after this call is answered, and the answer is used."""
        begun = self.turns
        until = time.monotonic() + WAIT_S
        while self.turns < begun + 3:  # one may be under way; what the second found is used before the third is asked
            assert time.monotonic() < until, "the lease is not asked for"
            time.sleep(0.002)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.db")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(broker_lease, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def leases() -> Iterator[list[Lease]]:
    started: list[Lease] = []
    yield started
    for lease in started:
        lease.stop()


@pytest.fixture
def start(path: str, clock: Clock, leases: list[Lease]) -> Start:
    def start(holder: str) -> tuple[Lease, Told, Watched]:
        told: Told = queue.Queue()
        store = Watched(SqliteStore(path, clock))
        lease = Lease(
            store, "cloud", holder, LEASE_S,  # type: ignore[arg-type]
            lambda epoch: told.put(("gained", epoch)), lambda epoch, reason: told.put(("lost", epoch)),
        )  # fmt: skip
        lease.start()
        leases.append(lease)
        return lease, told, store

    return start


def test_one_leads_and_the_other_follows_when_it_ends(start: Start, clock: Clock, leases: list[Lease]) -> None:
    one, told_one, renewing = start("one")
    assert told_one.get(timeout=WAIT_S) == ("gained", 1)
    two, told_two, asking = start("two")
    for _ in range(3 * SHARE):
        clock.now += LEASE_S / SHARE
        renewing.asked_again()
        asking.asked_again()
        assert one.held(1)
    assert told_two.empty()
    assert not two.held(1)
    leases.remove(one)
    one.stop()
    assert told_two.get(timeout=WAIT_S) == ("gained", 2)
    assert not one.held(1)


def test_what_is_left_is_taken_anew_with_another_epoch(start: Start) -> None:
    lease, told, _ = start("one")
    assert told.get(timeout=WAIT_S) == ("gained", 1)
    lease.leave(1)
    assert told.get(timeout=WAIT_S) == ("gained", 2)
    assert lease.held(2)
    assert not lease.held(1)


def test_a_lease_that_another_process_took_is_lost(start: Start, path: str) -> None:
    lease, told, _ = start("one")
    assert told.get(timeout=WAIT_S) == ("gained", 1)
    other = open_store(path)
    other.give_up("cloud", "one", 1)
    assert other.acquire("cloud", "two", 30) == 2
    assert told.get(timeout=WAIT_S) == ("lost", 1)
    assert not lease.held(1)
    other.close()


def test_without_its_store_it_does_not_lead_for_longer_than_the_lease(start: Start, clock: Clock) -> None:
    lease, told, store = start("one")
    assert told.get(timeout=WAIT_S) == ("gained", 1)
    store.away = True
    store.asked_again()
    clock.now += 0.99 * LEASE_S
    store.asked_again()
    assert lease.held(1)
    clock.now += 0.02 * LEASE_S
    assert not lease.held(1)  # at once, before any thread has noticed
    assert told.get(timeout=WAIT_S) == ("lost", 1)
    store.away = False
    assert told.get(timeout=WAIT_S) == ("gained", 2)


def test_a_process_whose_loop_does_not_turn_does_not_lead(start: Start, clock: Clock) -> None:
    lease, told, store = start("one")
    assert told.get(timeout=WAIT_S) == ("gained", 1)
    for _ in range(2 * SHARE):
        clock.now += PATIENCE_S / SHARE
        lease.alive()
        store.asked_again()
        assert lease.held(1)
    clock.now += 0.99 * PATIENCE_S
    store.asked_again()
    assert lease.held(1)
    clock.now += 0.02 * PATIENCE_S
    assert told.get(timeout=WAIT_S) == ("lost", 1)
    assert not lease.held(1)
