"""A root and two leaf brokers with their routers, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chappe.cli._deployment import Deployment, TopologyFile, managed
from chappe.core.sections import Config
from chappe.runtime.broker.role import BrokerRole
from chappe.runtime.node import Node
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec
from chappe.wire.base import Done, Failed, Qos
from chappe.wire.control import List, Listing, Register, Registered, Unwatch, Watch, Watching
from chappe.wire.management import ChangeMode
from tests.support.nodes import NodeProcess, eventually, free_port
from tests.support.tables import expected_hops, hops_of
from tests.support.wireclient import WireClient

RATE = {"rate_num": 10, "rate_den": 1_000_000_000}
CHANNELS = ["n1-n2", "n1-n3", "s1-s3", "s2-s3", "n2-s1", "n3-s2"]  # two ways lead from n1 to s3


def url() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def deployment(folder: Path, roots: int = 1, store: str = "") -> Deployment:
    """Two clouds of three routers below a root of one or more processes."""
    root = BrokerSpec(name="root", listen=tuple(url() for _ in range(roots)), store=store)
    leaves = [BrokerSpec(name=name, parent="root", listen=(url(),)) for name in ("north", "south")]
    routers = [RouterSpec(name=f"{cloud[0]}{at}", cloud=cloud, listen=url()) for cloud in ("north", "south")
               for at in (1, 2, 3)]  # fmt: skip
    channels = [ChannelSpec(between=(name[:2], name[3:])) for name in CHANNELS]
    file = TopologyFile(broker=(root, *leaves), router=tuple(routers), channel=tuple(channels), dev=True)
    return managed(file, base=folder)


@contextlib.asynccontextmanager
async def running(configs: list[Config]) -> AsyncIterator[dict[str, Node]]:
    nodes: dict[str, Node] = {}
    try:
        for config in configs:
            nodes[config.node.name] = Node(config, dev=True)
            await nodes[config.node.name].start()
        yield nodes
    finally:
        await asyncio.gather(*(node.stop(drain=False) for node in nodes.values()))


@contextlib.asynccontextmanager
async def connected(url: str, **hello: Any) -> AsyncIterator[WireClient]:
    client = await WireClient.open(url, **hello)
    try:
        yield client
    finally:
        await client.close()


def configs_of(deployment: Deployment, but: str = "") -> list[Config]:
    """Of all processes, or of all but those of a role."""
    all_of_them = [config for process in deployment.processes for config in process.members]
    return [config for config in all_of_them if config.manages is None or config.manages.role != but]


def leading(nodes: dict[str, Node]) -> Callable[[], bool]:
    roles = [node.role for node in nodes.values() if isinstance(node.role, BrokerRole)]
    return lambda: all(role.state == "leading" for role in roles)


async def settled(*brokers: str) -> None:
    """Every broker sees all routers and channels of its own: until then it may refuse what needs two paths."""
    async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
        operators = [await stack.enter_async_context(connected(each, name="settled")) for each in brokers]
        for operator in operators:
            while not await sees_all(operator):  # noqa: ASYNC110  brokers announce nothing to operators
                await asyncio.sleep(0.02)


async def sees_all(operator: WireClient) -> bool:
    listings = [await operator.ask(List, what=what) for what in ("routers", "channels")]
    return all(isinstance(each, Listing) and each.rows and all(row["up"] for row in each.rows) for each in listings)


def routers(nodes: dict[str, Node]) -> list[Node]:
    return [node for node in nodes.values() if node.core.edge is not None]


async def register(client: WireClient, names: list[str]) -> list[int]:
    answers = await asyncio.gather(*(client.ask(Register, publisher="p", variable=name, **RATE) for name in names))
    assert {type(answer) for answer in answers} == {Registered}, answers[0]
    return [answer.variable_id for answer in answers]


@pytest.mark.spec("GS-087")
async def test_a_subscription_between_clouds(tmp_path: Path) -> None:
    async with running(configs_of(deployment(tmp_path))) as nodes:
        await eventually(leading(nodes))
        await settled(*(nodes[name].url for name in ("root", "north", "south")))
        async with (
            connected(nodes["n1"].url, name="pub") as publisher,
            connected(nodes["s3"].url, name="sub") as subscriber,
            connected(nodes["root"].url, name="operator") as operator,
        ):
            (variable,) = await register(publisher, ["v"])
            watch = {"publisher": "p", "variable": "v", "qos": (Qos(redundancy=2),)}
            watching = await subscriber.ask(Watch, **watch, wait_ns=30_000_000_000)
            assert isinstance(watching, Watching), watching
            paths = (await operator.ask(List, what="paths")).rows
            assert sorted(row["routers"] for row in paths) == [["n1", "n2", "s1", "s3"], ["n1", "n3", "s2", "s3"]]
            assert hops_of(routers(nodes)) == expected_hops(paths)
            publisher.publish_status(variable, 1.5)
            await subscriber.until(lambda: len(subscriber.records) == 1)
            assert isinstance(await operator.ask(ChangeMode, mode=3), Done)
            assert {node.engine.status.slot for node in routers(nodes)} == {3}
            assert isinstance(await subscriber.ask(Unwatch, variable_id=variable), Done)
            await eventually(lambda: not hops_of(routers(nodes)))


@pytest.mark.spec("GS-155")
async def test_a_parent_that_comes_back_learns_what_happened_meanwhile(tmp_path: Path) -> None:
    plan = deployment(tmp_path)
    (root,) = [config for config in configs_of(plan) if config.node.name == "root"]
    async with running(configs_of(plan, but="root")) as nodes:
        async with running([root]) as first:
            await eventually(leading({**nodes, **first}))
            async with connected(nodes["n1"].url, name="pub") as publisher:
                await register(publisher, ["before"])
        async with (
            connected(nodes["n1"].url, name="pub2") as publisher,
            connected(nodes["s3"].url, name="sub") as subscriber,
        ):
            answer = await publisher.ask(Register, publisher="q", variable="meanwhile", **RATE)
            assert isinstance(answer, Registered)  # a cloud goes on without its parent
            async with running([root]) as again:
                await eventually(leading(again))
                watch = {"publisher": "q", "variable": "meanwhile", "wait_ns": 10_000_000_000}
                assert isinstance(await subscriber.ask(Watch, **watch), Watching)
                publisher.publish_status(answer.variable_id, 1.5)
                await subscriber.until(lambda: len(subscriber.records) == 1)


async def start_process(config: Config, folder: Path) -> NodeProcess:
    """A node of this configuration in a process of its own."""
    path = folder / f"{config.node.name}.toml"
    path.write_text("\n".join(f"{key} = {_toml(value)}" for key, value in msgspec.to_builtins(config).items() if value))
    return await NodeProcess.start("--dev", path)


def _toml(value: Any) -> str:
    """A value in one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items() if each is not None) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.spec("GS-088", "GS-156")
