"""Routers that a broker manages, over real sockets: channels, paths, clients, and what happens when somebody dies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path as File
from typing import Any

import pytest

from chappe.errors import ConfigError
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.control import Failed, Grant, Registered, Variable, Watching
from chappe.wire.management import (
    Arrived,
    Channel,
    CommitMode,
    Configure,
    Entity,
    Granted,
    InformMode,
    Issued,
    Join,
    Left,
    LinkState,
    ModeState,
    Path,
    Publish,
    Reset,
    Setup,
    SubscribeRequest,
    Teardown,
    Unpublish,
    UnsubscribeRequest,
)
from tests.support.nodes import NodeProcess, eventually, free_port, start_node
from tests.support.scriptedbroker import ScriptedBroker
from tests.support.wireclient import WireClient

NUMBER = 0x400001
SPEED = Variable(NUMBER, "plant", "speed", "float", 1000, 1_000_000_000, 3, 0)
GRANT = Grant(1_000_000, 1, 5_000_000, 1, 3)


def router(name: str, *urls: str, listen: str = "tcp://127.0.0.1:0") -> str:
    listed = ", ".join(f'"{url}"' for url in urls)
    return (
        f'[node]\nname = "{name}"\n[[listen]]\nurl = "{listen}"\n'
        f'[broker]\nname = "leaf"\nurls = [{listed}]\n[limits]\nheartbeat_s = 0.1\n'
    )


def hop(path: int, source: str, target: str, interval_ns: int = 0, variable: Variable = SPEED) -> Path:
    return Path(variable, path, source, target, (interval_ns,), (3,), 0xFFFF)


@contextlib.asynccontextmanager
async def ended(*vertex_ids: Any) -> AsyncIterator[None]:
    """Ends nodes, brokers and clients, whatever happened."""
    try:
        yield
    finally:
        for vertex_id in vertex_ids:
            if isinstance(vertex_id, Node):
                await vertex_id.stop(drain=False)
            elif isinstance(vertex_id, WireClient):
                await vertex_id.close()
            else:
                await vertex_id.end()


async def two_routers(broker: ScriptedBroker) -> tuple[Node, Node]:
    """`a` and `b`, joined by a channel that the broker gave them."""
    a, b = [await start_node(router(name, broker.url)) for name in ("a", "b")]
    for name in ("a", "b"):
        await broker.heard(name, Join)
    await broker.order("a", Configure, channels=(Channel("b"),))
    await broker.order("b", Configure, channels=(Channel("a", a.url),))
    await broker.heard("a", LinkState, peer="b", up=True)
    await broker.heard("b", LinkState, peer="a", up=True)
    return a, b


async def publish(broker: ScriptedBroker, at: str, client: WireClient) -> int:
    asking = asyncio.create_task(client.ask(control.Register, publisher="plant", variable="speed", rate_num=1000,
                                            rate_den=1_000_000_000))  # fmt: skip
    request = await broker.heard(at, Publish)
    broker.answer(at, request, Issued, variable_id=NUMBER)
    answer = await asking
    assert answer == Registered(id=answer.id, variable_id=NUMBER)
    return NUMBER


async def watch(broker: ScriptedBroker, at: str, client: WireClient, **fields: Any) -> Watching:
    asking = asyncio.create_task(client.ask(control.Watch, publisher="plant", variable="speed", **fields))
    request = await broker.heard(at, SubscribeRequest)
    broker.answer(at, request, Granted, variable=SPEED, grants=(GRANT,), modes=0xFFFF)
    answer = await asking
    assert isinstance(answer, Watching), answer
    return answer


class Values:
    """Publishes 1, 2, 3 … on stamps of the variable's own rhythm."""

    def __init__(self, client: WireClient) -> None:
        self.client, self.sent = client, 0
        self.start_ns = time.time_ns() // 1_000_000 * 1_000_000

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            self.client.publish_status(NUMBER, float(self.sent), self.start_ns + self.sent * 1_000_000)


def values(client: WireClient) -> list[float]:
    return [float(record.value_as("float")) for record in client.records]


