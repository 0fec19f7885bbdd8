"""A subscription that nobody reads any more is collected with what waits in it."""

from __future__ import annotations

import gc
import weakref

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.wire.events import Event, Issuer, Topic, TopicName
from chappe.wire.frames import Kind, encode_frame


class Owner:
    """Somebody who holds the subscription, and is held by it."""

    def __init__(self) -> None:
        self.core = ClientCore(queue_bytes=1 << 20, status_bytes=1 << 20)
        self.subscription = Subscription("a")
        self.subscription.owner = self

    def subscription_has_room(self, _: Subscription) -> None:
        """Nobody waits."""


def test_unread_messages_do_not_stop_the_collector() -> None:
    owner = Owner()
    core = owner.core
    core.connected(max_payload=1 << 20, max_topics=100, credit=0, hold=False)
    core.add_subscription(owner.subscription)
    frames = encode_frame(Kind.TOPIC, Topic(1, TopicName("a")).encode())
    frames += encode_frame(Kind.ISSUER, Issuer(1, 1, bytes(16)).encode())
    for number in range(100):
        frames += encode_frame(Kind.EVENT, Event(1, number + 1, b"x", issuer=1).encode())
    core.feed(frames)
    assert owner.subscription.received == 100
    gone = weakref.ref(owner)
    del owner, core
    gc.collect()
    assert gone() is None
