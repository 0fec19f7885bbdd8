"""Several nodes in one process with real sockets between them."""

from __future__ import annotations

import time

import pytest

from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.events import Event, Issuer, Topic, TopicName
from chappe.wire.payloads import Status
from chappe.wire.status import record
from tests.support.nodes import eventually, free_port, running
from tests.support.wireclient import WireClient

PERIOD_NS = 10_000_000


def toml(name: str, port: int, peers: dict[str, int | None], paths: str = "") -> str:
    """A node that forwards all to its peers unless `paths` says otherwise; a peer without port connects itself."""
    text = f'[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
    for peer, its_port in peers.items():
        text += f'[[peer]]\nname = "{peer}"\nheartbeat_s = 0.1\n'
        text += f'url = "tcp://127.0.0.1:{its_port}"\n' if its_port else ""
    names = ", ".join(f'"{peer}"' for peer in peers)
    if peers and not paths:
        paths = f'[[path]]\nvariables = "#"\nto = [{names}]\n'
    if peers:
        paths += f'[[topic_route]]\npattern = "#"\nto = [{names}]\n'
    return text + paths


def connected(*nodes: Node) -> bool:
    return all(peer.connection is not None for node in nodes for peer in node.peers)


def link_counters(node: Node, peer: str) -> dict[str, int]:
    port = node.peers.port(peer)
    assert port is not None
    return node.engine.port_counters(port)


def grid_ns() -> int:
    """A time whose round is a multiple of every small interval."""
    return time.time_ns() // (1000 * PERIOD_NS) * 1000 * PERIOD_NS


@pytest.mark.spec("NS-001", "NS-005")
async def test_status_and_events_cross_a_chain_of_three_nodes() -> None:
    a, b, c = free_port(), free_port(), free_port()
    async with running(toml("a", a, {"b": b}), toml("b", b, {"c": c, "a": None}), toml("c", c, {"b": None})) as (
        first,
        middle,
        last,
    ):
        await eventually(lambda: connected(first, middle, last))
        publisher = await WireClient.open(first.url, name="publisher")
        reader = await WireClient.open(last.url, name="reader")
        try:
            variable = await publisher.register("plant/speed", rate_hz=100)
            watching = await reader.watch("plant/speed", wait_ns=30_000_000_000)
            assert (watching.variable_id, watching.rate_num, watching.type) == (variable, 100, "float")
            await reader.subscribe("alarms/#")
            for step in range(200):
                publisher.publish_status(variable, float(step), grid_ns() + step * PERIOD_NS)
                publisher.publish("alarms/west", str(step).encode())
            await reader.until(lambda: len(reader.records) == 200 and len(reader.events) == 200)
            assert [item.value_as("float") for item in reader.records] == [float(step) for step in range(200)]
            assert [body for _, body in reader.events] == [str(step).encode() for step in range(200)]
        finally:
            await publisher.close()
            await reader.close()


async def test_the_first_hop_filters_by_the_interval_of_the_path() -> None:
    a, b = free_port(), free_port()
    path = '[[path]]\nvariables = "plant/+"\nto = ["b"]\ninterval_ms = 100\n'
    async with running(toml("a", a, {"b": b}, path), toml("b", b, {"a": None})) as (first, last):
        await eventually(lambda: connected(first, last))
        publisher = await WireClient.open(first.url)
        reader = await WireClient.open(last.url)
        try:
            variable = await publisher.register("plant/speed", rate_hz=100)
            await reader.watch("plant/speed", wait_ns=30_000_000_000)
            start_ns = grid_ns()
            for step in range(100):
                publisher.publish_status(variable, float(step), start_ns + step * PERIOD_NS)
            await publisher.flush()
            await reader.until(lambda: len(reader.records) == 10)
            assert [item.value_as("float") for item in reader.records] == [float(step) for step in range(0, 100, 10)]
            assert link_counters(first, "b")["filtered"] == 90
            assert link_counters(last, "a")["status_in"] == 10
        finally:
            await publisher.close()
            await reader.close()


