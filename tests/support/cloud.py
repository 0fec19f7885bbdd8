"""A managed deployment in this loop: real brokers, routers and sockets; single routers may be processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from chappe.cli._deployment import TopologyFile, managed
from chappe.runtime.node import Node
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec
from chappe.wire import control
from tests.support.nodes import NodeProcess, free_port
from tests.support.wireclient import WireClient


def local() -> str:
    """A url that nobody uses now."""
    return f"tcp://127.0.0.1:{free_port()}"


class Cloud:
    """One leaf broker and its routers; `channels` are pairs of their one-letter names."""

    def __init__(self, folder: Path, channels: Iterable[str], processes: str = "") -> None:
        pairs = [ChannelSpec(between=(pair[0], pair[1])) for pair in channels]
        names = sorted({name for pair in pairs for name in pair.between})
        self.file = TopologyFile(
            dev=True,
            broker=(BrokerSpec(name="leaf", listen=(local(),)),),
            router=tuple(RouterSpec(name=name, cloud="leaf", listen=local()) for name in names),
            channel=tuple(pairs),
        )
        self.folder = folder
        self.processes = processes
        self.configs = {config.node.name: config for process in managed(self.file, base=folder).processes
                        for config in process.members}  # fmt: skip
        self.nodes: dict[str, Node] = {}
        self.running: dict[str, NodeProcess] = {}
        self.clients: list[WireClient] = []

    async def start(self, name: str) -> None:
        """A broker or router, in this loop or in its own process."""
        if name not in self.processes:
            node = self.nodes[name] = Node(self.configs[name], dev=True)
            await node.start()
            return
        config = self.configs[name]
        assert config.broker is not None
        file = self.folder / f"{name}.toml"
        file.write_text(
            f'[node]\nname = "{name}"\n[[listen]]\nurl = "{config.listen[0].url}"\n'
            f'[broker]\nname = "leaf"\nurls = ["{config.broker.urls[0]}"]\n'
        )
        self.running[name] = await NodeProcess.start(file, "--dev")

    async def stop(self, name: str) -> None:
        """Without a word: a process is killed, a node in this loop drops its connections."""
        if name in self.running:
            await self.running.pop(name).end()
        else:
            await self.nodes.pop(name).stop(drain=False)

    def url(self, name: str) -> str:
        return self.configs[name].listen[0].url

    async def client(self, router: str, name: str, **hello: object) -> WireClient:
        client = await WireClient.open(self.url(router), name=name, **hello)
        self.clients.append(client)
        return client

    async def ready(self) -> None:
        """The broker leads and every channel is up, by its own account."""
        operator = await self.client("leaf", "operator")

        async def up() -> bool:
            answers = [await operator.ask(control.List, what=what) for what in ("routers", "channels")]
            return all(isinstance(answer, control.Listing) and answer.rows and all(row["up"] for row in answer.rows)
                       for answer in answers)  # fmt: skip

        async with asyncio.timeout(30):
            while not await up():  # noqa: ASYNC110  the broker announces nothing to operators
                await asyncio.sleep(0.05)
        self.operator = operator

    @property
    def tables(self) -> dict[str, tuple[int, int]]:
        """Entries of the status table and paths, of every router in this loop that has any."""
        sizes = {name: (node.engine.status.entries(), len(node.core.paths)) for name, node in self.nodes.items()}
        return {name: size for name, size in sizes.items() if any(size)}


@contextlib.asynccontextmanager
async def cloud(folder: Path, *channels: str, processes: str = "") -> AsyncIterator[Cloud]:
    """Everything is started, the broker leads, all channels are up."""
    made = Cloud(folder, channels, processes)
    try:
        for name in made.configs:
            await made.start(name)
        await made.ready()
        yield made
    finally:
        for client in made.clients:
            await client.close()
        for process in made.running.values():
            await process.end()
        for node in reversed(made.nodes.values()):
            await node.stop(drain=False)
