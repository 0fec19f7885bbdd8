"""Nodes in a mesh, with a broker and without: a program goes on when its node moves, and neither plane has a hole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import chappe
from chappe.cli._deployment import TopologyFile, managed
from chappe.runtime.node import Node
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec
from tests.support.nodes import NodeProcess, eventually, free_port


class Mixed:
    """A leaf broker, and nodes in one mesh, each in its own process; any of them may have the broker or not."""

    def __init__(self, folder: Path, *links: str) -> None:
        self.folder, self.links = folder, links
        self.ports = {name: free_port() for name in sorted(set("".join(links)))}
        self.broker_url = f"tcp://127.0.0.1:{free_port()}"
        self.running: dict[str, NodeProcess] = {}

    def url(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self.ports[name]}"

    def leaf(self, routers: str) -> Node:
        """The broker; these nodes may be its routers."""
        file = TopologyFile(
            dev=True,
            broker=(BrokerSpec(name="leaf", listen=(self.broker_url,), number=900),),
            router=tuple(RouterSpec(name=name, cloud="leaf", listen=self.url(name)) for name in routers),
            channel=tuple(ChannelSpec(between=(a, b)) for a, b in self.links if a in routers and b in routers),
        )  # fmt: skip
        members = [config for process in managed(file, base=self.folder).processes for config in process.members]
        (config,) = [config for config in members if config.node.name == "leaf"]
        return Node(config, dev=True)

    async def start(self, name: str, broker: bool) -> None:
        number = sorted(self.ports).index(name) + 1
        text = f'[node]\nname = "{name}"\nleaf = {number}\n[[listen]]\nurl = "{self.url(name)}"\n'
        for a, b in self.links:
            if name in (a, b):
                text += f'[[peer]]\nname = "{b if name == a else a}"\nreconnect_max_s = 0.2\n'
                text += f'url = "{self.url(b)}"\n' if name == a else ""
        text += "[mesh]\n[measure]\ninterval_s = 0.2\n"
        if broker:
            text += f'[broker]\nname = "leaf"\nurls = ["{self.broker_url}"]\n'
        file = self.folder / f"{name}.toml"
        file.write_text(text)
        self.running[name] = await NodeProcess.start(file, "--dev")

    async def move(self, name: str, broker: bool) -> None:
        """Restart a node with the other configuration."""
        await self.running.pop(name).end()
        await self.start(name, broker)


@contextlib.asynccontextmanager
async def mixed(folder: Path, *links: str, managed: str) -> AsyncIterator[Mixed]:
    """Everything runs; these nodes have the broker, and all may have it."""
    made = Mixed(folder, *links)
    leaf = made.leaf("".join(made.ports))
    await leaf.start()
    try:
        for name in made.ports:
            await made.start(name, name in managed)
        yield made
    finally:
        await asyncio.gather(*(process.end() for process in made.running.values()))
        await leaf.stop(drain=False)


class Reader:
    """A program that watches a variable, the same wherever its node gets it from."""

    def __init__(self, watch: chappe.Watch) -> None:
        self.watch = watch
        self.created: list[int] = []
        watch.tap(lambda event: self.created.append(event.created))

    async def more(self, count: int = 30) -> None:
        before = len(self.created)
        await eventually(lambda: len(self.created) >= before + count)

    @property
    def promised(self) -> bool:
        return any(granted.latency is not None for granted in self.watch.granted.values())


@contextlib.asynccontextmanager
async def published(url: str, publisher: str = "meter", name: str = "") -> AsyncIterator[chappe.Variable]:
    """A hundred values a second, by a client that reconnects as clients do."""
    async with chappe.connect(url, name=name or publisher) as client:
        variable = await client.register(publisher, "volts", rate=100)

        async def publish() -> None:
            while True:
                variable.publish(1.0)
                await asyncio.sleep(0.01)

        going = asyncio.create_task(publish())
        try:
            yield variable
        finally:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)


async def test_a_program_goes_on_when_its_node_moves_to_a_broker_and_back(tmp_path: Path) -> None:
    async with (
        mixed(tmp_path, "pw", managed="p") as made,
        published(made.url("p")),
        chappe.connect(made.url("w"), name="reader") as client,
    ):
        errors: list[Exception] = []
        client.on_error = errors.append
        reader = Reader(await client.watch("meter", "volts", qos=chappe.Qos(interval=0.01), wait_s=20))
        await reader.more()
        assert not reader.promised
        await made.move("w", broker=True)
        await eventually(lambda: reader.promised)
        await reader.more()
        await made.move("w", broker=False)
        await eventually(lambda: not reader.promised)
        await reader.more()
        assert len(reader.created) == len(set(reader.created))
        assert not errors


async def test_a_managed_node_passes_on_and_gets_what_is_published_without_a_broker(tmp_path: Path) -> None:
    async with (
        mixed(tmp_path, "um", "mw", "mv", managed="mw") as made,
        published(made.url("u")),
        published(made.url("w"), "other"),
        chappe.connect(made.url("w"), name="reader-w") as at_w,
        chappe.connect(made.url("m"), name="reader-m") as at_m,
        chappe.connect(made.url("v"), name="reader-v") as at_v,
    ):
        both = Reader(await at_m.watch("other", "volts", qos=chappe.Qos(interval=0.01), wait_s=20))
        reader = Reader(await at_w.watch("meter", "volts", wait_s=20))  # no broker knows it
        behind = Reader(await at_v.watch("meter", "volts", wait_s=20))  # through a node with a broker
        across = Reader(await at_v.watch("other", "volts", wait_s=20))  # a broker knows it, but not this node
        for each in (reader, behind, across):
            await each.more()
            assert not each.promised
            assert len(each.created) == len(set(each.created))
        await both.more()
        assert both.promised  # by a path to the node through which the mesh brings it to another one
        assert len(both.created) == len(set(both.created))
        stream = await at_w.watch_many("+/volts")
        await eventually(lambda: len(stream.watches) == 2 and all(watch.active for watch in stream.watches))
        assert {watch.publisher: bool(watch.granted) for watch in stream.watches} == {"meter": False, "other": True}


async def test_watchers_go_on_when_the_node_of_the_publisher_gets_a_broker(tmp_path: Path) -> None:
    async with (
        mixed(tmp_path, "um", "mw", managed="mw") as made,
        published(made.url("u")),
        chappe.connect(made.url("w")) as client,
    ):
        reader = Reader(await client.watch("meter", "volts", qos=chappe.Qos(interval=0.01), wait_s=20))
        await reader.more()
        await made.move("u", broker=True)
        await eventually(lambda: reader.promised)
        await reader.more()


async def test_what_the_broker_comes_to_know_is_promised_from_then_on(tmp_path: Path) -> None:
    async with mixed(tmp_path, "um", "mw", managed="mw") as made, chappe.connect(made.url("w")) as client:
        async with published(made.url("u"), name="first"):
            reader = Reader(await client.watch("meter", "volts", qos=chappe.Qos(interval=0.01), wait_s=20))
            await reader.more()
            assert not reader.promised
        async with published(made.url("m"), name="second"):
            await eventually(lambda: reader.promised)
            await reader.more()
