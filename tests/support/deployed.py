"""Whole deployments in this loop: brokers in a tree, routers by any names, and what left each router for the next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from chappe.cli._deployment import TopologyFile, managed
from chappe.runtime.node import Node
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec
from chappe.wire.control import List, Listing
from tests.support.cloud import local
from tests.support.nodes import eventually
from tests.support.wireclient import WireClient


def deployment(
    tree: Mapping[str, str], clouds: Mapping[str, Iterable[str]], channels: Iterable[str], inner: Iterable[str] = (),
    security: Mapping[str, int] | None = None, sockets: Path | None = None,
) -> TopologyFile:  # fmt: skip
    """`tree`: broker -> parent; `clouds`: leaf -> routers, edges but for `inner`; `channels` and `security`: `a-b`.

    `sockets`: routers listen on Unix sockets there, which give any security.
    """
    within = set(inner)
    levels = security or {}
    pairs = [(text, text.split("-")) for text in channels]
    return TopologyFile(
        dev=True,
        broker=tuple(BrokerSpec(name=name, parent=parent, listen=(local(),)) for name, parent in tree.items()),
        router=tuple(RouterSpec(name=name, cloud=cloud, edge=name not in within,
                                listen=f"unix://{sockets}/{name}.sock" if sockets else local())
                     for cloud, names in clouds.items() for name in names),
        channel=tuple(ChannelSpec(between=(a, b), security=levels.get(text, 0)) for text, (a, b) in pairs),
    )  # fmt: skip


class Deployed:
    """The running nodes of a deployment by name."""

    def __init__(self, file: TopologyFile, folder: Path) -> None:
        found = managed(file, base=folder)
        self.configs = {config.node.name: config for process in found.processes for config in process.members}
        self.file = file
        self.nodes: dict[str, Node] = {}
        self.clients: list[WireClient] = []
        self.operators: dict[str, WireClient] = {}

    async def start(self, name: str) -> None:
        node = self.nodes[name] = Node(self.configs[name], dev=True)
        await node.start()

    async def stop(self, name: str) -> None:
        """Its connections end without a word."""
        await self.nodes.pop(name).stop(drain=False)

    def url(self, name: str) -> str:
        return self.configs[name].listen[0].url

    @property
    def routers(self) -> dict[str, Node]:
        return {name: node for name, node in self.nodes.items() if self.configs[name].manages is None}

    async def client(self, router: str, name: str, **hello: Any) -> WireClient:
        client = await WireClient.open(self.url(router), name=name, **hello)
        self.clients.append(client)
        return client

    async def rows(self, broker: str, what: str) -> tuple[dict[str, Any], ...]:
        answer = await self.operators[broker].ask(List, what=what)
        return answer.rows if isinstance(answer, Listing) else ()

    async def ready(self) -> None:
        """Every broker leads and sees all its routers, channels and children."""
        async with asyncio.timeout(30):
            for name in self.file.topology.brokers:
                self.operators[name] = await self.client(name, f"operator.{name}")
                wanted = ("routers", "channels") if name in self.file.topology.leaves else ("children", "routers")
                while not await self._up(name, wanted):  # noqa: ASYNC110  brokers announce nothing to operators
                    await asyncio.sleep(0.02)

    async def _up(self, broker: str, wanted: Iterable[str]) -> bool:
        listed = [await self.rows(broker, what) for what in wanted]
        return all(rows and all(row["up"] for row in rows) for rows in listed if rows or len(self.nodes) > 2)

    def left(self, source: str, target: str) -> int:
        """Status records that have left a router by its channel to another."""
        node = self.nodes[source]
        port = node.peers.port(target)
        assert port is not None, f"{source} has no channel to {target}"
        return node.engine.port_counters(port)["status_out"]

    def counted(self, counter: str) -> dict[str, int]:
        """A counter of every router that is not 0."""
        return {name: count for name, node in self.routers.items() if (count := node.engine.counters()[counter])}

    @property
    def tables(self) -> dict[str, tuple[int, int]]:
        """Entries of the status table and paths, of every router that has any."""
        sizes = {name: (node.engine.status.entries(), len(node.core.paths)) for name, node in self.routers.items()}
        return {name: size for name, size in sizes.items() if any(size)}


@contextlib.asynccontextmanager
async def deployed(
    folder: Path, file: TopologyFile, layouts: Mapping[str, str] | None = None
) -> AsyncIterator[Deployed]:
    """Everything is started, brokers lead, all channels are up. `layouts`: of the status tables of some routers."""
    made = Deployed(file, folder)
    for name, layout in (layouts or {}).items():
        config = made.configs[name]
        made.configs[name] = msgspec.structs.replace(config, node=msgspec.structs.replace(config.node, layout=layout))
    try:
        for name in made.configs:
            await made.start(name)
        await made.ready()
        for channel in file.channel:
            for one, other in (channel.between, channel.between[::-1]):
                await eventually(lambda one=one, other=other: made.nodes[one].peers.port(other) is not None)  # type: ignore[misc]
        yield made
    finally:
        for client in made.clients:
            await client.close()
        for node in reversed(made.nodes.values()):
            await node.stop(drain=False)
