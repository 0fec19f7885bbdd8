"""What an operator says of links: what is measured on them, whether they are, and which link carries what."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import chappe
from chappe.errors import ConfigError, RefusedError
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from tests.support.commands import chappe as command
from tests.support.commands import read_until, rows, started
from tests.support.nodes import NodeProcess, eventually, free_port, running

MEASURE = "[measure]\ninterval_s = 0.05\nadapt = false\n"
T = TypeVar("T")
PROBED = {"latency_ms", "deviation_ms", "jitter_ms", "jitter"}


def far(*more: str, name: str = "west") -> str:
    urls = ("tcp://127.0.0.1:0", *more)
    return f'[node]\nname = "{name}"\n{MEASURE}' + "".join(f'[[listen]]\nurl = "{url}"\n' for url in urls)


def near(*peers: str, name: str = "east") -> str:
    return f'[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n{MEASURE}' + "".join(peers)


def peer(name: str, url: str, more: str = "") -> str:
    return f'[[peer]]\nname = "{name}"\nurl = "{url}"\n{more}'


async def until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object]) -> T:
    """Ask again and again."""
    async with asyncio.timeout(30):
        while not holds(answer := await ask()):  # noqa: ASYNC110  nothing announces it
            await asyncio.sleep(0.02)
    return answer


async def factors(client: chappe.Client, link: str = "", type: str = "") -> dict[str, Any]:
    """Values by type."""
    return {row["type"]: row["value"] for row in await client.list("factors", of=link, to=type)}


@pytest.mark.spec("MR-042", "MR-053", "MR-054")
async def test_one_factor_or_all_of_a_link_are_asked_for_with_type_value_and_description(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    west, east = tmp_path / "west.toml", tmp_path / "east.toml"
    west.write_text(far().replace(":0", f":{port}"))
    east.write_text(near(peer("west", f"tcp://127.0.0.1:{port}")).replace("127.0.0.1:0", f"127.0.0.1:{other}"))
    nodes = [await NodeProcess.start("--dev", path) for path in (west, east)]
    try:
        url = f"tcp://127.0.0.1:{other}"
        async with chappe.connect(url) as client:
            await until(lambda: factors(client), lambda found: found.get("deviation_ms") is not None)
            every = await client.list("factors", of="west")
            assert {row["type"] for row in every} == PROBED | {"bandwidth"}
            assert all((row["name"], row["role"], row["kind"]) == ("west", "node", "tcp") for row in every)
            [latency] = await client.list("factors", of="west", to="latency_ms")
            assert 0 < latency["value"] < 100
            assert latency["description"] == "mean one-way latency without outliers, ms"
            assert [row["type"] for row in await client.list("factors", to="jitter_ms")] == ["jitter_ms"]
            with pytest.raises(RefusedError, match=r"the link to west measures no 'loss'; it measures latency_ms, dev"):
                await client.list("factors", of="west", to="loss")
            with pytest.raises(RefusedError, match=r"no link to 'north' \(links: west\)"):
                await client.list("factors", of="north")
        shown = rows(command("links", "--factors", "west", "--url", url, "--json").stdout)
        assert [row["type"] for row in shown] == [row["type"] for row in every]
        assert "mean one-way latency" in command("links", "--factors", "west", "--url", url).stdout
        [one] = rows(command("links", "--factors", "west", "--factor", "jitter_ms", "--url", url, "--json").stdout)
        assert one["type"] == "jitter_ms"
    finally:
        for node in nodes:
            await node.end()


@pytest.mark.spec("MR-055")
async def test_links_have_different_sets_of_factors_by_peer_and_by_kind_of_transport() -> None:
    async with running(far(), far("udp://127.0.0.1:0", name="south"), far("ws://127.0.0.1:0", name="north")) as others:
        west, south, north = others
        websocket = next(str(address) for address in north.addresses if address.scheme == "ws")
        text = near(
            peer("west", west.url, 'factors = ["latency"]\n'), peer("south", south.url, 'data = "udp"\n'),
            peer("north", websocket), '[transport.udp]\nfactors = ["loss"]\n[transport.ws]\nfactors = ["jitter"]\n',
        )  # fmt: skip
        async with running(text) as (east,), chappe.connect(east.url) as client:
            expected = {
                "west": {"latency_ms", "deviation_ms"}, "south": PROBED | {"bandwidth"}, "south (udp)": {"loss"},
                "north": {"jitter_ms", "jitter"},
            }  # fmt: skip

            async def listed() -> dict[str, set[str]]:
                found: dict[str, set[str]] = {}
                for row in await client.list("factors"):
                    found.setdefault(row["name"], set()).add(row["type"])
                return found

            await until(listed, lambda found: found == expected)
            await until(lambda: factors(client, "north"), lambda found: found["jitter_ms"] is not None)
            [row] = [row for row in await client.list("measured") if row["name"] == "north"]
            assert (row["mean_ms"], row["jitter_ms"] is not None) == (None, True)
            await east.reload(parse(text.replace('factors = ["latency"]\n', "").replace('["jitter"]', '["loss"]')))
            assert await listed() == expected | {"west": PROBED | {"bandwidth"}, "north": {"loss"}}


@pytest.mark.spec("MR-045", "MR-038")
async def test_monitoring_and_failure_detection_are_set_for_a_kind_of_transport_in_the_file() -> None:
    async with running(far().replace(MEASURE, "")) as (west,):
        off = "[transport.tcp]\nmeasure = false\ndetect = false\nheartbeat_s = 0.05\n"
        text = near(peer("west", west.url, "heartbeat_s = 30\n"), off)
        async with running(text) as (east,), chappe.connect(east.url) as client:
            await eventually(lambda: east.peers.channels() == ["west"])
            assert await client.list("factors", of="west") == []
            other = west.peers.named("east")
            assert other is not None
            assert other.connection is not None
            other.connection.link.pause_reading()  # from now on it answers nothing
            # heartbeats every 50 ms go unanswered, and nobody gives up
            await until(lambda: client.list("links"), lambda found: found[0]["silent_s"] > 0.5)
            port = east.peers.port("west")
            assert port is not None
            mine = east.connections.by_port[port]
            on = "[transport.tcp]\nmeasure_s = 0.07\nheartbeat_s = 0.05\n"
            await east.reload(parse(near(peer("west", west.url, "heartbeat_s = 30\n"), on)))
            await eventually(lambda: mine.closing == "silent for 0.15 s")
            await until(lambda: client.list("measured"), lambda found: 0.07 in [row["interval_s"] for row in found])
    with pytest.raises(ConfigError, match=r"transport\.pigeon: there is no such transport; one of "):
        Node(parse(near("[transport.pigeon]\n")), dev=True)


@contextlib.asynccontextmanager
async def joined(*more: str) -> AsyncIterator[tuple[Node, Node]]:
    """East, with a route of all topics to west, which has more to be reached by than the link in use."""
    async with running(far(*more)) as (west,):
        route = '[[topic_route]]\npattern = "#"\nto = ["west"]\n'
        async with running(near(peer("west", west.url), route)) as (east,):
            await eventually(lambda: east.peers.channels() == ["west"])
            yield east, west


def kinds(node: Node) -> set[str]:
    return {entry.kind for entry in node.connections.transports if entry.role == "node"}


@pytest.mark.spec("MR-048", "MR-120", "MR-044")
@pytest.mark.parametrize(("data", "expected"), [("bulk", "parallel"), ("status", "udp"), ("control", "tcp")])
async def test_an_application_asks_for_the_link_that_suits_its_data(data: str, expected: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        east, west = await stack.enter_async_context(joined("tcp://127.0.0.1:0?parallel=3", "udp://127.0.0.1:0"))
        async with chappe.connect(east.url) as writer, chappe.connect(west.url) as reader:
            row = await writer.open_link("west", data=data)
            assert (row["kind"], row["peer"], row["alternate"], row["state"]) == (expected, "west", True, "open")
            assert expected in kinds(east)
            subscription = await reader.subscribe("big")
            writer.publish("big", b"x" * 500_000)
            assert len((await anext(aiter(subscription))).body) == 500_000
            with pytest.raises(RefusedError, match="'video' is no kind of data; one of control, status, bulk"):
                await writer.open_link("west", data="video")


@pytest.mark.spec("MR-047", "MR-039", "MR-007")
async def test_a_link_for_a_while_is_opened_by_command_and_ends_with_its_time() -> None:
    async with joined("ws://127.0.0.1:0") as (east, _):
        opened = await asyncio.to_thread(
            command, "links", "--open", "west", "--kind", "ws", "--seconds", 2, "--url", east.url, "--json"
        )
        [row] = rows(opened.stdout)
        assert (row["kind"], row["alternate"]) == ("ws", True)
        await eventually(lambda: kinds(east) == {"tcp"})
        refused = await asyncio.to_thread(
            command, "links", "--open", "west", "--kind", "unix", "--url", east.url, code=4
        )
        assert "has no unix link for us; it has: tcp" in refused.stderr
        async with chappe.connect(east.url) as client:
            for arguments, reason in (({}, "name the kind"), ({"kind": "ws", "data": "bulk"}, "name the kind")):
                with pytest.raises(RefusedError, match=reason):
                    await client.open_link("west", **arguments)
            with pytest.raises(RefusedError, match=r"no node that is connected \(those are: west\)"):
                await client.open_link("north", kind="ws")


@pytest.mark.spec("MR-073")
async def test_the_table_of_links_is_refreshed_with_new_figures() -> None:
    async with joined() as (east, _):
        watching = ("links", "--watch", "--interval", "0.1", "--url", east.url)
        tables = await asyncio.to_thread(shown, *watching, word="links of east", times=3)
        for column in ("link", "mean ms", "deviation ms", "jitter ms", "loss"):
            assert column in tables[-1], column
        assert "west" in tables[-1]

        lines = await asyncio.to_thread(shown, *watching, "--json", word='"name":', times=12)
        found = [json.loads(line)["mean_ms"] for line in lines]
        assert len(set(found)) > 1, "the same figures again and again"


def shown(*arguments: object, word: str, times: int) -> list[str]:
    """What a command that runs on prints, cut before each line with the word."""
    with started(*arguments) as process:
        return ["\n".join(read_until(process.stdout, word)) for _ in range(times + 1)][1:]
