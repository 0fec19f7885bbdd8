"""Durable events: confirmed when they are on disk, there once whatever is killed, and an error that helps if not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import chappe
from bench.hostile.wire import Wire
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.errors import ConfigError, DeniedError, UnconfirmedError
from chappe.security.authority import Authority
from chappe.security.tokens import create_key, issue
from tests.support.commands import chappe as command
from tests.support.nodes import NodeProcess, eventually, free_port, running

NODE = '[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
ARCHIVE = """
[archive]
name = "{name}"
url = "{url}"
folder = "history"
log = "log-{name}"
topics = {topics}
age_s = {age_s}
"""


def write(folder: Path, url: str, name: str = "plant", topics: str = '["plant/#"]', age_s: float = 60.0) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(ARCHIVE.format(name=name, url=url, topics=topics, age_s=age_s))
    return file


@contextlib.asynccontextmanager
async def archiving(file: Path) -> AsyncIterator[NodeProcess]:
    process = await NodeProcess.start(file, module="chappe.archive")
    try:
        yield process
    finally:
        await process.end(signal.SIGTERM)


def rows(folder: Path, name: str = "plant") -> list[dict[str, Any]]:
    """The events of an archive by offset, those of its log among them."""
    reader = Reader(Segments(folder / "history", name), folder / f"log-{name}")
    batches = list(reader.read("events", reader.begin("events"), reader.end("events")))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


async def test_a_durable_event_is_confirmed_once_it_is_in_the_log(tmp_path: Path) -> None:
    async with running(NODE.format(port=free_port())) as (node,):
        async with archiving(write(tmp_path, node.url)), chappe.connect(node.url) as client:
            assert await client.publish("plant/order", b"open", durable=True) == "plant"
            stored = rows(tmp_path)
            assert [(row["topic"], row["body"], row["durable"]) for row in stored] == [("plant/order", b"open", True)]
            assert stored[0]["issuer"] == client.issuer
            many = [client.publish("plant/order", b"%d" % number, 5, durable=True) for number in range(3000)]
            assert set(await asyncio.gather(*many)) == {"plant"}
            client.publish("plant/order", b"plain")
            await client.publish_wait("plant/order", b"last", durable=True)
        bodies = [row["body"] for row in rows(tmp_path)]
        assert bodies == [b"open", *(b"%d" % number for number in range(3000)), b"plain", b"last"]


async def test_an_event_whose_topic_no_archive_taps_is_sent_to_archives_and_kept_under_its_own_topic(
    tmp_path: Path,
) -> None:
    async with running(NODE.format(port=free_port())) as (node,):
        files = [write(tmp_path, node.url, name, topics="[]") for name in ("one", "two")]
        async with archiving(files[0]), archiving(files[1]), chappe.connect(node.url) as client:
            told = await asyncio.gather(*(client.publish(topic, b"x", durable=True) for topic in ("far/away", 7)))
            assert set(told) <= {"one", "two"}
            assert client.durable.sent_again >= 2
            await eventually(lambda: len(rows(tmp_path, "one")) == len(rows(tmp_path, "two")) == 2)
        for name in ("one", "two"):
            found = {(row["topic"], row["kind"]): row for row in rows(tmp_path, name)}
            assert set(found) == {("far/away", "s"), ("7", "i")}
            assert {row["sequence"] for row in found.values()} == {1, 2}
            assert all(row["created_ns"] for row in found.values())


async def test_without_an_archive_the_error_says_what_to_do_and_nothing_is_left(tmp_path: Path) -> None:
    async with running(NODE.format(port=free_port())) as (node,):
        async with chappe.connect(node.url, durable_s=0.8) as client:
            unknown = r"'plant/order' was published and is not known to be stored: no archive.*archive run FILE"
            with pytest.raises(UnconfirmedError, match=unknown):
                await client.publish("plant/order", b"open", durable=True)
            waiting = client.publish("plant/order", b"open", durable=True)
        with pytest.raises(UnconfirmedError, match=r"not known to be stored: .*closed"):
            await waiting
        with pytest.raises(ConfigError, match="durable_s"):
            chappe.connect(node.url, durable_s=0)


async def test_blocking_clients_and_the_command_line_wait_until_it_is_stored(tmp_path: Path) -> None:
    async with running(NODE.format(port=free_port())) as (node,), archiving(write(tmp_path, node.url)):

        def publish() -> str:
            with chappe.sync.connect(node.url) as client:
                client.publish_wait("plant/order", b"first", durable=True)
                told: Any = client.publish("plant/order", b"open", durable=True)
                return str(told)

        assert await asyncio.to_thread(publish) == "plant"
        given = ("plant/order", "close", "--count", 20, "--durable", "--url", node.url)
        await asyncio.to_thread(command, "pub", *given)
        assert [row["body"] for row in rows(tmp_path)] == [b"first", b"open", *[b"close"] * 20]
        await asyncio.to_thread(command, "pub", "--variable", "a/b", 1, "--durable", "--url", node.url, code=2)


async def test_two_archives_do_not_share_a_log(tmp_path: Path) -> None:
    async with running(NODE.format(port=free_port())) as (node,), archiving(write(tmp_path, node.url)):
        with pytest.raises(RuntimeError, match="another archive writes to"):
            await NodeProcess.start(tmp_path / "plant.toml", module="chappe.archive")


async def test_kills_of_archive_and_node_lose_nothing_that_was_confirmed_and_double_nothing(tmp_path: Path) -> None:
    """Five of them, at random moments, while events are published, segments made and readers read."""
    chance = random.Random(20)
    port = free_port()
    (tmp_path / "node.toml").write_text(NODE.format(port=port))
    file = write(tmp_path, f"tcp://127.0.0.1:{port}", age_s=0.3)
    node = await NodeProcess.start("--dev", tmp_path / "node.toml")
    archive = await NodeProcess.start(file, module="chappe.archive")
    confirmed: set[int] = set()
    published = 0
    over = False

    async def publish(client: chappe.Client) -> None:
        nonlocal published
        waiting: set[asyncio.Task[None]] = set()

        async def one(number: int) -> None:
            await client.publish("plant/order", b"%d" % number, durable=True)
            confirmed.add(number)

        while not over:
            for _ in range(20):
                waiting.add(asyncio.ensure_future(one(published)))
                published += 1
            await asyncio.sleep(0.02)
        await asyncio.gather(*waiting)

    def more(than: int) -> bool:
        return len(confirmed) > than

    def seen() -> list[int]:
        return [int(row["body"]) for row in rows(tmp_path)]

    try:
        async with chappe.connect(f"tcp://127.0.0.1:{port}", durable_s=90.0) as client:
            publishing = asyncio.ensure_future(publish(client))
            for kill in ("archive", "node", "archive", "node", "archive"):
                wanted = len(confirmed) + 50
                await eventually(partial(more, wanted), 60.0)
                await asyncio.sleep(chance.random() * 0.5)
                safe = set(confirmed)
                if kill == "archive":
                    await archive.end(signal.SIGKILL)
                    found = seen()  # what is on disk now, and whole
                    assert safe <= set(found)
                    assert len(found) == len(set(found))
                    archive = await NodeProcess.start(file, module="chappe.archive")
                else:
                    await node.end(signal.SIGKILL)
                    node = await NodeProcess.start("--dev", tmp_path / "node.toml")
            over = True
            await publishing
        assert confirmed == set(range(published))
        assert await archive.end(signal.SIGTERM) == 0
        assert sorted(seen()) == sorted(confirmed)
        table = ds.dataset(tmp_path / "history/events", partitioning="hive").to_table().to_pandas()
        assert sorted(int(body) for body in table["body"]) == sorted(confirmed)
        assert sorted(table["offset"]) == list(range(published))
        assert not [path for path in (tmp_path / "history").rglob("*.parquet") if path.name.startswith(".")]
    finally:
        await archive.end()
        await node.end()


async def test_an_event_that_node_and_archive_had_before_both_failed_is_stored_once(tmp_path: Path) -> None:
    """Its publisher heard nothing and sends it again: to a node and an archive that remember nothing of it."""
    port = free_port()
    (tmp_path / "node.toml").write_text(NODE.format(port=port))
    file = write(tmp_path, f"tcp://127.0.0.1:{port}")
    session = bytes(range(16))

    def publish(numbers: range, resent: bool) -> None:
        with Wire.open(port, name="meter", session=session, epoch=3) as wire:
            wire.sequence = numbers.start - 1
            for number in numbers:
                wire.publish("plant/order", b"%d" % number, resent=resent)
            wire.flush()

    for numbers, resent in ((range(1, 6), False), (range(3, 9), True)):
        node = await NodeProcess.start("--dev", tmp_path / "node.toml")
        archive = await NodeProcess.start(file, module="chappe.archive")
        try:
            await asyncio.to_thread(publish, numbers, resent)
            await eventually(lambda last=b"%d" % numbers[-1]: last in [row["body"] for row in rows(tmp_path)])
        finally:
            await asyncio.gather(node.end(signal.SIGKILL), archive.end(signal.SIGKILL))
    assert [row["body"] for row in rows(tmp_path)] == [b"%d" % number for number in range(1, 9)]


async def test_what_an_archive_has_done_is_told(tmp_path: Path) -> None:
    async with running(NODE.format(port=free_port())) as (node,):
        file = write(tmp_path, node.url)
        file.write_text(file.read_text() + "report_s = 0.1\n")
        async with chappe.connect(node.url) as client:
            reports = await client.subscribe("archive/report/plant")
            async with archiving(file):
                client.publish("plant/order", b"open")
                async with asyncio.timeout(20):
                    async for message in reports:
                        report = json.loads(message.body)
                        if report["ends"]:  # it is on disk, a moment after it is counted as stored
                            break
        assert (report["dropped"]["events"], report["queue_dropped"], report["ends"]["events"]) == (0, 0, 1)
        assert report["stored"]["events"] == 1


async def test_an_archive_that_stands_still_slows_nobody_and_counts_what_it_missed(tmp_path: Path) -> None:
    body = bytes(10_000)
    async with running(NODE.format(port=free_port())) as (node,):
        file = write(tmp_path, node.url)
        file.write_text(file.read_text() + "report_s = 0.1\n")
        async with (
            archiving(file) as archive,
            chappe.connect(node.url) as client,
            chappe.connect(node.url) as other,
        ):
            heard = await other.subscribe("plant/#", max_bytes=1 << 30)
            reports = await other.subscribe("archive/report/plant")
            archive.tell(signal.SIGSTOP)
            stored = client.publish("plant/order", b"first", durable=True)
            for _ in range(3000):  # thirty times what a node keeps for a client
                await client.publish_wait("plant/order", body)
            await client.flush(30)
            async with asyncio.timeout(30):
                for _ in range(3001):
                    await anext(heard)
            archive.tell(signal.SIGCONT)
            assert await stored == "plant"
            async with asyncio.timeout(30):
                async for message in reports:
                    report = json.loads(message.body)
                    missed = report["lost_by_node"]["events"] + report["queue_dropped"] + report["dropped"]["events"]
                    if missed + report["stored"]["events"] >= 3001:  # what was sent again may be missed, too
                        break
            assert missed > 0
        found = [row["body"] for row in rows(tmp_path)]
        assert found.count(b"first") == 1
        assert len(found) >= report["stored"]["events"]


RULES = """
[[rule]]
action = "subscribe"
pattern = ["plant/#", "archive/store", "PBR/Report/#", "node/counters/+", "broker/log/+", "quality/+"]
names = ["plant"]
[[rule]]
action = "publish"
pattern = "archive/report/#"
names = ["plant"]
[[rule]]
action = "confirm"
pattern = "#"
names = ["plant"]
[[rule]]
action = "publish"
pattern = ["plant/#", "archive/store"]
[[rule]]
action = "inbox"
pattern = "#"
names = ["bob"]
deny = true
"""


async def test_rules_say_who_may_publish_durably_and_an_archive_has_a_token(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ca = tmp_path / "ca"
    Authority.create(ca, now).issue("n1", "node", now, hosts=["127.0.0.1"])
    key = create_key(tmp_path / "tokens")

    def token(name: str) -> str:
        return issue(key, name, "client", 60, time.time_ns())

    toml = (
        '[node]\nname = "n1"\n[[listen]]\nurl = "tls://127.0.0.1:0"\n'
        f'[tls]\nca = "{ca}/ca.pem"\ncert = "{ca}/n1.pem"\nkey = "{ca}/n1.key"\n'
        f'[tokens]\nkeys = ["{tmp_path}/tokens/token.pub"]\n' + RULES
    )
    async with running(toml, dev=False) as (node,):
        file = write(tmp_path, node.url)
        file.write_text(file.read_text() + 'ca = "ca/ca.pem"\ntoken_file = "token"\n')
        (tmp_path / "token").write_text(token("alice"))
        with pytest.raises(RuntimeError, match=r'(?s)alice. may not confirm "#".*action = "confirm"'):
            await NodeProcess.start(file, module="chappe.archive")
        (tmp_path / "token").write_text(token("plant"))
        async with archiving(file):
            async with chappe.connect(node.url, name="alice", tls=f"{ca}/ca.pem", token=token("alice")) as alice:
                assert await alice.publish("plant/order", b"open", durable=True) == "plant"
            async with chappe.connect(node.url, name="bob", tls=f"{ca}/ca.pem", token=token("bob")) as bob:
                with pytest.raises(DeniedError, match=r"not published: .*'bob' may not inbox"):
                    await bob.publish("plant/order", b"open", durable=True)
