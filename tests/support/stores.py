"""What every store promises, as tests; a subclass says how to open one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chappe.errors import StaleEpochError
from chappe.store import Store, open_store

Open = Callable[[], Store]

WRITER = """
import sys
from chappe.store import open_store
store = open_store(sys.argv[1])
epoch = store.acquire("cloud", "writer", 30)
for number in range(100_000):
    value = str(number).encode()
    store.commit("cloud", epoch, [("counter", "a", value), ("counter", "b", value), ("row", str(number), value)])
    print(number, flush=True)
"""


class StoreContract:
    """Every test opens connections of its own to the same place."""

    @pytest.fixture
    def place(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def open(self, place: str) -> Iterator[Open]:
        opened: list[Store] = []

        def another() -> Store:
            opened.append(open_store(place))
            return opened[-1]

        yield another
        for store in opened:
            store.close()

    def test_one_of_two_has_the_lease(self, open: Open) -> None:
        one, two = open(), open()
        assert one.acquire("cloud", "one", 30) == 1
        assert two.acquire("cloud", "two", 30) is None
        assert two.acquire("other", "two", 30) == 1
        assert one.renew("cloud", "one", 1, 30)
        assert not two.renew("cloud", "two", 1, 30)
        assert not one.renew("cloud", "one", 2, 30)

    def test_many_that_ask_at_once_get_one_lease(self, open: Open) -> None:
        stores = [open() for _ in range(6)]
        ready = threading.Barrier(len(stores))

        def ask(number: int) -> int | None:
            ready.wait()
            return stores[number].acquire("cloud", f"p{number}", 30)

        with ThreadPoolExecutor(len(stores)) as pool:
            epochs = list(pool.map(ask, range(len(stores))))
        assert sorted(epoch for epoch in epochs if epoch is not None) == [1]

    @pytest.mark.spec("GS-156")
    def test_a_lease_that_ran_out_is_taken_with_a_higher_epoch(self, open: Open) -> None:
        one, two = open(), open()
        asked = time.monotonic()
        assert one.acquire("cloud", "one", 0.3) == 1
        while (epoch := two.acquire("cloud", "two", 30)) is None:
            assert time.monotonic() < asked + 30
            time.sleep(0.01)
        assert epoch == 2
        assert time.monotonic() - asked > 0.29  # a server has a clock of its own
        assert not one.renew("cloud", "one", 1, 30)
        assert one.acquire("cloud", "one", 30) is None

    def test_a_renewed_lease_does_not_run_out(self, open: Open) -> None:
        one, two = open(), open()
        lease_s = 1.0  # longer than a busy machine stands still between two statements
        assert one.acquire("cloud", "one", lease_s) == 1
        until = time.monotonic() + 1.5 * lease_s
        while time.monotonic() < until:
            assert one.renew("cloud", "one", 1, lease_s)
            assert two.acquire("cloud", "two", lease_s) is None
            time.sleep(0.05)

    def test_a_lease_given_up_is_free_and_commits_nothing(self, open: Open) -> None:
        one, two = open(), open()
        assert one.acquire("cloud", "one", 30) == 1
        two.give_up("cloud", "two", 1)
        assert one.renew("cloud", "one", 1, 30)
        one.give_up("cloud", "one", 1)
        with pytest.raises(StaleEpochError):
            one.commit("cloud", 1, [("k", "a", b"1")])
        assert two.acquire("cloud", "two", 30) == 2

    def test_the_same_holder_takes_its_lease_anew(self, open: Open) -> None:
        one = open()
        assert [one.acquire("cloud", "one", 30) for _ in range(3)] == [1, 2, 3]

    def test_what_is_committed_is_loaded_by_role(self, open: Open) -> None:
        one, two = open(), open()
        epoch, other = one.acquire("cloud", "one", 30), one.acquire("other", "one", 30)
        assert epoch == other == 1
        one.commit("cloud", 1, [("a", "x", b"\x00\xff"), ("b", "x", b""), ("a", "ü/'\"", b"2"), ("a", "gone", b"3")])
        one.commit("other", 1, [("a", "x", b"other")])
        one.commit("cloud", 1, [("a", "x", b"new"), ("a", "gone", None), ("a", "never", None)])
        assert sorted(two.load("cloud")) == [("a", "x", b"new"), ("a", "ü/'\"", b"2"), ("b", "x", b"")]
        assert two.load("other") == [("a", "x", b"other")]
        assert two.load("nobody") == []

    def test_of_several_changes_of_one_item_the_last_counts(self, open: Open) -> None:
        one = open()
        assert one.acquire("cloud", "one", 30) == 1
        one.commit(
            "cloud", 1, [("k", "a", b"1"), ("k", "b", b"1"), ("k", "a", None), ("k", "b", b"2"), ("k", "b", b"3")]
        )
        assert one.load("cloud") == [("k", "b", b"3")]
        one.commit("cloud", 1, [("k", "b", None), ("k", "b", b"4")])
        one.commit("cloud", 1, [])
        assert one.load("cloud") == [("k", "b", b"4")]

    @pytest.mark.spec("GS-156")
    def test_an_old_epoch_commits_nothing(self, open: Open) -> None:
        one, two = open(), open()
        assert one.acquire("cloud", "one", 0.05) == 1
        one.commit("cloud", 1, [("k", "a", b"1"), ("k", "b", b"1")])
        while two.acquire("cloud", "two", 30) is None:
            time.sleep(0.01)
        with pytest.raises(StaleEpochError, match="epoch 1 of cloud is over"):
            one.commit("cloud", 1, [("k", "a", b"old"), ("k", "b", None), ("k", "c", b"old")])
        with pytest.raises(StaleEpochError):
            one.commit("cloud", 3, [("k", "a", b"future")])
        with pytest.raises(StaleEpochError):
            one.commit("nobody", 1, [("k", "a", b"1")])
        assert two.load("cloud") == [("k", "a", b"1"), ("k", "b", b"1")]
        two.commit("cloud", 2, [("k", "a", b"2")])
        assert one.load("cloud") == [("k", "a", b"2"), ("k", "b", b"1")]

    def test_thousands_of_changes_are_one_commit(self, open: Open) -> None:
        one = open()
        assert one.acquire("cloud", "one", 30) == 1
        one.commit("cloud", 1, [("k", f"{n:06}", bytes(200)) for n in range(5_000)])
        assert len(one.load("cloud")) == 5_000
        one.commit("cloud", 1, [("k", f"{n:06}", None if n % 2 else b"even") for n in range(5_000)])
        assert one.load("cloud") == [("k", f"{n:06}", b"even") for n in range(0, 5_000, 2)]

    def test_a_killed_process_loses_nothing_it_was_told_is_committed(self, open: Open, place: str) -> None:
        root = Path(__file__).parents[2]
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, place],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(root / "src")},
        )
        assert writer.stdout is not None
        with writer:
            told = -1
            while told < 60:
                told = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                told = int(line)
        items = {(kind, key): int(value) for kind, key, value in open().load("cloud")}
        last = items["counter", "a"]
        assert told <= last <= told + 1  # it may have died before it could say so
        assert items["counter", "b"] == last
        assert sorted(value for (kind, _), value in items.items() if kind == "row") == list(range(last + 1))