@pytest.mark.spec("GS-012")
async def test_a_router_learns_its_channels_from_its_broker_and_keeps_those_that_stay() -> None:
    broker = await ScriptedBroker.begin()
    a, b = await two_routers(broker)
    c = await start_node(router("c", broker.url))
    async with ended(a, b, c, broker):
        peer = a.peers.named("b")
        assert peer is not None
        assert (peer.config.level, [link.name for link in a.peers if not link.manager]) == (1, ["b"])
        connection = peer.connection
        await broker.heard("c", Join)
        await broker.order("c", Configure, channels=(Channel("a"),))
        await broker.order("a", Configure, channels=(Channel("b", level=2), Channel("c", c.url)))
        await broker.heard("a", LinkState, peer="c", up=True)
        assert peer.connection is connection
        assert peer.config.level == 2
        await broker.order("a", Configure, channels=(Channel("c", c.url),))
        await broker.heard("a", LinkState, peer="b", up=False)
        assert [link.name for link in a.peers if not link.manager] == ["c"]


async def test_channels_that_cannot_be_are_refused_and_the_others_stay() -> None:
    broker = await ScriptedBroker.begin()
    a, b = await two_routers(broker)
    async with ended(a, b, broker):
        for bad, word in (
            (Channel("a"), "is this node itself"),
            (Channel("c", "tcp://192.0.2.1:7"), "loopback"),
            (Channel("c", "nonsense"), "nonsense"),
            (Channel("c", level=300), "level"),
            (Channel("c d"), "name"),
        ):
            answer = await broker.command("a", Configure, channels=(bad,))
            assert isinstance(answer, Failed)
            assert word in answer.reason
        assert a.peers.channels() == ["b"]


@pytest.mark.spec("GS-080", "GS-062")
async def test_events_flow_from_publisher_to_subscriber_along_a_path_until_both_are_gone() -> None:
    broker = await ScriptedBroker.begin()
    a, b = await two_routers(broker)
    meter = await WireClient.open(a.url, name="meter")
    reader = await WireClient.open(b.url, name="reader")
    async with ended(meter, reader, a, b, broker):
        await broker.heard("a", Arrived, entity=Entity("meter", meter.issuer))
        await publish(broker, "a", meter)
        await broker.order("b", Setup, paths=(hop(1, "a", ""),))
        await broker.order("a", Setup, paths=(hop(1, "", "b", 2_000_000),))
        granted = await watch(broker, "b", reader)
        assert (granted.every, granted.grants) == (1, (GRANT,))
        listed = (await meter.ask(control.List, what="paths")).rows
        assert [(row["variable"], row["source"], row["target"], row["intervals_ns"]) for row in listed] == [
            ("speed", "", "b", [2_000_000])
        ]
        stream = Values(meter)
        stream.publish(100)
        await reader.until(lambda: len(reader.records) >= 50)
        # the filter is at the source: what the subscriber does not want never leaves the first router (GS-062)
        assert a.engine.port_counters(a.peers.port("b"))["filtered"] == 50  # type: ignore[arg-type]
        asking = asyncio.create_task(reader.ask(control.Unwatch, variable_id=NUMBER))
        request = await broker.heard("b", UnsubscribeRequest)
        for name in ("b", "a"):
            await broker.order(name, Teardown, paths=((NUMBER, 1),))
        broker.answer("b", request, control.Done)
        assert isinstance(await asking, control.Done)
        asking = asyncio.create_task(meter.ask(control.Withdraw, variable_id=NUMBER))
        broker.answer("a", await broker.heard("a", Unpublish), control.Done)
        assert isinstance(await asking, control.Done)
        assert [node.engine.status.entries() for node in (a, b)] == [0, 0]
        assert [len(node.core.variables.directory) for node in (a, b)] == [0, 0]
        await reader.close()
        assert (await broker.heard("b", Left)).entity == Entity("reader", reader.issuer)


@pytest.mark.spec("GS-073")
async def test_a_path_is_changed_in_place_without_losing_an_event() -> None:
    broker = await ScriptedBroker.begin()
    a, b = await two_routers(broker)
    meter = await WireClient.open(a.url, name="meter")
    reader = await WireClient.open(b.url, name="reader")
    async with ended(meter, reader, a, b, broker):
        await publish(broker, "a", meter)
        await broker.order("b", Setup, paths=(hop(1, "a", ""),))
        await broker.order("a", Setup, paths=(hop(1, "", "b"),))
        await watch(broker, "b", reader)
        stream = Values(meter)
        for change in range(20):
            stream.publish(20)
            await broker.order("a", Setup, paths=(hop(1, "", "b", (change % 2) * 1_000_000),))
        await reader.until(lambda: len(reader.records) >= stream.sent)
        assert values(reader) == [float(number) for number in range(1, stream.sent + 1)]


