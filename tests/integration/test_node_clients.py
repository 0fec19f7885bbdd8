"""Clients at one node, over real sockets and the bare wire."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import chappe
from chappe.runtime.node import Node
from chappe.runtime.ticker import REST_S, TICK_S
from chappe.wire import control
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running(LISTEN) as nodes:
        yield nodes[0]


@contextlib.asynccontextmanager
async def clients(node: Node, count: int) -> AsyncIterator[list[WireClient]]:
    opened = [await WireClient.open(node.url, name=f"client-{at}") for at in range(count)]
    try:
        yield opened
    finally:
        for client in opened:
            await client.close()


async def test_a_node_rests_between_ticks_unless_a_message_waits_for_room(node: Node) -> None:
    async with clients(node, 1) as (client,):
        (connection,) = node.connections
        assert node._on_tick() == REST_S
        client.pause()
        while not connection.outbox:
            node.connections.send(connection.port, control.Failed(id=1, reason="x" * 100_000))
        assert node._on_tick() == TICK_S
        client.resume()
        await eventually(lambda: not connection.outbox)
        assert node._on_tick() == REST_S


@pytest.mark.spec("NS-001", "NS-002", "NS-005")
async def test_events_reach_every_subscriber_whose_pattern_matches_and_nobody_else(node: Node) -> None:
    async with clients(node, 4) as (publisher, one, two, other):
        await one.subscribe("grid/west/#")
        await two.subscribe("grid/+/volts")
        await other.subscribe("grid/east/#")
        for number in range(100):
            publisher.publish("grid/west/volts", str(number).encode())
        publisher.publish("grid/east/amps", b"end")
        await publisher.flush()
        wanted = [("grid/west/volts", str(number).encode()) for number in range(100)]
        await one.until(lambda: len(one.events) == 100)
        await two.until(lambda: len(two.events) == 100)
        await other.until(lambda: len(other.events) == 1)
        assert one.events == wanted
        assert two.events == wanted
        assert other.events == [("grid/east/amps", b"end")]
        assert publisher.events == []


async def test_a_group_gets_each_event_once(node: Node) -> None:
    async with clients(node, 3) as (publisher, one, two):
        await one.subscribe("jobs/#", group="workers")
        await two.subscribe("jobs/#", group="workers")
        for number in range(40):
            publisher.publish("jobs/do", str(number).encode())
        await publisher.flush()
        await eventually(lambda: len(one.events) + len(two.events) == 40)
        assert sorted(int(body) for _, body in one.events + two.events) == list(range(40))
        assert one.events
        assert two.events


async def test_a_watcher_gets_the_present_value_then_what_its_interval_lets_through(node: Node) -> None:
    async with clients(node, 2) as (publisher, watcher):
        variable = await publisher.register("plant/speed", rate_hz=10)
        period_ns = 100_000_000
        start_ns = time.time_ns() // (10 * period_ns) * 10 * period_ns
        publisher.publish_status(variable, 1.0, start_ns)
        await publisher.flush()
        watching = await watcher.watch("plant/speed", interval_ns=5 * period_ns)
        assert (watching.variable_id, watching.every, watching.type) == (variable, 5, "float")
        await watcher.until(lambda: len(watcher.records) == 1)
        assert watcher.records[0].value_as("float") == 1.0
        for step in range(1, 21):
            publisher.publish_status(variable, float(step), start_ns + step * period_ns)
        await publisher.flush()
        await watcher.until(lambda: len(watcher.records) == 5)
        assert [item.value_as("float") for item in watcher.records[1:]] == [5.0, 10.0, 15.0, 20.0]


@pytest.mark.spec("GS-161")
async def test_listings_show_the_forwarding_table_and_what_each_identity_holds(node: Node) -> None:
    async with clients(node, 2) as (publisher, watcher), chappe.connect(node.url, name="desk") as desk:
        speed = await publisher.register("plant/speed", rate_hz=10)
        load = await publisher.register("plant/load", rate_hz=10)
        await watcher.watch("plant/speed", interval_ns=500_000_000)
        publisher.publish("jobs/do", b"")
        await publisher.flush()
        [first, second] = await desk.list("forwarding")
        assert (first["id"], first["variable"], first["flooding"]) == (speed, "plant/speed", 0)
        assert [output["intervals"] for output in first["outputs"]] == [[5]]
        assert (first["modes"], first["more_outputs"]) == (list(range(16)), 0)
        assert (second["id"], second["outputs"], second["modes"]) == (load, [], [])
        assert len(first["inputs"]) == len(second["inputs"]) == 1
        held = await desk.list("accounts")
        assert sum(row["ports"] for row in held) == 3
        assert sum(row["topics"] for row in held) >= 1
        [counters] = await desk.list("counters")
        assert counters["topic_steps"] > 0
        assert (counters["route_error"], counters["group_overflows"], counters["memory_refused"]) == ("", 0, 0)
        assert counters["rerouted"] == counters["rescued"] == 0


async def test_status_for_a_variable_that_the_port_did_not_register_is_dropped_and_counted(node: Node) -> None:
    async with clients(node, 3) as (publisher, forger, watcher):
        variable = await publisher.register("plant/speed")
        await watcher.watch("plant/speed")
        forger.publish_status(variable, 666.0)
        await forger.flush()
        publisher.publish_status(variable, 1.0)
        await publisher.flush()
        await watcher.until(lambda: bool(watcher.records))
        assert [item.value_as("float") for item in watcher.records] == [1.0]
        rows = (await watcher.ask(control.List, what="clients")).rows
        assert {row["name"]: row["drop_not_permitted"] for row in rows}["client-1"] == 1


@pytest.mark.spec("GS-069")
async def test_status_of_an_unknown_variable_is_dropped_at_the_first_hop(node: Node) -> None:
    async with clients(node, 1) as (publisher,):
        publisher.publish_status(77, 1.0)
        await publisher.flush()
        row = (await publisher.ask(control.List, what="clients")).rows[0]
        assert (row["drop_unknown"], row["status_in"], row["status_out"]) == (1, 1, 0)


async def test_a_watch_may_wait_for_its_variable(node: Node) -> None:
    async with clients(node, 2) as (publisher, watcher):
        waiting = asyncio.create_task(watcher.watch("late/one", wait_ns=30_000_000_000))
        await watcher.flush()
        variable = await publisher.register("late/one")
        assert (await waiting).variable_id == variable


async def test_a_watch_that_waited_in_vain_is_told_so(node: Node) -> None:
    async with clients(node, 1) as (watcher,):
        answer = await watcher.ask(control.Watch, publisher="never", variable="there", wait_ns=50_000_000)
        assert (answer.code, answer.reason) == ("unknown", "no variable never/there is known here")
        answer = await watcher.ask(control.Watch, publisher="never", variable="there")
        assert answer.code == "unknown"


async def test_a_publisher_that_comes_back_gets_the_same_id_and_its_watchers_go_on(node: Node) -> None:
    async with clients(node, 1) as (watcher,):
        publisher = await WireClient.open(node.url, name="p")
        variable = await publisher.register("plant/speed")
        await watcher.watch("plant/speed")
        await publisher.close()
        again = await WireClient.open(node.url, name="p")
        try:
            assert await again.register("plant/speed") == variable
            again.publish_status(variable, 3.0)
            await watcher.until(lambda: bool(watcher.records))
        finally:
            await again.close()


async def test_only_one_client_publishes_a_variable(node: Node) -> None:
    async with clients(node, 2) as (one, two):
        await one.register("plant/speed")
        answer = await two.ask(control.Register, publisher="plant", variable="speed")
        assert (answer.code, answer.reason) == ("exists", "client-0 publishes plant/speed already")


async def test_unwatch_and_unsubscribe_end_what_was_asked_for(node: Node) -> None:
    async with clients(node, 2) as (publisher, reader):
        variable = await publisher.register("plant/speed")
        await reader.watch("plant/speed")
        await reader.subscribe("a/b")
        assert isinstance(await reader.ask(control.Unwatch, variable_id=variable), control.Done)
        assert isinstance(await reader.ask(control.Unsubscribe, pattern="a/b"), control.Done)
        assert (await reader.ask(control.Unsubscribe, pattern="a/b")).code == "unknown"
        publisher.publish_status(variable, 1.0)
        publisher.publish("a/b", b"x")
        await publisher.flush()
        await reader.flush()
        assert (reader.records, reader.events) == ([], [])


@pytest.mark.parametrize(
    ("request_kind", "fields", "word"),
    [
        (control.Register, {"publisher": "a/b", "variable": "c"}, "single level"),
        (control.Register, {"publisher": "a", "variable": "+"}, "patterns"),
        (control.Register, {"publisher": "a", "variable": "b", "type": "complex"}, "complex"),
        (control.Register, {"publisher": "a", "variable": "b", "rate_num": -1}, "rate"),
        (control.Register, {"publisher": "a", "variable": "b", "priority": 9}, "priority"),
        (control.Watch, {"publisher": "a", "variable": "b", "modes": 0}, "modes"),
        (control.Subscribe, {"pattern": "a/#/b"}, "last level"),
        (control.Subscribe, {"pattern": "x", "kind": "i"}, "integer"),
        (control.List, {"what": "secrets"}, "secrets"),
    ],
)
async def test_a_request_that_makes_no_sense_says_what_is_wrong(
    node: Node, request_kind: type[control.Request], fields: dict[str, object], word: str
) -> None:
    async with clients(node, 1) as (client,):
        answer = await client.ask(request_kind, **fields)
        assert isinstance(answer, control.Failed)
        assert answer.code == "invalid"
        assert word in answer.reason
        assert isinstance(await client.ask(control.Subscribe, pattern="still/works"), control.Done)


async def test_integer_topics_are_addresses_of_their_own(node: Node) -> None:
    async with clients(node, 1) as (client,):
        await client.subscribe("42", kind="i")
        rows = (await client.ask(control.List, what="topics")).rows
        assert [(row["pattern"], row["kind"]) for row in rows] == [("42", "i")]


async def test_unix_sockets_serve_too(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    async with running(f'[[listen]]\nurl = "unix://{path}"\n'), contextlib.AsyncExitStack() as stack:
        client = await WireClient.open(f"unix://{path}")
        stack.push_async_callback(client.close)
        await client.subscribe("a")
    assert not path.exists()


@pytest.mark.spec("GS-004")
async def test_heartbeats_go_both_ways_and_a_silent_client_is_given_up() -> None:
    async with running(LISTEN + "[limits]\nheartbeat_s = 0.2\n") as (node,):
        client = await WireClient.open(node.url, heartbeat_ns=200_000_000)
        try:
            await client.until(lambda: client.heartbeats >= 3)
            async with asyncio.timeout(30):  # a busy machine may make it late for a moment, and it is forgiven
                while (await client.ask(control.List, what="clients")).rows[0]["status"] != "connected":
                    pass
            client.pause()
            await eventually(lambda: not len(node.connections))
        finally:
            await client.close()


async def test_a_client_that_connects_again_replaces_its_old_connection(node: Node) -> None:
    async with clients(node, 1) as (old,):
        await old.register("plant/speed")
        new = await WireClient.open(node.url, name="client-0", session=old.session)
        try:
            await old.until(old.closed.is_set)
            await new.register("plant/speed")
            assert len(node.connections) == 1
        finally:
            await new.close()


async def test_the_node_forgets_everything_of_a_client_that_left(node: Node) -> None:
    async with clients(node, 1) as (publisher,):
        client = await WireClient.open(node.url)
        for number in range(100):
            await client.subscribe(f"t/{number}/#")
        ports = len(node.engine.open_ports())
        await client.close()
        await eventually(lambda: len(node.engine.open_ports()) == ports - 1 and node.engine.topics.subscriptions() == 0)
        publisher.publish("t/1/x", b"")
        await publisher.flush()


async def test_a_variable_with_many_subscribers_is_a_row_of_bounded_size(node: Node) -> None:
    async with clients(node, 41) as (publisher, *watchers), chappe.connect(node.url, name="desk") as desk:
        await publisher.register("plant/speed", rate_hz=10)
        for watcher in watchers:
            await watcher.watch("plant/speed")
        [row] = await desk.list("forwarding")
        assert (len(row["outputs"]), row["more_outputs"]) == (32, 8)
