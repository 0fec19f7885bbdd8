"""What keeps a mesh busy without end: topics, sessions, subscriptions, inboxes and variables that come and go."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping

from chappe.client.client import Client
from chappe.client.connecting import connect
from chappe.errors import ChappeError

SESSIONS_HZ = 10.0
TOPICS_HZ = 200.0
SUBSCRIPTIONS_HZ = 30.0
REQUESTS_HZ = 30.0
VARIABLES_HZ = 10.0
ADVERTISED_HZ = 5.0
WORKERS = 5  # do the same beside each other: one that waits for an answer does not stop the others
KEPT = 50  # of each kind are there at a time
SERVICE = "soak/service"


class Churn:
    """One client a node that lasts, and many that do not; `counts` says what was done."""

    def __init__(self, urls: Mapping[str, str], seed: int) -> None:
        self._urls = list(urls.values())
        self._chance = random.Random(seed)
        self._lasting: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._number = 0
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        self._lasting = [await connect(url, name=f"soak{at}", wait_s=30.0) for at, url in enumerate(self._urls)]
        await self._serve()
        kinds: tuple[tuple[Callable[[], Awaitable[None]], float], ...] = (
            (self._session, SESSIONS_HZ), (self._topic, TOPICS_HZ), (self._request, REQUESTS_HZ),
        )  # fmt: skip
        self._tasks += [
            asyncio.ensure_future(self._repeat(act, rate / WORKERS)) for act, rate in kinds for _ in range(WORKERS)
        ]
        self._tasks += [
            asyncio.ensure_future(task) for task in (self._subscribe(), self._vary(), self._advertise())
        ]  # fmt: skip

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._lasting:
            try:
                await client.close(flush=False)
            except ChappeError as error:
                self.counts[f"not closed: {error}"] += 1

    def failures(self) -> list[str]:
        """What ended although it should have gone on."""
        return [repr(task.exception()) for task in self._tasks if task.done() and not task.cancelled()]

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _repeat(self, act: Callable[[], Awaitable[None]], rate_hz: float) -> None:
        while True:
            try:
                await act()
            except ChappeError as error:
                self.counts[f"failed: {act.__name__.strip('_')}, {type(error).__name__}"] += 1
            await asyncio.sleep(self._chance.expovariate(rate_hz))

    async def _serve(self) -> None:
        """Somebody at the last node answers requests."""
        subscription = await self._lasting[-1].subscribe(SERVICE, since=0)

        async def answer() -> None:
            async for message in subscription:
                if message.reply is not None:
                    await self._lasting[-1].respond(message, message.body)

        self._tasks.append(asyncio.ensure_future(answer()))

    async def _session(self) -> None:
        """A client that was never there before: subscribes, publishes, asks, and goes."""
        name = f"guest{self._next()}"
        async with connect(self._chance.choice(self._urls), name=name) as client:
            await client.subscribe(f"soak/guest/{name}/#", since=0)
            client.publish(f"soak/guest/{name}/hello", b"x" * 100)
            await client.flush(5.0)
            await client.request(SERVICE, name.encode(), timeout_s=2.0)
        self.counts["sessions"] += 1

    async def _topic(self) -> None:
        """A topic that was never there before, or one of those that all subscribe to."""
        client = self._chance.choice(self._lasting)
        if self._chance.random() < 0.5:
            await client.publish_wait(f"soak/topic/{self._next()}", b"x" * 100)
            self.counts["topics"] += 1
        else:
            await client.publish_wait(f"soak/shared/{self._chance.randrange(20)}", b"x" * 100)

    async def _request(self) -> None:
        await self._chance.choice(self._lasting).request(SERVICE, b"ping", timeout_s=2.0)
        self.counts["requests"] += 1

    async def _subscribe(self) -> None:
        """Patterns of all kinds at all nodes; the oldest goes when a new one comes."""
        held: deque[tuple[Client, object]] = deque()

        async def act() -> None:
            client, number = self._chance.choice(self._lasting), self._next()
            pattern = self._chance.choice((f"soak/shared/{number % 20}", "soak/topic/#", f"soak/own/{number}/+"))
            held.append((client, await client.subscribe(pattern, since=0, max_queue=65536)))
            self.counts["subscriptions"] += 1
            if len(held) > KEPT:
                before, subscription = held.popleft()
                await before.unsubscribe(subscription)  # type: ignore[arg-type]

        await self._repeat(act, SUBSCRIPTIONS_HZ)

    async def _vary(self) -> None:
        """Variables that are registered, watched at another node, published to and withdrawn."""
        held: deque[tuple[Client, object, Client, object]] = deque()

        async def act() -> None:
            publisher, watcher = self._lasting[0], self._chance.choice(self._lasting[:2])
            names = (f"plant{self._next()}", "power")
            variable = await publisher.register(*names, rate=10)
            watch = await watcher.watch(*names, wait_s=3.0, max_queue=65536)
            variable.publish(1.0)
            self.counts["variables"] += 1
            held.append((publisher, variable, watcher, watch))
            if len(held) > KEPT:
                owner, old, other, seen = held.popleft()
                await other.unwatch(seen)  # type: ignore[arg-type]
                await owner.withdraw(old)  # type: ignore[arg-type]

        await self._repeat(act, VARIABLES_HZ)

    async def _advertise(self) -> None:
        held: deque[tuple[Client, object]] = deque()

        async def act() -> None:
            client = self._chance.choice(self._lasting)
            held.append((client, await client.advertise(f"soak/offered/{self._next()}")))
            self.counts["advertisements"] += 1
            if len(held) > KEPT:
                before, advertised = held.popleft()
                await before.withdraw(advertised)  # type: ignore[arg-type]

        await self._repeat(act, ADVERTISED_HZ)