async def test_redundant_paths_deliver_once_and_do_not_loop() -> None:
    ports = {name: free_port() for name in "abcd"}
    everybody = {
        "a": {"b": ports["b"], "c": ports["c"]},
        "b": {"a": None, "c": ports["c"], "d": ports["d"]},
        "c": {"a": None, "b": None, "d": ports["d"]},
        "d": {"b": None, "c": None},
    }
    tomls = [toml(name, ports[name], peers) for name, peers in everybody.items()]
    async with running(*tomls) as nodes:
        await eventually(lambda: connected(*nodes))
        publisher = await WireClient.open(nodes[0].url)
        reader = await WireClient.open(nodes[3].url)
        try:
            variable = await publisher.register("plant/speed", rate_hz=100)
            await reader.watch("plant/speed", wait_ns=30_000_000_000)
            await reader.subscribe("alarms/#")
            last = nodes[3].core.variables.directory.numbered(variable)
            await eventually(lambda: last is not None and len(last.inputs) == 2)
            start_ns = grid_ns()
            for step in range(300):
                publisher.publish_status(variable, float(step), start_ns + step * PERIOD_NS)
                publisher.publish("alarms/west", str(step).encode())
            await publisher.flush()
            await reader.until(lambda: len(reader.records) >= 300 and len(reader.events) >= 300)
            await eventually(lambda: link_counters(nodes[3], "b")["status_in"] == 300)
            await eventually(lambda: link_counters(nodes[3], "c")["status_in"] == 300)
            await reader.flush()
            assert sorted(item.value_as("float") for item in reader.records) == [float(step) for step in range(300)]
            assert sorted(int(body) for _, body in reader.events) == list(range(300))
            repeats = sum(link_counters(nodes[3], peer)["drop_duplicate"] for peer in "bc")
            assert repeats >= 300
        finally:
            await publisher.close()
            await reader.close()


async def test_two_nodes_that_dial_each_other_keep_one_connection() -> None:
    a, b = free_port(), free_port()
    async with running(toml("a", a, {"b": b}), toml("b", b, {"a": a})) as (one, two):
        await eventually(lambda: connected(one, two) and len(one.connections) == len(two.connections) == 1)
        publisher = await WireClient.open(one.url)
        reader = await WireClient.open(two.url)
        try:
            await reader.subscribe("x")
            for step in range(50):
                publisher.publish("x", str(step).encode())
            await reader.until(lambda: len(reader.events) == 50)
            assert [body for _, body in reader.events] == [str(step).encode() for step in range(50)]
        finally:
            await publisher.close()
            await reader.close()


@pytest.mark.spec("GS-035", "GS-034")
async def test_events_for_a_peer_that_is_away_wait_and_status_is_dropped_and_counted() -> None:
    a, b = free_port(), free_port()
    async with running(toml("a", a, {"b": b})) as (first,):
        publisher = await WireClient.open(first.url)
        try:
            variable = await publisher.register("plant/speed")
            for step in range(20):
                publisher.publish("alarms/west", str(step).encode())
                publisher.publish_status(variable, float(step))
            await publisher.flush()
            assert link_counters(first, "b")["drop_closed"] == 20
            async with running(toml("b", b, {"a": None})) as (last,):
                # Before the link is there: what was kept must find its subscriber.
                reader = await WireClient.open(last.url)
                try:
                    await reader.subscribe("alarms/#")
                    await reader.watch("plant/speed", wait_ns=30_000_000_000)
                    publisher.publish("alarms/west", b"end")
                    publisher.publish_status(variable, 77.0)
                    await reader.until(lambda: reader.events[-1:] == [("alarms/west", b"end")] and bool(reader.records))
                    assert reader.records[-1].value_as("float") == 77.0
                finally:
                    await reader.close()
        finally:
            await publisher.close()


async def test_a_variable_that_is_withdrawn_disappears_from_the_mesh() -> None:
    a, b, c = free_port(), free_port(), free_port()
    async with running(toml("a", a, {"b": b}), toml("b", b, {"c": c, "a": None}), toml("c", c, {"b": None})) as (
        first,
        middle,
        last,
    ):
        await eventually(lambda: connected(first, middle, last))
        publisher = await WireClient.open(first.url)
        try:
            variable = await publisher.register("plant/speed")
            await eventually(lambda: last.core.variables.directory.numbered(variable) is not None)
            assert isinstance(await publisher.ask(control.Withdraw, variable_id=variable), control.Done)
            await eventually(lambda: last.core.variables.directory.numbered(variable) is None)
            assert middle.engine.status.entries() == last.engine.status.entries() == 0
        finally:
            await publisher.close()


