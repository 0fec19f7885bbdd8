"""Request and reply: one reply topic for each client, answers matched by correlation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from chappe.errors import TimeoutExpired

if TYPE_CHECKING:
    from chappe.client._inbox import Message, Subscription
    from chappe.client.client import Client
    from chappe.client.topics import Topic


class Replies:
    """The requests of one client that wait for an answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topic = ""
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._topics: dict[int, Topic] = {}  # that they were published to
        self._subscription: Subscription | None = None
        self._opening = asyncio.Lock()

    async def request(self, topic: Topic, body: bytes, timeout_s: float, options: dict[str, Any]) -> Message:
        """Publish with a fresh correlation; the first answer to it."""
        if self._subscription is None:
            await self._open()
        self._last += 1
        number = self._last
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._topics[number] = topic
        core = self._client.core
        try:
            async with asyncio.timeout(timeout_s):
                while not core.publish(topic, body, reply=self._topic, correlation=number, **options):
                    await self._client.drain()
                if len(self._waiting) == 1:
                    core.write_now()  # a lone request does not wait for others of its tick
                return await answer
        except TimeoutError:
            raise TimeoutExpired(f"no answer from {topic!r} within {timeout_s:g} s") from None
        finally:
            del self._waiting[number], self._topics[number]

    async def _open(self) -> None:
        async with self._opening:
            if self._subscription is None:
                self._topic = f"_reply/{self._client.issuer.hex()}"
                subscription = await self._client.subscribe(self._topic)
                subscription.ready = self._arrived
                self._subscription = subscription

    def _arrived(self) -> None:
        assert self._subscription is not None
        for message in self._subscription.take_nowait():
            waiting = self._waiting.get(message.correlation or 0)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def refused(self, topic: Topic, error: Exception) -> int:
        """The node takes no events to that topic: nobody will answer. How many requests fail with that."""
        failed = [answer for number, answer in self._waiting.items() if self._topics[number] == topic]
        for answer in failed:
            if not answer.done():
                answer.set_exception(error)
        return len(failed)

    def close(self, failure: Exception) -> None:
        """No answer will come any more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(failure)
