"""What shortens a round trip: writing before waiting, and no task between an answer and who asked."""

from __future__ import annotations

import asyncio

import pytest

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.client.topics import topic_name
from chappe.wire.events import Event
from tests.support.clientpeer import Peer


async def test_what_was_published_is_written_before_a_coroutine_waits() -> None:
    core = ClientCore()
    peer = Peer(core)
    peer.read()
    core.scheduled = False
    subscription = Subscription("a")
    subscription.loop = asyncio.get_running_loop()
    subscription.before_wait = core.write_now
    written: list[int] = []
    core.schedule = lambda: None
    core.write = lambda: written.append(len(peer.read()))

    async def publish_and_wait() -> None:
        core.publish("b", b"1")
        core.publish("b", b"2")
        assert written == []
        await anext(subscription)

    waiting = asyncio.ensure_future(publish_and_wait())
    await asyncio.sleep(0)
    assert len(written) == 1
    assert [event.body for event in peer.events] == [b"1", b"2"]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_queue_that_ends_while_writing_does_not_wait() -> None:
    subscription = Subscription("a")
    subscription.loop = asyncio.get_running_loop()
    subscription.before_wait = lambda: subscription.end(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(30):
            await anext(subscription)


@pytest.mark.parametrize(
    ("reply", "correlation"), [("r/1", 7), ("r/1", None), (None, 1 << 63), (9, 0), ("r/2", 1)], ids=str
)
def test_requests_are_encoded_as_the_wire_wants_them(reply: str | int | None, correlation: int | None) -> None:
    core = ClientCore()
    peer = Peer(core)
    core.publish("a", b"body", reply=reply, correlation=correlation)
    peer.read()
    (event,) = peer.events
    expected = Event(0, 1, b"body", reply=None if reply is None else topic_name(reply), correlation=correlation)
    assert (event.body, event.reply, event.correlation) == (expected.body, expected.reply, expected.correlation)


def test_a_correlation_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        ClientCore().publish("a", b"", correlation=-1)