async def test_a_peer_without_any_capability_works_in_the_mesh() -> None:
    port = free_port()
    async with running(toml("new", port, {"old": None})) as (node,):
        old = await WireClient.open(node.url, role="node", name="old", capabilities=())
        client = await WireClient.open(node.url)
        try:
            assert old.welcome is not None
            assert old.welcome.capabilities == ()
            spoken = control.Variable(5 << 22 | 1, "far", "away", "float", 0, 1, 3, 0)
            old.send(control.Announce(variables=(spoken,)))
            await client.watch("far/away", wait_ns=30_000_000_000)
            await client.subscribe("old/#")
            old.send(Status((record(time.time_ns(), spoken.variable_id, 2.5),)))
            old.send(Issuer(1, 1, bytes(range(16))), Topic(1, TopicName("old/news")), Event(1, 1, b"hello", issuer=1))
            await client.until(lambda: bool(client.records) and bool(client.events))
            assert client.records[0].value_as("float") == 2.5
            assert client.events == [("old/news", b"hello")]
            variable = await client.register("near/by")
            await old.until(lambda: bool(old.told))
            announced = [
                item for message in old.told if isinstance(message, control.Announce) for item in message.variables
            ]
            assert [(item.variable_id, item.publisher) for item in announced] == [(variable, "near")]
            client.publish_status(variable, 1.0)
            client.publish("new/news", b"x")
            await old.until(lambda: bool(old.records) and bool(old.events))
        finally:
            await old.close()
            await client.close()


async def test_two_names_with_one_id_are_refused_and_nothing_is_mixed_up() -> None:
    port = free_port()
    async with running(toml("node", port, {})) as (node,):
        one = await WireClient.open(node.url, role="node", name="one")
        two = await WireClient.open(node.url, role="node", name="two")
        reader = await WireClient.open(node.url)
        try:
            variable = 9 << 22 | 1
            one.send(control.Announce(variables=(control.Variable(variable, "p", "x", "float", 0, 1, 3, 0),)))
            await reader.watch("p/x", wait_ns=30_000_000_000)
            two.send(control.Announce(variables=(control.Variable(variable, "p", "y", "float", 0, 1, 3, 0),)))
            two.send(Status((record(time.time_ns(), variable, 666.0),)))
            await two.flush()
            one.send(Status((record(time.time_ns(), variable, 1.0),)))
            await reader.until(lambda: bool(reader.records))
            assert [item.value_as("float") for item in reader.records] == [1.0]
            assert node.core.variables.directory.named("p", "y") is None
        finally:
            for client in (one, two, reader):
                await client.close()


async def test_status_goes_by_datagrams_where_the_peer_is_configured_so() -> None:
    a, b, udp = free_port(), free_port(), free_port()
    sender = toml("a", a, {"b": b}).replace('name = "b"\n', 'name = "b"\ndata = "udp"\n', 1)
    receiver = toml("b", b, {"a": None}) + f'[[listen]]\nurl = "udp://127.0.0.1:{udp}"\n'
    async with running(sender, receiver) as (first, last):
        await eventually(lambda: connected(first, last))
        port = first.peers.port("b")
        assert port is not None
        await eventually(lambda: "status_out" in first.datagrams.counters(port))
        publisher = await WireClient.open(first.url)
        reader = await WireClient.open(last.url)
        try:
            variable = await publisher.register("plant/speed")
            await reader.watch("plant/speed", wait_ns=30_000_000_000)
            for step in range(100):
                publisher.publish_status(variable, float(step), time.time_ns())
                await publisher.flush()
            await reader.until(lambda: len(reader.records) == 100)
            assert first.datagrams.counters(port)["status_out"] == 100
            assert link_counters(first, "b")["status_out"] == 0
        finally:
            await publisher.close()
            await reader.close()