@pytest.mark.spec("GS-151")
async def test_streams_go_on_without_a_broker_and_the_next_one_finds_everything_as_it_was() -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    broker = await ScriptedBroker.begin(url)
    a, b = await two_routers(broker)
    meter = await WireClient.open(a.url, name="meter")
    reader = await WireClient.open(b.url, name="reader")
    async with ended(meter, reader, a, b):
        process = a.process
        await publish(broker, "a", meter)
        await broker.order("b", Setup, paths=(hop(1, "a", ""),))
        await broker.order("a", Setup, paths=(hop(1, "", "b"),))
        await watch(broker, "b", reader)
        await broker.end()
        stream = Values(meter)
        stream.publish(100)
        await reader.until(lambda: len(reader.records) >= 100)
        asking = asyncio.create_task(reader.ask(control.Watch, publisher="plant", variable="heat"))
        await eventually(lambda: a.core.edge is not None and a.core.edge.leader is None)
        later = await ScriptedBroker.begin(url, epoch=2)
        async with ended(later):
            join = await later.heard("a", Join)
            assert (join.issuer, join.epoch, join.links) == (process, 1, ("b",))
            assert join.entities == (Entity("meter", meter.issuer),)
            request = await later.heard("b", SubscribeRequest, variable="heat")
            later.answer("b", request, Failed, code="unknown", reason="nobody has it")
            assert (await asking).reason == "nobody has it"
            later.epoch = 1
            answer = await later.command("a", Teardown, paths=((NUMBER, 1),))
            assert isinstance(answer, Failed)
            assert answer.code == "stale"
            stream.publish(100)
            await reader.until(lambda: len(reader.records) >= 200)


@pytest.mark.spec("GS-150")
async def test_a_failed_channel_is_reported_retried_and_carries_the_stream_again() -> None:
    broker = await ScriptedBroker.begin()
    a, b = await two_routers(broker)
    meter = await WireClient.open(a.url, name="meter")
    reader = await WireClient.open(b.url, name="reader")
    async with ended(meter, reader, a, b, broker):
        await publish(broker, "a", meter)
        await broker.order("b", Setup, paths=(hop(1, "a", ""),))
        await broker.order("a", Setup, paths=(hop(1, "", "b"),))
        await watch(broker, "b", reader)
        peer = a.peers.named("b")
        assert peer is not None
        assert peer.connection is not None
        a.connections.abort(peer.connection, "cut by the test")
        for up in (False, True):
            await broker.heard("a", LinkState, peer="b", up=up)
            await broker.heard("b", LinkState, peer="a", up=up)
        Values(meter).publish(50)
        await reader.until(lambda: len(reader.records) == 50)


async def test_of_two_brokers_the_one_that_leads_is_asked_and_two_urls_of_one_process_are_one_link() -> None:
    one = await ScriptedBroker.begin(name="leaf-1")
    two = await ScriptedBroker.begin(
        name="leaf-2", epoch=2, leads=False, toml='[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
    )
    urls = [str(address) for address in two.node.addresses]
    a = await start_node(router("a", one.url, *urls))
    meter = await WireClient.open(a.url, name="meter")
    async with ended(meter, a, one, two):
        await one.heard("a", Join)
        await two.heard("a", Join)
        await publish(one, "a", meter)
        two.leads = True
        two.lead("a")
        assert (await two.heard("a", Join, epoch=2)).epoch == 2
        asking = asyncio.create_task(meter.ask(control.Register, publisher="plant", variable="heat"))
        two.answer("a", await two.heard("a", Publish), Issued, variable_id=9)
        assert (await asking).variable_id == 9
        rows = (await meter.ask(control.List, what="broker")).rows
        assert [(row["name"], row["state"], row["leads"]) for row in rows] == [
            ("leaf-1", "standby", False),
            ("leaf-2", "leading", True),
        ]
        links = [link.name for link in a.peers if link.manager]
        assert sorted(links) == ["leaf-1", "leaf-2"]


@pytest.mark.spec("GS-115")
async def test_clients_hear_of_a_mode_change_before_and_after_it() -> None:
    broker = await ScriptedBroker.begin()
    a = await start_node(router("a", broker.url))
    reader = await WireClient.open(a.url, name="reader")
    async with ended(reader, a, broker):
        await broker.heard("a", Join)
        await broker.order("a", InformMode, mode=2)
        await reader.until(lambda: ModeState(mode=0, next=2) in reader.told)
        await broker.order("a", control.PrepareMode, mode=2)
        assert a.engine.status.slot == 16
        late = await WireClient.open(a.url, name="late")
        try:
            assert late.welcome is not None
            assert late.welcome.mode == 0
            await late.until(lambda: ModeState(mode=0, next=2) in late.told)
            await broker.order("a", control.SetMode, mode=2)
            assert reader.told[-1] == ModeState(mode=0, next=2)
            await broker.order("a", CommitMode, mode=2)
            for client in (reader, late):
                await client.until(lambda told=client.told: told[-1] == ModeState(mode=2, next=2))  # type: ignore[misc]
        finally:
            await late.close()


