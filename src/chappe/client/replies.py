"""Request and reply: one inbox for each client, answers matched by random correlations."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from chappe.client._core import ClientCore
from chappe.client._inbox import Message, Subscription
from chappe.client.arguments import Properties
from chappe.client.topics import Topic
from chappe.errors import LinkError, TimeoutExpired
from chappe.wire.addresses import Address


class OpenInbox(Protocol):
    """`Client.open_inbox`."""

    def __call__(self, *, moved: Callable[[], None]) -> Awaitable[Subscription]: ...


class Replies:
    """The requests of one client that wait for an answer."""

    def __init__(self, core: ClientCore, drain: Callable[[], Awaitable[None]], open_inbox: OpenInbox) -> None:
        self._core = core
        self._drain = drain
        self._open_inbox = open_inbox
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._topics: dict[int, Topic] = {}  # that they were published to
        self._inbox: Subscription | None = None
        self._address: Address | None = None  # one object: its encoding is kept
        self._opening = asyncio.Lock()
        self.unexpected = 0  # answers to nothing that waits: late, repeated or forged

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._waiting)

    async def request(
        self, topic: Topic, body: bytes, timeout_s: float, priority: int, properties: Properties
    ) -> Message:
        """Publish with a fresh correlation; the first answer to it."""
        if self._inbox is None:
            await self._open()
        number = int.from_bytes(os.urandom(8), "big")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._topics[number] = topic
        try:
            async with asyncio.timeout(timeout_s):
                while not self._core.publish(
                    topic, body, priority, reply=self._address, correlation=number, **properties
                ):
                    await self._drain()
                if len(self._waiting) == 1:
                    self._core.write_now()  # a lone request does not wait for others of its tick
                return await answer
        except TimeoutError:
            raise TimeoutExpired(f"no answer from {topic!r} within {timeout_s:g} s") from None
        finally:
            del self._waiting[number], self._topics[number]

    async def _open(self) -> None:
        async with self._opening:
            if self._inbox is None:
                inbox = await self._open_inbox(moved=self._moved)
                inbox.ready = self._arrived
                self._address, self._inbox = inbox.address, inbox

    def _moved(self) -> None:
        """Answers go to the node where this client was; what was asked may be done or not."""
        assert self._inbox is not None
        self._address = self._inbox.address
        self.close(
            LinkError(
                "the client moved to another node before the answer came, and the answer does not follow it: "
                "the request may have been carried out or not; ask again if that does no harm"
            )
        )

    def _arrived(self) -> None:
        assert self._inbox is not None
        for message in self._inbox.take_nowait():
            waiting = self._waiting.get(message.correlation or 0)
            if waiting is None or waiting.done():
                self.unexpected += 1
            else:
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
