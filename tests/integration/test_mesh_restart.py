"""The middle node of a chain is killed: clients at every node go on by themselves (what issue 2 asks for)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import chappe
from chappe.client.client import Client
from tests.support.nodes import NodeProcess, Pace, free_port

NAMES = ("first", "middle", "last")


def write(folder: Path, ports: dict[str, int]) -> dict[str, Path]:
    """Three files: each node forwards everything to its neighbours, the lower one dials."""
    files = {}
    for at, name in enumerate(NAMES):
        neighbours = [NAMES[other] for other in (at - 1, at + 1) if 0 <= other < len(NAMES)]
        text = f'[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:{ports[name]}"\n'
        for other in neighbours:
            text += f'[[peer]]\nname = "{other}"\n'
            if NAMES.index(other) > at:
                text += f'url = "tcp://127.0.0.1:{ports[other]}"\n'
        to = ", ".join(f'"{other}"' for other in neighbours)
        text += f'[[path]]\nvariables = "#"\nto = [{to}]\n[[topic_route]]\npattern = "#"\nto = [{to}]\n'
        files[name] = folder / f"{name}.toml"
        files[name].write_text(text)
    return files


@contextlib.asynccontextmanager
async def node(file: Path) -> AsyncIterator[NodeProcess]:
    process = await NodeProcess.start(file, "--dev")
    try:
        yield process
    finally:
        await process.end(signal.SIGKILL)


class Talk:
    """A client at each node; each publishes a variable and events, each wants those of all others."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self.clients = clients
        self.variables: dict[str, chappe.Variable] = {}
        self.watches: dict[tuple[str, str], chappe.Watch] = {}
        self.inboxes: dict[str, chappe.Subscription] = {}
        self.heard: set[tuple[str, str, str]] = set()

    async def begin(self) -> None:
        for name, client in self.clients.items():
            self.variables[name] = await client.register(name, "value", rate=100)
            self.inboxes[name] = await client.subscribe("news/#")
        for name, client in self.clients.items():
            for other in self.clients.keys() - {name}:
                self.watches[name, other] = await client.watch(other, "value", wait_s=30)

    async def until_everybody_heard_everybody(self, word: str) -> float:
        """Seconds until every client has a value and an event of every other that are newer than this call.

        Without those that the machine had no time.
        """
        begin, begin_ns, pace = time.monotonic(), time.time_ns(), Pace()
        wanted = {(kind, name, other) for name, other in self.watches for kind in ("status", "event")}
        self.heard.clear()
        async with asyncio.timeout(30):
            while self.heard != wanted:
                for name, client in self.clients.items():
                    self.variables[name].publish(1.0)
                    client.publish(f"news/{name}", word.encode())
                await pace.pause(0.02)
                for (name, other), watch in self.watches.items():
                    if (watch.created or 0) > begin_ns:
                        self.heard.add(("status", name, other))
                for name, inbox in self.inboxes.items():
                    for message in inbox.take_nowait():
                        other = str(message.topic).removeprefix("news/")
                        if other != name and message.body == word.encode():
                            self.heard.add(("event", name, other))
        return time.monotonic() - begin - pace.late_s


@pytest.mark.spec("GS-035")
@pytest.mark.timeout(90)
async def test_clients_at_every_node_of_a_chain_go_on_within_three_seconds(tmp_path: Path) -> None:
    ports = {name: free_port() for name in NAMES}
    files = write(tmp_path, ports)
    async with contextlib.AsyncExitStack() as nodes, contextlib.AsyncExitStack() as stack:
        for name in ("first", "last"):
            await nodes.enter_async_context(node(files[name]))
        middle = await nodes.enter_async_context(node(files["middle"]))
        clients = {}
        for name in NAMES:
            client = chappe.connect(f"tcp://127.0.0.1:{ports[name]}", name=name)
            clients[name] = await stack.enter_async_context(client)
        talk = Talk(clients)
        await talk.begin()
        await talk.until_everybody_heard_everybody("before")
        for word in ("once", "twice"):
            assert await middle.end(signal.SIGKILL) == -signal.SIGKILL
            middle = await nodes.enter_async_context(node(files["middle"]))
            assert await talk.until_everybody_heard_everybody(word) < 3
