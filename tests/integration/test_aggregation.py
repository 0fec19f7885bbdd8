"""Aggregators as processes, nodes with real sockets: reports, control, alerts, realms, and what a kill costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import chappe
from chappe.aggregation import averages, xml
from chappe.linkstate.units import VertexId
from chappe.machine import Publish
from chappe.measure import messages
from chappe.measure.messages import AlertEvent, Announce
from chappe.measure.monitor import Monitor, Settings
from chappe.measure.record import Record, encode
from chappe.runtime.node import Node
from chappe.store.opening import open_records
from tests.support.commands import COMMAND, ENVIRONMENT, rows
from tests.support.commands import chappe as command
from tests.support.nodes import NodeProcess, eventually, free_port, running
from tests.support.records import SECOND, record

EAST = """
[aggregates]
name = "east-agg"
realm = "east"
url = "{url}"
store = "east.db"
xml = "east.xml"
announce_s = 0.2
snapshot_s = 0.2
commit_s = 0.02

[[alert]]
name = "slow"
when = "latency_ms > 80 and loss > 0.01"

[[view]]
group = "partners"
user_groups = ["A"]
metrics = ["latency_ms", "loss"]
exchange = true
"""
WEST = """
[aggregates]
name = "west-agg"
realm = "west"
url = "{url}"
store = "west.db"
announce_s = 0.2
commit_s = 0.02
follow = [{{ realm = "east", group = "partners" }}]
"""


@contextlib.asynccontextmanager
async def two_nodes(extra: str = "") -> AsyncIterator[tuple[Node, Node]]:
    """One in each realm, with a link between them."""
    port = free_port()
    east = f'[node]\nname = "east-1"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n[mesh]\n' + extra
    west = (
        '[node]\nname = "west-1"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[mesh]\n'
        f'[[peer]]\nname = "east-1"\nurl = "tcp://127.0.0.1:{port}"\n'
    )
    async with running(east, west) as (first, second):
        yield first, second


@contextlib.asynccontextmanager
async def aggregator(folder: Path, text: str, url: str) -> AsyncIterator[NodeProcess]:
    name = "east" if 'realm = "east"\nurl' in text else "west"
    file = folder / f"{name}.toml"
    file.write_text(text.format(url=url))
    process = await NodeProcess.start(file, module="chappe.aggregation")
    try:
        yield process
    finally:
        await process.end(signal.SIGTERM)


@contextlib.asynccontextmanager
async def monitored(url: str, node: str, switched: list[Any]) -> AsyncIterator[tuple[Monitor, chappe.Client]]:
    """A monitor that a client runs in place of a node."""
    monitor = Monitor(node, Settings(realm="east"))
    async with chappe.connect(url, name=node) as client:
        subscriptions = [await client.subscribe(topic) for topic in monitor.topics]

        async def listen(subscription: chappe.Subscription) -> None:
            async for message in subscription:
                for output in monitor.received(str(message.topic), message.body, time.monotonic_ns()):
                    if isinstance(output, Publish):
                        client.publish(output.topic, output.body, content_type=output.content_type)
                    else:
                        switched.append(output)

        tasks = [asyncio.create_task(listen(each)) for each in subscriptions]
        try:
            yield monitor, client
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def now_record(**fields: Any) -> Record:
    return record(**{"stamp_ns": time.time_ns(), "node": "n1", **fields})


def stored(path: Path) -> list[Record]:
    store = open_records(path)
    try:
        return averages.records(store)
    finally:
        store.close()


async def announced(client: chappe.Client, realm: str, number: int) -> None:
    """Until the aggregator says that so many records are committed."""
    subscription = await client.subscribe(f"PBR/Aggregator/Announce/{realm}")
    async with asyncio.timeout(30):
        async for message in subscription:
            if messages.decode(message.body, Announce).stored >= number:
                break
    await client.unsubscribe(subscription)


@pytest.mark.spec("MR-081", "MR-087", "MR-088", "MR-089", "MR-099")
async def test_two_realms_collect_alert_and_exchange(tmp_path: Path) -> None:
    async with (
        two_nodes() as (east, west),
        aggregator(tmp_path, EAST, east.url),
        aggregator(tmp_path, WEST, west.url),
        chappe.connect(west.url, name="onlooker") as onlooker,
        chappe.connect(east.url, name="n1") as first,
        chappe.connect(west.url, name="n2") as far,
    ):
        alerts = await onlooker.subscribe("PBR/Alert/east")
        await eventually(lambda: east.mesh is not None and east.mesh.member.state.wanting("s", b"PBR/Alert/east"))
        told = [
            now_record(uri="open", latency_ms=10.0, loss=0.0, cost=7.0),
            now_record(uri="shared", user_group="A", latency_ms=90.0, loss=0.5, cost=7.0),
            now_record(uri="secret", user_group="B", latency_ms=10.0, loss=0.0, cost=7.0),
        ]
        first.publish("PBR/Report/east/n1", encode(told))
        # a node of the realm that is attached elsewhere in the mesh, over another link
        elsewhere = now_record(node="n2", uri="elsewhere", latency_ms=1.0)
        async with asyncio.timeout(30):
            while True:
                far.publish("PBR/Report/east/n2/east-agg", encode([elsewhere]))
                store = open_records(tmp_path / "east.db")
                found = averages.current(store)
                store.close()
                if len(found) == 4:
                    break
                await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            message = await anext(aiter(alerts))
        event = messages.decode(message.body, AlertEvent)
        assert (event.rule, event.state, event.uri, event.node) == ("slow", "raised", "shared", "n1")

        await eventually(lambda: len(stored(tmp_path / "west.db")) == 3)
        seen = {each.uri: each for each in stored(tmp_path / "west.db")}
        assert seen.keys() == {"open", "shared", "elsewhere"}
        assert (seen["shared"].latency_ms, seen["shared"].cost, seen["shared"].realm) == (90.0, None, "east")

        quick = now_record(uri="shared", user_group="A", latency_ms=20.0, loss=0.0)
        first.publish("PBR/Report/east/n1", encode([quick]))
        async with asyncio.timeout(30):
            message = await anext(aiter(alerts))
        assert messages.decode(message.body, AlertEvent).state == "cleared"
        flat, refused = xml.read((tmp_path / "east.xml").read_bytes(), time.time_ns())
        assert refused == []
        assert {each.uri for each in flat} >= {"open", "shared", "secret"}


@pytest.mark.spec("MR-085", "MR-086", "MR-130")
async def test_monitors_are_controlled_from_the_command_line(tmp_path: Path) -> None:
    switched: list[Any] = []
    async with (
        two_nodes() as (east, west),
        aggregator(tmp_path, EAST, east.url),
        monitored(west.url, "n1", switched) as (monitor, client),
    ):
        await eventually(lambda: monitor.aggregator(time.monotonic_ns()) == "east-agg")
        reading = now_record(uri="tcp://x", latency_ms=10.0)
        (publish,) = monitor.reading(reading, time.monotonic_ns())
        assert publish.topic == "PBR/Report/east/n1/east-agg"
        client.publish(publish.topic, publish.body)

        def control(*arguments: str, code: int = 0) -> dict[str, Any]:
            given = ("aggregate", "control", "n1", *arguments, "--realm", "east", "--url", west.url, "--json")
            (answer,) = rows(command(*given, code=code).stdout)
            return answer

        answer = await asyncio.to_thread(control, "stop", "--metric", "loss", "--link", "tcp://*")
        assert answer["applied"] == [reading.link]
        assert switched == [(reading.link, "loss", False)]
        await asyncio.to_thread(control, "report_only", "--change", "percent:50")
        assert monitor.reading(now_record(uri="tcp://x", latency_ms=11.0), time.monotonic_ns()) == []
        refused = await asyncio.to_thread(lambda: control("set_interval", "--interval-ms", "0.1", code=1))
        assert "is not between 1 and" in refused["refused"][0]

        await eventually(lambda: len(stored(tmp_path / "east.db")) == 1)
        parties = await asyncio.to_thread(
            lambda: rows(command("aggregate", "directory", "--store", tmp_path / "east.db", "--json").stdout)
        )
        assert ("producer", "n1") in [(row["kind"], row["name"]) for row in parties]


async def test_a_killed_aggregator_loses_no_committed_record(tmp_path: Path) -> None:
    """Also what is raised stays raised: the alert does not come twice, and is cleared once."""
    async with two_nodes() as (east, _), chappe.connect(east.url, name="n1") as client:
        alerts = await client.subscribe("PBR/Alert/east")
        start = time.time_ns() - 1000 * SECOND

        def report(numbers: range, latency_ms: float) -> None:
            told = [now_record(stamp_ns=start + number, latency_ms=latency_ms, loss=0.5) for number in numbers]
            client.publish("PBR/Report/east/n1", encode(told))

        async with aggregator(tmp_path, EAST, east.url) as process:
            for turn in range(10):
                report(range(turn * 100, turn * 100 + 100), 100.0)
            await announced(client, "east", 1000)
            await process.end(signal.SIGKILL)
        assert [each.stamp_ns - start for each in stored(tmp_path / "east.db")] == list(range(1000))
        async with aggregator(tmp_path, EAST, east.url):
            report(range(1000, 1100), 100.0)  # a repeat of the alert would come now
            report(range(1050, 1150), 100.0)  # half of it once more
            report(range(1150, 1151), 1.0)
            await announced(client, "east", 151)
        assert len(stored(tmp_path / "east.db")) == 1151
        states = [messages.decode(message.body, AlertEvent).state for message in alerts.take_nowait()]
        assert states == ["raised", "cleared"]


@pytest.mark.spec("MR-082")
async def test_a_node_moves_to_another_aggregator_when_its_own_dies(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    async with two_nodes() as (east, west), monitored(west.url, "n1", []) as (monitor, client):
        processes = []
        try:
            for place in places:
                place.mkdir()
                file = place / "agg.toml"
                file.write_text(EAST.replace("east-agg", place.name).format(url=east.url))
                processes.append(await NodeProcess.start(file, module="chappe.aggregation"))

            def chosen() -> str:
                return monitor.aggregator(time.monotonic_ns())

            async def report_to(place: Path) -> None:
                seen = len(stored(place / "east.db"))
                async with asyncio.timeout(30):
                    while len(stored(place / "east.db")) == seen:
                        (publish,) = monitor.reading(now_record(uri="tcp://x"), time.monotonic_ns())
                        client.publish(publish.topic, publish.body)
                        await asyncio.sleep(0.05)

            await eventually(chosen)
            first = chosen()
            await report_to(tmp_path / first)
            await processes[first == "two"].end(signal.SIGKILL)
            await eventually(lambda: chosen() not in ("", first))
            assert {first, chosen()} == {"one", "two"}
            await report_to(tmp_path / chosen())
        finally:
            for process in processes:
                await process.end(signal.SIGTERM)


@pytest.mark.spec("MR-081", "MR-083")
async def test_a_node_reports_what_it_measured(tmp_path: Path) -> None:
    extra = '[measure]\ninterval_s = 0.05\n[report]\nrealm = "east"\nuser_group = "A"\n'
    async with two_nodes(extra) as (east, _), aggregator(tmp_path, EAST, east.url):
        await eventually(lambda: any(each.latency_ms is not None for each in stored(tmp_path / "east.db")))
        found = next(each for each in stored(tmp_path / "east.db") if each.latency_ms is not None)
        assert (found.node, found.peer, found.realm, found.user_group) == ("east-1", "west-1", "east", "A")


@pytest.mark.spec("MR-084")
@pytest.mark.parametrize("peer", ["tcp", "ws", "unix"])
async def test_reports_travel_over_any_transport(tmp_path: Path, peer: str) -> None:
    """From a client to its node, and between nodes; the aggregator is attached over a third one."""
    urls = {
        "tcp": f"tcp://127.0.0.1:{free_port()}", "ws": f"ws://127.0.0.1:{free_port()}",
        "unix": f"unix://{tmp_path}/node.sock",
    }  # fmt: skip
    east = '[node]\nname = "east-1"\n[mesh]\n' + "".join(f'[[listen]]\nurl = "{url}"\n' for url in urls.values())
    west = (
        f'[node]\nname = "west-1"\n[[listen]]\nurl = "unix://{tmp_path}/west.sock"\n[mesh]\n'
        f'[[peer]]\nname = "east-1"\nurl = "{urls[peer]}"\n'
    )
    async with running(east, west) as (_, second), aggregator(tmp_path, EAST, urls["ws" if peer == "tcp" else "tcp"]):
        await eventually(lambda: second.mesh is not None and second.mesh.member.state.members() != ["west-1"])
        async with chappe.connect(second.url, name="far") as far, chappe.connect(urls[peer], name="near") as near:
            told = {client.name: now_record(node=client.name, uri=client.name) for client in (far, near)}
            async with asyncio.timeout(30):
                while {each.node for each in stored(tmp_path / "east.db")} != told.keys():
                    for client in (far, near):
                        client.publish(f"PBR/Report/east/{client.name}/east-agg", encode([told[client.name]]))
                    await asyncio.sleep(0.05)
        assert len(stored(tmp_path / "east.db")) == 2


@pytest.mark.spec("MR-078")
async def test_a_page_in_the_form_of_prometheus_is_read_again_and_again(tmp_path: Path) -> None:
    """The page is that of a node: what it measured of its neighbour, for an aggregator that does not know it."""
    extra = '[measure]\ninterval_s = 0.05\n[metrics]\naddress = "127.0.0.1:0"\n'
    toml = tmp_path / "node.toml"
    port = free_port()
    toml.write_text(f'[node]\nname = "strange"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n[mesh]\n{extra}')
    watched = await NodeProcess.start(toml, "--dev")
    try:
        peer = f'[[peer]]\nname = "strange"\nurl = "tcp://127.0.0.1:{port}"\n'
        own = '[node]\nname = "own"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[mesh]\n' + peer
        foreign = (
            f'[[foreign]]\nkind = "prometheus"\nplace = "{watched.metrics}/metrics"\nevery_s = 1\n'
            '[[foreign.metric]]\nname = "chappe_link_latency_seconds"\nfield = "latency_ms"\nfactor = 1000\n'
            '[[foreign.link]]\nnode = "strange"\nuri = "tcp://own"\n[foreign.link.labels]\nlink = "own"\n'
        )
        async with running(own) as (node,), aggregator(tmp_path, EAST + foreign, node.url):
            await eventually(lambda: len(stored(tmp_path / "east.db")) >= 2)
        for each in stored(tmp_path / "east.db"):
            assert (each.node, each.origin, each.realm) == ("strange", "foreign:prometheus", "east")
            assert each.latency_ms is not None
            assert 0 < each.latency_ms < 1000
    finally:
        await watched.end()


async def test_it_ends_when_told_while_it_looks_for_its_node(tmp_path: Path) -> None:
    file = tmp_path / "agg.toml"
    file.write_text(EAST.format(url=f"tcp://127.0.0.1:{free_port()}"))
    process = await asyncio.create_subprocess_exec(*COMMAND, "aggregate", "run", str(file), env=ENVIRONMENT)
    try:
        await eventually(lambda: (tmp_path / "east.xml").exists())  # the store is open, the node is looked for
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_file_that_is_wrong_is_explained(tmp_path: Path) -> None:
    for text, reason in (
        ("", "Object missing required field `aggregates`"),
        (EAST.format(url="tcp://127.0.0.1:1") + "colour = 1\n", "unknown field `colour`"),
        (
            EAST.replace("loss > 0.01", "loss").format(url="tcp://127.0.0.1:1"),
            "it ends where one of < <= > >= is expected",
        ),
        ("[aggregates", "not TOML"),
    ):
        file = tmp_path / "wrong.toml"
        file.write_text(text)
        done = await asyncio.to_thread(command, "aggregate", "check", file, code=2)
        assert reason in done.stderr
        with pytest.raises(RuntimeError, match=r"wrong\.toml"):
            await NodeProcess.start(file, module="chappe.aggregation")
    good = tmp_path / "good.toml"
    good.write_text(EAST.format(url="tcp://127.0.0.1:1"))
    assert "ok" in (await asyncio.to_thread(command, "aggregate", "check", good)).stdout


@pytest.mark.spec("MR-079")
async def test_what_another_system_measured_moves_a_route(tmp_path: Path) -> None:
    """Three nodes in a triangle: a perfSONAR host says that the direct way is slow, so events go around."""
    ports = [free_port() for _ in range(3)]
    head = '[node]\nname = "{}"\n[[listen]]\nurl = "tcp://127.0.0.1:{}"\n[mesh]\n[measure]\ninterval_s = 0.05\n'
    peer = '[[peer]]\nname = "{}"\nurl = "tcp://127.0.0.1:{}"\n'
    tomls = (
        head.format("a", ports[0]) + '[report]\nrealm = "east"\nadvice = 0.5\n',
        head.format("b", ports[1]) + peer.format("a", ports[0]),
        head.format("c", ports[2]) + peer.format("a", ports[0]) + peer.format("b", ports[1]),
    )
    async with running(*tomls[:2]) as (a, _):
        assert a.mesh is not None
        member = a.mesh.member

        def way() -> list[str]:
            route = member.state.routes.route("default", VertexId(0, "b"))
            return [] if route is None else [vertex_id.name for vertex_id in route.vertex_ids]

        await eventually(lambda: way()[-1:] == ["b"])
        direct = way()
        assert "c" not in direct
        async with running(tomls[2]):
            await eventually(lambda: len(member.state.members()) == 3)
            link = next(link for link in member.links if link.name == "b")
            spec = {"source": "ps-a", "dest": "ps-b"}
            run = {
                "start-time": datetime.now(UTC).isoformat(), "test": {"type": "rtt", "spec": spec},
                "result": {"succeeded": True, "mean": "PT0.4S", "sent": 10, "lost": 0},
            }  # fmt: skip
            place = tmp_path / "runs.json"
            place.write_text(json.dumps(run))
            foreign = (
                f'[[foreign]]\nkind = "pscheduler"\nplace = "{place}"\nevery_s = 1\n[[foreign.link]]\nnode = "a"\n'
                f'source = "ps-a"\ntarget = "ps-b"\nweight = 0.4\nlink = "{UUID(bytes=link.id)}"\n'
            )
            assert way() == direct
            async with aggregator(tmp_path, EAST + foreign, a.url):
                await eventually(lambda: "c" in way())
            found = [each for each in stored(tmp_path / "east.db") if each.foreign]
            assert {(each.node, each.latency_ms, each.origin) for each in found} == {("a", 200.0, "foreign:pscheduler")}
