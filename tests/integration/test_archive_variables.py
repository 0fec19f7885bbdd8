"""Variables in an archive: found where they are published, of every type, and left out where the network says no."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import chappe
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.wire.management import ChangeMode, SetFlood
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import NodeProcess, eventually, free_port, running

ARCHIVE = """
[archive]
name = "plant"
url = "{url}"
folder = "history"
log = "log"
discover_s = 0.1
{more}
[[archive.variables]]
name = "*/*"
"""


class Reading(msgspec.Struct):
    volts: float
    tap: int


@contextlib.asynccontextmanager
async def archiving(folder: Path, url: str, more: str = "") -> AsyncIterator[NodeProcess]:
    file = folder / "plant.toml"
    file.write_text(ARCHIVE.format(url=url, more=more))
    process = await NodeProcess.start(file, module="chappe.archive")
    try:
        yield process
    finally:
        await process.end(signal.SIGTERM)


def rows(folder: Path) -> list[dict[str, Any]]:
    reader = Reader(Segments(folder / "history", "plant"), folder / "log")
    batches = list(reader.read("status", 0, reader.end("status")))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


async def publishing(folder: Path, variables: dict[chappe.Variable, list[Any]]) -> list[dict[str, Any]]:
    """Publish in turn until each variable has a row."""
    async with asyncio.timeout(40):
        turn = 0
        while len({row["variable"] for row in rows(folder)}) < len(variables):
            for variable, values in variables.items():
                variable.publish(values[turn % len(values)])
            turn += 1
            await asyncio.sleep(0.05)
    return rows(folder)


async def test_values_of_every_type_are_kept_exactly(tmp_path: Path) -> None:
    big = (1 << 53) + 1
    given: dict[str, tuple[Any, list[Any]]] = {
        "float": (float, [1.5]), "int": (int, [big]), "bool": (bool, [True]), "raw": (bytes, [b"12345678"]),
        "user": (Reading, [Reading(volts=230.5, tap=-3)]),
    }  # fmt: skip
    node_file = f'[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{free_port()}"\n'
    async with running(node_file) as (node,), chappe.connect(node.url) as client:
        variables = {
            await client.register("meter", name, rate=20, type=kind): values for name, (kind, values) in given.items()
        }
        async with archiving(tmp_path, node.url):
            found = {row["name"]: row for row in await publishing(tmp_path, variables)}
    assert {name: row["value"] for name, row in found.items()} == {
        "meter/float": 1.5, "meter/int": float(big), "meter/bool": 1.0, "meter/raw": None, "meter/user": None,
    }  # fmt: skip
    assert (found["meter/int"]["whole"], found["meter/bool"]["whole"]) == (big, 1)
    assert found["meter/raw"]["content"] == b"12345678"
    assert msgspec.msgpack.decode(found["meter/user"]["content"], type=Reading) == Reading(volts=230.5, tap=-3)
    assert all(row["created_ns"] <= row["received_ns"] and row["node"] == "a" for row in found.values())


async def test_a_variable_that_comes_back_is_taken_again(tmp_path: Path) -> None:
    node_file = f'[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{free_port()}"\n'
    async with running(node_file) as (node,), archiving(tmp_path, node.url):
        for value in (1.0, 2.0):
            async with chappe.connect(node.url, name="meter") as client:
                variable = await client.register("meter", "volts", rate=20)

                def seen(value: float = value) -> bool:
                    return any(row["value"] == value for row in rows(tmp_path))

                while not seen():
                    variable.publish(value)
                    await asyncio.sleep(0.05)
                await client.withdraw(variable)


async def test_what_has_come_before_the_end_is_kept(tmp_path: Path) -> None:
    count = 20_000
    node_file = f'[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{free_port()}"\n'
    async with running(node_file) as (node,), chappe.connect(node.url) as client:
        variable = await client.register("meter", "volts", rate=100_000)
        async with archiving(tmp_path, node.url) as archive:
            await publishing(tmp_path, {variable: [-1.0]})
            archive.tell(signal.SIGSTOP)
            for number in range(count):
                variable.publish(float(number))
                if number % 500 == 0:
                    await client.flush(10)  # neither this client nor the node must drop any
            await client.flush(10)
            archive.tell(signal.SIGTERM)
            archive.tell(signal.SIGCONT)
            assert await archive.process.wait() == 0
    assert [row["value"] for row in rows(tmp_path) if row["value"] >= 0] == [float(number) for number in range(count)]


def narrow() -> Any:
    """A cloud whose one channel carries a hundred values of 24 bytes a second or so."""
    file = deployment({"leaf": ""}, {"leaf": "ab"}, ("a-b",))
    return msgspec.structs.replace(file, channel=(msgspec.structs.replace(file.channel[0], bytes_per_s=20_000.0),))


async def test_what_the_network_refuses_is_left_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Published far away and watched by nobody: the broker says that they are there."""
    made: Deployed
    async with deployed(tmp_path, narrow()) as made, chappe.connect(made.url("a"), name="meter") as client:
        slow = await client.register("meter", "slow", rate=10)
        await client.register("meter", "fast", rate=10_000)
        async with archiving(tmp_path, made.url("b"), f'brokers = ["{made.url("leaf")}"]') as archive:
            found = await publishing(tmp_path, {slow: [5.0]})
            await eventually(lambda: any("not archived" in line and "meter/fast" in line for line in archive.log))
            assert {row["name"] for row in found} == {"meter/slow"}
            async with chappe.connect(made.url("leaf"), name="operator") as operator:
                listed = await operator.list("subscriptions")
            assert {row["variable"] for row in listed} == {"slow"}


