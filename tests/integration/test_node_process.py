"""Nodes as processes: killed, drained, reloaded, scraped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chappe.runtime.node import Node
from chappe.wire import control
from tests.support.nodes import NodeProcess, Pace, eventually, fetch, free_port, running
from tests.support.wireclient import WireClient

MESH = """
[[path]]
variables = "#"
to = [{to}]
[[topic_route]]
pattern = "#"
to = [{to}]
"""


@contextlib.asynccontextmanager
async def process(*arguments: str | Path) -> AsyncIterator[NodeProcess]:
    node = await NodeProcess.start(*arguments)
    try:
        yield node
    finally:
        await node.end()


@contextlib.asynccontextmanager
async def chain(folder: Path) -> AsyncIterator[tuple[Node, Path, Node]]:
    """First and last node here, the file of the middle one for a process."""
    middle, last = free_port(), free_port()
    file = folder / "middle.toml"
    peer = '[[peer]]\nname = "{}"\nheartbeat_s = 0.1\nurl = "tcp://127.0.0.1:{}"\n'
    file.write_text(
        f'[node]\nname = "middle"\n[[listen]]\nurl = "tcp://127.0.0.1:{middle}"\n'
        + peer.format("last", last) + MESH.format(to='"last"')
    )  # fmt: skip
    first_toml = '[node]\nname = "first"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n' + peer.format("middle", middle)
    last_toml = f'[node]\nname = "last"\n[[listen]]\nurl = "tcp://127.0.0.1:{last}"\n[[peer]]\nname = "middle"\n'
    async with running(first_toml + MESH.format(to='"middle"'), last_toml) as (first, end):
        yield first, file, end


@pytest.mark.spec("GS-035")
async def test_streams_resume_within_three_seconds_after_the_middle_node_was_killed(tmp_path: Path) -> None:
    async with chain(tmp_path) as (first, file, last), process(file, "--dev") as middle:
        publisher = await WireClient.open(first.url)
        reader = await WireClient.open(last.url)
        try:
            variables = [await publisher.register(f"plant/{number}") for number in range(20)]
            for number in range(20):
                await reader.watch(f"plant/{number}", wait_ns=30_000_000_000)
            await reader.subscribe("alarms/#")
            await publish_until_heard(publisher, reader, variables, b"before")
            await middle.end(signal.SIGKILL)
            await eventually(lambda: len(first.connections) == 1)
            async with process(file, "--dev"):
                assert await publish_until_heard(publisher, reader, variables, b"after") < 3
        finally:
            await publisher.close()
            await reader.close()


async def publish_until_heard(publisher: WireClient, reader: WireClient, variables: list[int], word: bytes) -> float:
    """Publish at a steady rate until every variable and an event of this phase were heard.

    Returns after how many seconds, without those that the machine had no time.
    """
    begun, start_ns, pace = time.monotonic(), time.time_ns(), Pace()
    async with asyncio.timeout(30):
        while True:
            for variable in variables:
                publisher.publish_status(variable, 1.0)
            publisher.publish("alarms/west", word)
            heard = {item.variable for item in reader.records if item.created >= start_ns}
            if heard == set(variables) and ("alarms/west", word) in reader.events:
                return time.monotonic() - begun - pace.late_s
            await pace.pause(0.02)


async def test_events_survive_drain_and_restart_of_the_middle_node(tmp_path: Path) -> None:
    async with chain(tmp_path) as (first, file, last):
        publisher = await WireClient.open(first.url)
        reader = await WireClient.open(last.url)
        try:
            await reader.subscribe("count")
            sent = 0
            for round_number in range(3):
                async with process(file, "--dev") as middle:
                    for _ in range(500):
                        publisher.publish("count", str(sent).encode())
                        sent += 1
                        if sent % 50 == 0:
                            await asyncio.sleep(0.01)
                    heard = round_number * 500
                    await eventually(lambda heard=heard: len(reader.events) > heard)
                    publisher.publish("count", str(sent).encode())
                    sent += 1
                    assert await middle.end(signal.SIGTERM) == 0
            async with process(file, "--dev"):
                await reader.until(lambda: len(reader.events) >= sent)
            assert [int(body) for _, body in reader.events] == list(range(sent))
        finally:
            await publisher.close()
            await reader.close()


async def test_a_slow_subscriber_gets_everything_before_a_drained_node_ends() -> None:
    async with process("--dev", "--listen", "tcp://127.0.0.1:0") as node:
        publisher = await WireClient.open(node.urls[0])
        reader = await WireClient.open(node.urls[0])
        try:
            await reader.subscribe("bulk")
            reader.pause()
            for number in range(3000):
                publisher.publish("bulk", number.to_bytes(4, "big") + bytes(1000))
            await publisher.flush()
            node.tell(signal.SIGTERM)
            await publisher.until(lambda: publisher.goodbye is not None)
            reader.resume()
            await reader.until(reader.closed.is_set)
            assert [int.from_bytes(body[:4], "big") for _, body in reader.events] == list(range(3000))
            assert reader.goodbye is not None
            assert await node.end(signal.SIGTERM) == 0
        finally:
            await publisher.close()
            await reader.close()


async def test_a_draining_node_refuses_new_connections_by_closing_its_listener() -> None:
    async with process("--dev", "--listen", "tcp://127.0.0.1:0") as node:
        client = await WireClient.open(node.urls[0])
        try:
            node.tell(signal.SIGTERM)
            await client.until(lambda: client.goodbye is not None)
            with pytest.raises(OSError):  # noqa: PT012  the connection may be refused or ended
                late = await WireClient.connect(node.urls[0])
                try:
                    await late.until(late.closed.is_set)
                    assert late.welcome is None
                    raise ConnectionError("ended")
                finally:
                    await late.close()
        finally:
            await client.close()


async def test_sighup_takes_the_new_limits_and_keeps_the_old_ones_of_a_bad_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    text = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n[limits]\nsubscriptions = {}\n'
    file.write_text(text.format(2))
    async with process(file, "--dev") as node:
        client = await WireClient.open(node.urls[0])
        try:
            await client.subscribe("a")
            await client.subscribe("b")
            answer = await client.ask(control.Subscribe, pattern="c")
            assert (answer.code, "limits.subscriptions" in answer.reason) == ("limit", True)
            file.write_text(text.format('"many"'))
            node.tell(signal.SIGHUP)
            await eventually(lambda: any("limits.subscriptions: Expected `int`" in line for line in node.log))
            assert (await client.ask(control.Subscribe, pattern="c")).code == "limit"
            file.write_text(text.format(3))
            node.tell(signal.SIGHUP)
            await eventually(lambda: any("configuration reloaded" in line for line in node.log))
            await client.subscribe("c")
            assert (await client.ask(control.Subscribe, pattern="d")).code == "limit"
        finally:
            await client.close()


@pytest.mark.spec("GS-170")
async def test_metrics_health_and_ready(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[node]\nname = "n1"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[metrics]\naddress = "127.0.0.1:0"\n'
        '[[peer]]\nname = "other"\n'
    )
    async with process(file, "--dev") as node:
        client = await WireClient.open(node.urls[0], name="meter")
        try:
            variable = await client.register("plant/speed")
            client.publish_status(variable, 1.0)
            client.publish_status(4711, 1.0)
            await client.flush()
            status, text = await fetch(f"{node.metrics}/metrics")
            assert status == 200
            samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            port = 'link="meter",node="n1"'
            assert samples[f'chappe_port_status_total{{direction="in",{port},role="client"}}'] == "2.0"
            assert samples[f'chappe_port_drops_total{{{port},reason="unknown",role="client"}}'] == "1.0"
            assert samples['chappe_port_connected{link="other",node="n1",role="node"}'] == "0.0"
            assert samples['chappe_variables{node="n1"}'] == "1.0"
            assert samples['chappe_engine_total{counter="status_in",node="n1"}'] == "2.0"
            assert await fetch(f"{node.metrics}/health") == (200, "alive\n")
            assert await fetch(f"{node.metrics}/ready") == (200, "ready\n")
            assert (await fetch(f"{node.metrics}/else"))[0] == 404
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[[listen]]\nurl = "tcp://0.0.0.0:0"\n', "listen[0].url: --dev"),
        ('[[listen]]\nurl = "tcp://127.0.0.1:0"\n[metrics]\naddress = "0.0.0.0:0"\n', "metrics.address: --dev"),
        ("[[peer]]\n", "peer[0].name: this key is required"),
        ("[node]\nname = 3\n", "node.name: Expected `str`, got `int`"),
    ],
)
async def test_a_wrong_file_ends_the_node_with_code_2_and_names_file_key_and_reason(
    tmp_path: Path, text: str, word: str
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(RuntimeError) as caught:
        await NodeProcess.start(file, "--dev")
    assert word in str(caught.value)
    assert "Traceback" not in str(caught.value)