async def test_the_root_dies_while_it_sets_up_paths_between_clouds(tmp_path: Path, place: str) -> None:
    plan = deployment(tmp_path, roots=2, store=place)
    names = [f"v{at}" for at in range(100)]
    roots = [config for config in configs_of(plan) if config.manages and config.manages.role == "root"]
    processes = [await start_process(roots[0], tmp_path)]
    try:
        async with running(configs_of(plan, but="root")) as nodes:
            processes.append(await start_process(roots[1], tmp_path))
            await eventually(leading(nodes))
            await settled(str(roots[0].listen[0].url), nodes["north"].url, nodes["south"].url)
            async with (
                connected(nodes["n1"].url, name="pub") as publisher,
                connected(nodes["s3"].url, name="sub") as subscriber,
                connected(roots[1].listen[0].url, name="operator") as operator,
            ):
                variables = await register(publisher, names)
                qos = {"qos": (Qos(redundancy=2),), "wait_ns": 20_000_000_000}
                asked = [asyncio.ensure_future(subscriber.ask(Watch, publisher="p", variable=name, **qos))
                         for name in names]  # fmt: skip
                await asyncio.wait(asked[:20])
                processes[0].tell(signal.SIGKILL)
                assert not all(each.done() for each in asked)
                watched = await asyncio.gather(*asked)
                assert {type(answer) for answer in watched} == {Watching}, watched[-1]
                # The leaves may have had the last commits before the second root has the lease.
                listing = await operator.ask(List, what="paths", limit=5_000)
                for _ in range(300):
                    if not isinstance(listing, Failed):
                        break
                    await asyncio.sleep(0.1)
                    listing = await operator.ask(List, what="paths", limit=5_000)
                paths = listing.rows
                assert len(paths) == 2 * len(names)
                assert hops_of(routers(nodes)) == expected_hops(paths)
                gone = await asyncio.gather(*(subscriber.ask(Unwatch, variable_id=number) for number in variables))
                assert {type(answer) for answer in gone} == {Done}
                await eventually(lambda: not hops_of(routers(nodes)))
    finally:
        for process in processes:
            await process.end()