async def test_an_archive_gives_way_to_others(tmp_path: Path) -> None:
    """Two variables of which the channel carries one: the archive has the first, somebody else wants the second."""
    async with (
        deployed(tmp_path, narrow()) as made,
        chappe.connect(made.url("a"), name="meter") as client,
        chappe.connect(made.url("b"), name="desk") as desk,
    ):
        first = await client.register("meter", "first", rate=500)
        async with archiving(tmp_path, made.url("b"), f'brokers = ["{made.url("leaf")}"]') as archive:
            await publishing(tmp_path, {first: [5.0]})
            await client.register("other", "second", rate=500)
            watched = None
            async with asyncio.timeout(30):
                while watched is None:
                    with contextlib.suppress(chappe.errors.QosError):
                        watched = await desk.watch("other", "second")
                    await asyncio.sleep(0.05)
            assert any("gives way" in line for line in archive.log)


async def test_in_a_crisis_only_what_is_flooded_is_kept(tmp_path: Path) -> None:
    """Variables are taken in the normal mode; flooded ones whenever the mode sends them to everybody."""
    async with (
        deployed(tmp_path, deployment({"leaf": ""}, {"leaf": "ab"}, ("a-b",))) as made,
        chappe.connect(made.url("a"), name="meter") as client,
        chappe.connect(made.url("leaf"), name="operator") as operator,
    ):
        plain = await client.register("meter", "plain", rate=10)
        alarm = await client.register("meter", "alarm", rate=10)
        await operator.operate(SetFlood(id=0, publisher="meter", variable="alarm"))
        async with archiving(tmp_path, made.url("b"), f'brokers = ["{made.url("leaf")}"]\nflooded = true'):
            await publishing(tmp_path, {plain: [1.0], alarm: [2.0]})
            await operator.operate(ChangeMode(id=0, mode=4))
            await eventually(lambda: client.mode == 4)
            crisis: set[str] = set()
            async with asyncio.timeout(30):
                while "meter/alarm" not in crisis:
                    plain.publish(3.0)
                    alarm.publish(4.0)
                    await asyncio.sleep(0.1)
                    crisis = {row["name"] for row in rows(tmp_path) if row["mode"] == 4}
            assert crisis == {"meter/alarm"}
