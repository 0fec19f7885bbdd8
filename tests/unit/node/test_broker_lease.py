from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chappe.errors import StoreError
from chappe.node import broker_lease
from chappe.node.broker_lease import Lease
from chappe.store import Store, open_store

Told = queue.Queue[tuple[str, int]]
Start = Callable[[str], tuple[Lease, Told]]
LEASE_S = 0.3


class Unreliable:
    """A real store that can be made to fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = False

    def __getattr__(self, name: str) -> Callable[..., object]:
        if self.away and name != "close":
            raise StoreError("store: away")
        found: Callable[..., object] = getattr(self._store, name)
        return found


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.db")


@pytest.fixture
def leases() -> Iterator[list[Lease]]:
    started: list[Lease] = []
    yield started
    for lease in started:
        lease.stop()


@pytest.fixture
def start(path: str, leases: list[Lease]) -> Start:
    def start(holder: str, store: object = None) -> tuple[Lease, Told]:
        told: Told = queue.Queue()
        lease = Lease(
            store or open_store(path), "cloud", holder, LEASE_S,  # type: ignore[arg-type]
            lambda epoch: told.put(("gained", epoch)), lambda epoch, reason: told.put(("lost", epoch)),
        )  # fmt: skip
        lease.start()
        leases.append(lease)
        return lease, told

    return start


def test_one_leads_and_the_other_follows_when_it_ends(start: Start, leases: list[Lease]) -> None:
    one, told_one = start("one")
    assert told_one.get(timeout=5) == ("gained", 1)
    two, told_two = start("two")
    with pytest.raises(queue.Empty):
        told_two.get(timeout=3 * LEASE_S)
    assert one.held(1)
    assert not two.held(1)
    leases.remove(one)
    one.stop()
    assert told_two.get(timeout=5) == ("gained", 2)
    assert not one.held(1)


def test_what_is_left_is_taken_anew_with_another_epoch(start: Start) -> None:
    lease, told = start("one")
    assert told.get(timeout=5) == ("gained", 1)
    lease.leave(1)
    assert told.get(timeout=5) == ("gained", 2)
    assert lease.held(2)
    assert not lease.held(1)


def test_a_lease_that_another_process_took_is_lost(start: Start, path: str) -> None:
    lease, told = start("one")
    assert told.get(timeout=5) == ("gained", 1)
    other = open_store(path)
    other.give_up("cloud", "one", 1)
    assert other.acquire("cloud", "two", 30) == 2
    assert told.get(timeout=5) == ("lost", 1)
    assert not lease.held(1)
    other.close()


def test_without_its_store_it_does_not_lead_for_longer_than_the_lease(start: Start, path: str) -> None:
    store = Unreliable(open_store(path))
    lease, told = start("one", store)  # type: ignore[call-arg]
    assert told.get(timeout=5) == ("gained", 1)
    store.away = True
    away = time.monotonic()
    while lease.held(1):
        time.sleep(0.005)
    assert time.monotonic() - away <= LEASE_S + 0.1
    assert told.get(timeout=5) == ("lost", 1)
    store.away = False
    assert told.get(timeout=5) == ("gained", 2)


def test_a_process_whose_loop_does_not_turn_does_not_lead(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_lease, "PATIENCE_S", 0.5)
    lease, told = start("one")
    assert told.get(timeout=5) == ("gained", 1)
    begun = time.monotonic()
    while time.monotonic() - begun < 1.5:
        lease.alive()
        assert lease.held(1)
        time.sleep(0.01)
    assert told.get(timeout=5) == ("lost", 1)
