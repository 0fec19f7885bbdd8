"""The blocking client, against a node in a process of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import uvloop

import chappe
from chappe.errors import LinkError, TimeoutExpired, UnknownError
from tests.support.nodes import free_port, running


@pytest.fixture
def url() -> Iterator[str]:
    """A node on a loop in another thread."""
    ready, stop = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with running('[[listen]]\nurl = "tcp://127.0.0.1:0"\n') as (node,):
            found.append(node.url)
            ready.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    yield found[0]
    stop.set()
    thread.join()


def test_messages_by_one_by_batch_and_by_arrow(url: str) -> None:
    with chappe.sync.connect(url) as one, chappe.sync.connect(url) as two:
        subscription = two.subscribe("a/#")
        for number in range(3000):
            assert one.publish("a/b", b"%d" % number)
        one.flush(5)
        got: list[int] = []
        for message in subscription:
            got.append(int(message.body))
            if len(got) == 3000:
                break
        assert got == list(range(3000))
        one.publish_many("a/c", [b"x", b"y"])
        assert subscription.next(5).body == b"x"
        assert next(subscription.arrow()).column("body").to_pylist() == [b"y"]
        with pytest.raises(TimeoutExpired):
            subscription.next(0.02)
        one.publish("a/b", b"later")
        assert subscription.next(5).body == b"later"
        subscription.unsubscribe()
        assert list(subscription) == []


def test_values(url: str) -> None:
    with chappe.sync.connect(url) as one, chappe.sync.connect(url) as two:
        with pytest.raises(UnknownError):
            two.watch("pub", "var")
        variable = one.register("pub", "var", rate=30)
        watch = two.watch("pub", "var")
        assert variable.publish(1.5)
        assert watch.next(5).value == 1.5
        assert watch.value == 1.5
        assert watch.latency_ns is not None
        stream = two.watch_many([("pub", "var")])
        assert stream.next(5).value == 1.5, "the node's last value comes at once"
        assert [row["variable"] for row in one.list("variables")] == ["var"]
        one.withdraw(variable)
        watch.unwatch()


def test_request_and_reply_from_other_threads(url: str) -> None:
    with chappe.sync.connect(url) as one, chappe.sync.connect(url) as two:
        service = two.subscribe("echo")

        def serve() -> None:
            for message in service:
                two.respond(message, message.body.upper())

        server = threading.Thread(target=serve)
        server.start()
        assert [one.request("echo", body, timeout_s=30).body for body in (b"a", b"b")] == [b"A", b"B"]
        service.unsubscribe()
        server.join(30)
        assert not server.is_alive()


def test_publishing_from_many_threads(url: str) -> None:
    with chappe.sync.connect(url) as one, chappe.sync.connect(url) as two:
        subscription = two.subscribe("a")

        def publish(thread: int) -> None:
            for number in range(2000):
                one.publish_wait("a", b"%d:%d" % (thread, number))

        threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        got: list[bytes] = []
        for batch in subscription.batches():
            got += [message.body for message in batch]
            if len(got) == 8000:
                break
        for thread in threads:
            thread.join()
        for number in range(4):
            mine = [int(body.split(b":")[1]) for body in got if body.startswith(b"%d:" % number)]
            assert mine == list(range(2000))


def test_errors_arrive_and_leave_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(LinkError, match="refused"):
        chappe.sync.connect(f"tcp://127.0.0.1:{free_port()}")
    assert threading.active_count() == before


@pytest.mark.spec("GS-047", "GS-046")
def test_quality_derived_values_and_groups_without_asyncio(url: str) -> None:
    with chappe.sync.connect(url) as one, chappe.sync.connect(url) as two:
        left = one.register("pmu", "left", rate=50, derived=[chappe.Mean(2)])
        right = one.register("pmu", "right", rate=50)
        watch = two.watch("pmu", "left", qos=chappe.Qos(interval=0.04), type=float)
        assert watch.granted[0].every == 2
        assert (two.mode, two.next_mode, two.mode_changing) == (0, 0, False)
        group = two.group("frame", interval=0.04)
        group.add("pmu", "left")
        group.add("pmu", "right")
        for number in range(1, 9):
            left.publish(float(number), created=number * 20_000_000)
            right.publish(-float(number), created=number * 20_000_000)
        assert [watch.next(5).value for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
        assert watch.hold("mean(2)").value == watch.derived["mean(2)"] == 7.5
        assert (watch.extrapolated, watch.withdrawn, watch.violations["missed"]) == (False, None, 0)
        sets = iter(group)
        left.publish(10.0, created=200_000_000)
        right.publish(-10.0, created=200_000_000)
        while (newest := group.latest()) is None or newest.nominal < 200_000_000:
            pass
        assert dict(newest) == {("pmu", "left"): 10.0, ("pmu", "right"): -10.0}
        assert [each.nominal // 20_000_000 for each in group.latest(3)] == [6, 8, 10]
        reader = threading.Timer(0.2, group.close)
        reader.start()
        assert list(sets) == []
        reader.join()
        assert group.members == ()
