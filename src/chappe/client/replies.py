"""Request and reply: one reply topic for each client, answers matched by correlation."""

from __future__ import annotations

import asyncio
import contextlib
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
        self._topic = f"_reply/{client.session_id.hex()}"
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def request(self, topic: Topic, body: bytes, timeout_s: float, options: dict[str, Any]) -> Message:
        """Publish with a fresh correlation; the first answer to it."""
        await self._open()
        self._last += 1
        number = self._last
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.publish_wait(topic, body, reply=self._topic, correlation=number, **options)
                return await answer
        except TimeoutError:
            raise TimeoutExpired(f"no answer from {topic!r} within {timeout_s:g} s") from None
        finally:
            del self._waiting[number]

    async def _open(self) -> None:
        async with self._opening:
            if self._reader is None:
                subscription = await self._client.subscribe(self._topic)
                self._reader = asyncio.get_running_loop().create_task(self._read(subscription))

    async def _read(self, subscription: Subscription) -> None:
        async for message in subscription:
            waiting = self._waiting.get(message.correlation or 0)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    async def close(self) -> None:
        """Stop reading answers."""
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._reader
