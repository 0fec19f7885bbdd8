"""Clients in several threads of one process, with switches forced everywhere: each gets its own messages, and no other.

Plain and TLS, the blocking client and the asyncio client in a loop of its own a thread. The node runs in a process of
its own, so that the threads here are those of clients.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop

import chappe
from chappe.security.authority import Authority
from tests.support.nodes import NodeProcess

CLIENTS = 3
TOPICS = 150
TURNS = 4
PUBLISHERS = 2


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Text(str):
    """A topic that is checked by Python code, as a user's class may be."""

    def encode(self, *arguments: Any) -> bytes:  # type: ignore[override]
        return str.encode(self, *arguments)


def names(client: int, thread: int) -> Iterator[str]:
    """Topics of one publishing thread, most of them new: their definitions run Python code in every receiver."""
    for turn in range(TURNS):
        for number in range(TOPICS):
            name = f"c{client}/{turn % 2}/{thread}/{number}"
            yield Text(name) if number % 3 else name


def expected(client: int) -> list[str]:
    return sorted(str(name) for thread in range(PUBLISHERS) for name in names(client, thread))


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run it in so many threads at once; the first error of any."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@asynccontextmanager
async def node(folder: Path, secure: bool) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The address of a node in another process, and the options to connect to it."""
    toml, options = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n', {}
    arguments: tuple[str | Path, ...] = ("--dev",)
    if secure:
        ca = folder / "ca"
        authority = Authority.create(ca, datetime.now(UTC))
        authority.issue("n1", "node", datetime.now(UTC), hosts=["127.0.0.1"])
        authority.issue("alice", "client", datetime.now(UTC))
        toml = (
            f'[node]\nname = "n1"\n[[listen]]\nurl = "tls://127.0.0.1:0"\n'
            f'[tls]\nca = "{ca}/ca.pem"\ncert = "{ca}/n1.pem"\nkey = "{ca}/n1.key"\ncrl = "{ca}/ca.crl"\n'
            '[[rule]]\naction = ["publish", "subscribe"]\npattern = "#"\n'
        )
        options = {"tls": (f"{ca}/ca.pem", f"{ca}/alice.pem", f"{ca}/alice.key"), "name": "alice"}
        arguments = ()
    (folder / "node.toml").write_text(toml)
    process = await NodeProcess.start(*arguments, folder / "node.toml")
    try:
        yield process.urls[0], options
    finally:
        await process.end()


def blocking_client(number: int, url: str, options: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Two threads publish through one client what the client itself is subscribed to."""
    with chappe.sync.connect(url, **options) as client:
        subscription = client.subscribe(f"c{number}/#")

        def publish(thread: int) -> None:
            for name in names(number, thread):
                while not client.publish(name, name.encode()):
                    client.drain()

        in_threads(publish, PUBLISHERS)
        client.flush(60)
        return [(m.topic, m.body) for _ in range(PUBLISHERS * TURNS * TOPICS) for m in (subscription.next(60),)]


async def asyncio_client(number: int, url: str, options: dict[str, Any]) -> list[tuple[str, bytes]]:
    """A client in a loop of its own; tasks publish, because only one thread may use a loop's client."""
    async with chappe.connect(url, **options) as client:
        subscription = await client.subscribe(f"c{number}/#")

        async def publish(thread: int) -> None:
            for name in names(number, thread):
                await client.publish_wait(name, name.encode())

        async with asyncio.TaskGroup() as group:
            for thread in range(PUBLISHERS):
                group.create_task(publish(thread))
        await client.flush(60)
        async with asyncio.timeout(60):
            found = [await anext(subscription) for _ in range(PUBLISHERS * TURNS * TOPICS)]
        return [(message.topic, message.body) for message in found]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_every_client_gets_its_own_messages(kind: str, secure: bool, tmp_path: Path) -> None:
    got: dict[int, list[tuple[str, bytes]]] = {}

    async with node(tmp_path, secure) as (url, options):

        def run(number: int) -> None:
            if kind == "sync":
                got[number] = blocking_client(number, url, options)
            else:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    got[number] = runner.run(asyncio_client(number, url, options))

        await asyncio.to_thread(in_threads, run, CLIENTS)
    for number in range(CLIENTS):
        assert [(topic, body) for topic, body in got[number] if topic.encode() != body] == []
        assert sorted(topic for topic, _ in got[number]) == expected(number)
