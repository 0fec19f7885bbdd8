"""A mesh whose nodes are replaced one by one under load, from the bare wire 2.0 to all that this version has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import chappe
from chappe.client.client import Client
from chappe.wire.control import CAPABILITIES
from tests.support.meshes import Plan, processes
from tests.support.nodes import NodeProcess, eventually

RING = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
WITHHELD = "without = [" + ", ".join(f'"{word}"' for word in CAPABILITIES) + "]"
PAUSE_S = 0.005


@dataclass
class Reader:
    """A subscriber at one node; `away` while that node is replaced."""

    heard: Counter[bytes] = field(default_factory=Counter)
    due: set[bytes] = field(default_factory=set)
    away: bool = False


async def publish(name: str, client: Client, readers: dict[str, Reader]) -> None:
    """One event after the other; a flushed one is due at every reader whose node was not being replaced meanwhile."""
    for number in itertools.count():
        body = f"{name}-{number}".encode()
        present = [reader for reader in readers.values() if not reader.away]
        while not client.publish("load/x", body):
            await client.drain()
        await client.flush(timeout_s=30)
        for reader in present:
            if not reader.away:
                reader.due.add(body)
        await asyncio.sleep(PAUSE_S)


async def read(client: Client, reader: Reader) -> None:
    async for message in await client.subscribe("load/#"):
        reader.heard[message.body] += 1


async def replace(nodes: dict[str, NodeProcess], name: str, file: Path) -> None:
    """End a node as an operator does, and start it with everything this version can do."""
    assert await nodes[name].end(signal.SIGTERM) == 0
    await asyncio.to_thread(lambda: file.write_text(file.read_text().replace(WITHHELD, "")))
    nodes[name] = await NodeProcess.start("--dev", file)


async def test_nodes_are_upgraded_one_by_one_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    plan = Plan(RING, node=WITHHELD)
    readers = {name: Reader() for name in plan.names}
    async with processes(plan, tmp_path) as nodes, contextlib.AsyncExitStack() as stack:

        async def connect(name: str) -> Client:
            return await stack.enter_async_context(chappe.connect(f"tcp://127.0.0.1:{plan.ports[name]}"))

        async def news(reader: Reader, of: str) -> None:
            """The reader hears what a publisher says from now on."""
            before = set(reader.heard)
            await eventually(lambda: any(body.startswith(of.encode()) for body in reader.heard.keys() - before))

        clients = {name: await connect(name) for name in plan.names}
        tasks = [asyncio.create_task(read(client, readers[name])) for name, client in clients.items()]
        for reader in readers.values():
            reader.away = True
        publishers = {name: asyncio.create_task(publish(name, await connect(name), readers)) for name in ("a", "c")}
        try:
            for reader in readers.values():
                await asyncio.gather(*(news(reader, of) for of in publishers))
                reader.away = False
            for name, reader in readers.items():
                reader.away = True
                await eventually(lambda reader=reader: reader.due <= reader.heard.keys())
                await replace(nodes, name, tmp_path / f"{name}.toml")
                await asyncio.gather(*(news(reader, of) for of in publishers))
                reader.away = False
            await asyncio.gather(*(news(reader, of) for reader in readers.values() for of in publishers))
        finally:
            for task in publishers.values():
                task.cancel()
            await asyncio.gather(*publishers.values(), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: all(reader.due <= reader.heard.keys() for reader in readers.values()), 10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for name, reader in readers.items():
        assert len(reader.due) > 100, name
        assert reader.due - reader.heard.keys() == set(), f"{name} lacks events"
        assert max(reader.heard.values()) == 1, f"{name} heard an event twice"
