"""One client, several threads: Python code that runs inside `publish` may publish, too, as another thread would."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import pytest

import chappe
from chappe.client import topics
from chappe.client._core import ClientCore
from chappe.wire.events import check_topic
from tests.support.clientpeer import Peer


class Yielding(str):
    """A topic that lets somebody else run wherever its text is looked at."""

    hook: Callable[[], object]

    def _yields(self) -> None:
        hook, Yielding.hook = Yielding.hook, lambda: None
        hook()

    def __hash__(self) -> int:
        self._yields()
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        self._yields()
        return str.__eq__(self, other)

    def encode(self, *arguments: Any) -> bytes:  # type: ignore[override]
        self._yields()
        return str.encode(self, *arguments)

    def split(self, *arguments: Any) -> list[str]:  # type: ignore[override]
        self._yields()
        return str.split(self, *arguments)


class Line(IntEnum):
    FIRST = 7


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_topic_that_publishes_while_it_is_looked_up() -> None:
    core = ClientCore()
    peer = Peer(core)
    sent: list[tuple[str, bytes]] = []

    def publish(topic: str, body: bytes) -> None:
        assert core.publish(topic, body)
        sent.append((str.__str__(topic), body))

    for number in range(50):
        Yielding.hook = lambda number=number: publish(f"inner/{number}", b"inner")  # type: ignore[misc]
        publish(Yielding(f"outer/{number}"), b"outer")
    peer.read(echo=True)
    assert sorted(peer.received) == sorted(sent)


def test_topics_that_are_published_while_another_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place where a switch of threads did the damage: a plain topic is new, and is checked by Python code."""
    core = ClientCore()
    peer = Peer(core, max_topics=3)
    received: list[tuple[str | int, bytes]] = []
    inner = iter(range(1000))

    def read() -> None:
        """What has come, by the meaning that topic numbers have now."""
        peer.read(echo=True)
        received.extend(peer.received)
        peer.events.clear()

    def check(text: str) -> None:
        check_topic(text)
        if text.startswith("outer"):
            assert core.publish(f"inner/{next(inner)}", b"inner")

    monkeypatch.setattr(topics, "check_topic", check)
    for number in range(40):
        while not core.publish(f"outer/{number}", b"outer"):
            core.flush()
            read()
        core.flush()
        read()
    assert [(topic, body) for topic, body in received if not str(topic).startswith(body.decode())] == []
    assert {topic for topic, body in received if body == b"outer"} == {f"outer/{number}" for number in range(40)}


def test_publishing_while_a_new_connection_numbers_the_topics_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = ClientCore()
    Peer(core)
    for number in range(5):
        core.publish(f"kept/{number}", b"kept/%d" % number)
    during: list[int] = []

    def check(text: str) -> None:
        check_topic(text)
        if text.startswith("kept") and len(during) < 5:
            during.append(len(during))
            core.publish(f"during/{len(during)}", b"during/%d" % len(during))

    monkeypatch.setattr(topics, "check_topic", check)
    peer = Peer(core)
    peer.read()
    assert [(topic, topic) for topic, _ in peer.received] == [(topic, body.decode()) for topic, body in peer.received]


def test_a_durable_event_gets_its_own_sequence() -> None:
    core = ClientCore()
    Peer(core)
    core.schedule = lambda: core.publish("other", b"from another thread")
    assert core.publish_durable("mine", b"x") == 1


def test_flushes_of_two_threads_are_all_answered() -> None:
    """Entering a flush must not run the collector, with whose finalizers another thread's flush gets before it."""
    core = ClientCore()
    peer = Peer(core)
    serials = []

    class Finalized:
        def __init__(self) -> None:
            self.me = self  # only the collector frees it

        def __del__(self) -> None:
            core.publish("b", b"x")
            serials.append(core.flush())

    gc.collect()
    before = gc.get_threshold()
    try:
        gc.freeze()  # only what this test makes is looked at, or it takes minutes in a large process
        gc.set_threshold(1, 1000, 1000)
        for _ in range(20):
            Finalized()
            core.publish("a", b"x")
            serials.append(core.flush())
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    peer.read(echo=True)
    assert core.flushed == max(serials)


def test_topics_of_subclasses_are_the_topics_they_equal() -> None:
    core = ClientCore()
    peer = Peer(core)
    Yielding.hook = lambda: None
    for topic in ("a/b", Yielding("a/b"), Line.FIRST, 7, chappe.Long(7), chappe.Long(Line.FIRST)):
        core.publish(topic, b"x")
    peer.read()
    assert [topic for topic, _ in peer.received] == ["a/b", "a/b", 7, 7, 7, 7]
    assert len(peer.topics) == 3


@pytest.mark.usefixtures("quick_switches")
def test_events_of_many_threads_go_out_under_their_own_topics() -> None:
    core = ClientCore(queue_bytes=64 << 20)
    peer = Peer(core)
    start = threading.Barrier(4)

    def publish(thread: int) -> None:
        start.wait()
        for number in range(3000):
            name = f"t{thread}/{number}"
            core.publish(name, name.encode())

    threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peer.read()
    assert len(peer.received) == 12_000
    assert [(topic, body) for topic, body in peer.received if str(topic).encode() != body] == []
