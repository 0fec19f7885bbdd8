"""Rights of durable publishing are checked before anything is sent, and what is not known to be stored says so."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import chappe
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.errors import DeniedError, UnconfirmedError
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from tests.support.commands import chappe as command
from tests.support.keys import Keys
from tests.support.nodes import NodeProcess, eventually, running
from tests.support.wireclient import WireClient

RULES = """
[[rule]]
action = "publish"
pattern = ["plant/#", "archive/store"]
names = ["alice", "dave"]
[[rule]]
action = "inbox"
pattern = "#"
names = ["dave"]
deny = true
[[rule]]
action = "publish"
pattern = "plant/#"
names = ["bob"]
[[rule]]
action = "publish"
pattern = "archive/store"
names = ["carol"]
"""


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@contextlib.asynccontextmanager
async def archived(node: Node, keys: Keys) -> AsyncIterator[None]:
    file = keys.folder / "plant.toml"
    file.write_text(
        f'[archive]\nname = "plant"\nurl = "{node.url}"\nfolder = "history"\nlog = "log"\ntopics = ["plant/#"]\n'
        'token_file = "token"\n'
    )
    (keys.folder / "token").write_text(keys.token("plant", "admin"))
    process = await NodeProcess.start(file, module="chappe.archive")
    try:
        yield
    finally:
        await process.end(signal.SIGTERM)


def rows(folder: Path) -> list[dict[str, Any]]:
    reader = Reader(Segments(folder / "history", "plant"), folder / "log")
    batches = list(reader.read("events", reader.begin("events"), reader.end("events")))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


async def reading(node: Node, keys: Keys) -> WireClient:
    reader = await WireClient.open(node.url, token=keys.token("root", "admin"))
    await reader.subscribe("#")
    return reader


async def test_nothing_is_delivered_or_stored_if_a_right_is_missing(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0", RULES), dev=False) as (node,), archived(node, keys):
        reader = await reading(node, keys)
        for name, missing in (("bob", "archive/store"), ("carol", "plant/order")):
            async with chappe.connect(node.url, token=keys.token(name)) as client:
                with pytest.raises(DeniedError, match=rf'not published: .*{name}.* may not publish "{missing}"'):
                    await client.publish("plant/order", b"refused", durable=True)
                await client.flush(30)  # nothing was sent that could be refused
            given = ("plant/order", "refused", "--durable", "--count", 3, "--url", node.url)
            done = await asyncio.to_thread(command, "pub", *given, "--token", keys.token(name), code=4)
            assert f'pattern = "{missing}"' in done.stderr
        async with chappe.connect(node.url, token=keys.token("dave")) as dave:
            with pytest.raises(DeniedError, match=r'not published: .*dave.* may not inbox "n1"'):
                await dave.publish("plant/order", b"refused", durable=True)
        async with chappe.connect(node.url, token=keys.token("alice")) as alice:
            assert await alice.publish("plant/order", b"taken", durable=True) == "plant"
        await reader.until(lambda: ("plant/order", b"taken") in reader.events)
        assert [body for topic, body in reader.events if topic == "plant/order"] == [b"taken"]
        assert [row["body"] for row in rows(keys.folder)] == [b"taken"]
        await reader.close()


async def test_what_was_published_and_not_confirmed_says_so_and_is_not_delivered_twice(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0", RULES), dev=False) as (node,):
        reader = await reading(node, keys)
        async with chappe.connect(node.url, token=keys.token("alice"), durable_s=0.5) as client:
            with pytest.raises(
                UnconfirmedError, match=r"published and is not known to be stored: no archive"
            ) as caught:
                await client.publish("plant/order", b"once", durable=True)
            client.durable_s = 60.0
            async with archived(node, keys):
                assert await client.confirm_again(caught.value) == "plant"
                assert [row["body"] for row in rows(keys.folder)] == [b"once"]
                with pytest.raises(ValueError, match="given up"):
                    await client.confirm_again(UnconfirmedError("of somebody else"))
                client.publish("plant/last", b"")
                await reader.until(lambda: ("plant/last", b"") in reader.events)
        assert [body for topic, body in reader.events if topic == "plant/order"] == [b"once"]
        await reader.close()


async def test_a_right_that_is_taken_while_events_wait_lets_nothing_reach_an_archive(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0", RULES), dev=False) as (node,):
        before = node.config
        async with chappe.connect(node.url, token=lambda: keys.token("alice")) as client:
            early = client.publish("plant/order", b"early", durable=True)
            await eventually(lambda: client.durable.waiting == 1 and client.core.counters()["published"] == 1)
            await client.flush(30)
            none = parse(keys.toml("n1", "tcp://127.0.0.1:0", RULES.replace("alice", "nobody"))).rule
            await node.reload(msgspec.structs.replace(before, rule=none))
            await eventually(lambda: client.reconnections == 1 and client.state == "connected")
            with pytest.raises(DeniedError, match="not published"):
                await client.publish("plant/order", b"late", durable=True)
            with pytest.raises(UnconfirmedError, match="published and is not known to be stored"):
                await early