@pytest.mark.spec("GS-112")
async def test_the_temporary_table_of_an_edge_holds_subscriptions_not_variables() -> None:
    broker = await ScriptedBroker.begin()
    a = await start_node(router("a", broker.url))
    meter, both, old = [await WireClient.open(a.url, name=name) for name in ("meter", "both", "old")]
    async with ended(meter, both, old, a, broker):
        await broker.heard("a", Join)
        await publish(broker, "a", meter)
        await watch(broker, "a", both, modes=0b101)
        asking = asyncio.create_task(old.ask(control.Watch, publisher="plant", variable="speed", modes=0b001))
        request = await broker.heard("a", SubscribeRequest)
        broker.answer("a", request, Granted, variable=SPEED, grants=(GRANT,), modes=0b001)
        assert isinstance(await asking, Watching)
        stream = Values(meter)
        stream.publish(10)
        for reader in (both, old):
            await reader.until(lambda reader=reader: len(reader.records) == 10)  # type: ignore[misc]
        await broker.order("a", control.PrepareMode, mode=2)
        stream.publish(10)
        await both.until(lambda: len(both.records) == 20)
        await old.flush()
        assert len(old.records) == 10


async def test_a_reload_moves_a_router_to_other_processes_of_its_broker() -> None:
    one, two = await ScriptedBroker.begin(name="leaf-1"), await ScriptedBroker.begin(name="leaf-2", epoch=2)
    a = await start_node(router("a", one.url))
    async with ended(a, one, two):
        await one.heard("a", Join)
        await a.reload(parse(router("a", two.url)))
        await two.heard("a", Join)
        await eventually(lambda: [link.name for link in a.peers if link.manager] == ["leaf-2"])
        with pytest.raises(ConfigError, match="broker"):
            await a.reload(parse(router("a", two.url).replace('"leaf"', '"other"')))


@pytest.mark.spec("GS-152", "GS-154")
async def test_a_killed_router_is_rebuilt_and_its_clients_go_on(tmp_path: File) -> None:
    broker = await ScriptedBroker.begin()
    url = f"tcp://127.0.0.1:{free_port()}"
    file = tmp_path / "a.toml"
    file.write_text(router("a", broker.url, listen=url))
    a = await NodeProcess.start(file, "--dev")
    b = await start_node(router("b", broker.url))
    meter = await WireClient.open(url, name="meter")
    reader = await WireClient.open(b.url, name="reader")
    async with ended(b, reader, meter, broker):
        first = await broker.heard("a", Join)
        await broker.heard("b", Join)
        try:
            await broker.order("a", Configure, channels=(Channel("b", b.url),))
            await broker.order("b", Configure, channels=(Channel("a"),))
            await broker.heard("a", LinkState, peer="b", up=True)
            await publish(broker, "a", meter)
            await broker.order("b", Setup, paths=(hop(1, "a", ""),))
            await broker.order("a", Setup, paths=(hop(1, "", "b"),))
            await watch(broker, "b", reader)
            stream = Values(meter)
            stream.publish(10)
            await reader.until(lambda: len(reader.records) >= 10)
        finally:
            await a.end()
        await meter.close()
        await broker.heard("b", LinkState, peer="a", up=False)
        broker.inbox.clear()
        a = await NodeProcess.start(file, "--dev")
        try:
            join = await broker.heard("a", Join)
            assert (join.issuer != first.issuer, join.entities, join.links) == (True, (), ())
            await broker.order("a", Configure, channels=(Channel("b", b.url),))
            await broker.order("a", Reset)
            await broker.order("a", Setup, paths=(hop(1, "", "b"),))
            await broker.heard("b", LinkState, peer="a", up=True)
            meter = await WireClient.open(url, name="meter", session=meter.session)
            assert (await broker.heard("a", Arrived)).entity == Entity("meter", meter.issuer)
            await publish(broker, "a", meter)
            stream = Values(meter)
            stream.publish(10)
            await reader.until(lambda: len(reader.records) >= 20)
        finally:
            await meter.close()
            await a.end()
