"""What a pipeline publishes arrives once at real subscribers, though who sends it dies and begins again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pyarrow as pa

import chappe
from chappe.pipeline.delivery import Node
from chappe.pipeline.job import Publish
from chappe.pipeline.outbox import Outbox
from tests.support.nodes import running

TOML = '[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
MANY = 6000  # more than a subscriber remembers of one issuer


class Died(BaseException):
    """The process ends here."""


class Dying(Node):
    """Sends a part of a batch and dies before it can note that."""

    def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
        super().events(session, after, resent, rows[: len(rows) * 3 // 4])
        raise Died


def table(first: int, stop: int) -> pa.Table:
    bodies = [f"{number:06d}" for number in range(first, stop)]
    return pa.table({"topic": ["pipeline/alerts"] * len(bodies), "body": bodies})


def deliver(node: Node, folder: Path, batch: int, rows: pa.Table) -> None:
    with contextlib.suppress(Died):
        Outbox(folder, Publish.EVENTS, node).deliver(batch, rows)


async def test_events_of_a_batch_that_is_repeated_arrive_once(tmp_path: Path) -> None:
    async with running(TOML) as (node,), chappe.connect(node.url) as client:
        subscription = await client.subscribe("pipeline/#")
        await asyncio.to_thread(deliver, Node(node.url), tmp_path, 0, table(0, 10))
        await asyncio.to_thread(deliver, Dying(node.url), tmp_path, 1, table(10, MANY))
        await asyncio.to_thread(deliver, Node(node.url), tmp_path, 1, table(10, MANY))
        await asyncio.to_thread(deliver, Node(node.url), tmp_path, 1, table(10, MANY))
        await asyncio.to_thread(deliver, Node(node.url), tmp_path, 2, table(MANY, MANY + 1))
        heard: list[str] = []
        async with asyncio.timeout(60):
            async for messages in subscription.batches():
                heard += [message.body.decode() for message in messages]
                if f"{MANY:06d}" in heard:
                    break
    assert heard == [f"{number:06d}" for number in range(MANY + 1)]


async def test_a_node_that_has_forgotten_leaves_it_to_subscribers(tmp_path: Path) -> None:
    """The node restarts between the two tries: the subscriber knows what it has by itself."""
    async with running(TOML) as (first,):
        url = first.url
        async with chappe.connect(url) as client:
            subscription = await client.subscribe("pipeline/#")
            await asyncio.to_thread(deliver, Dying(url), tmp_path, 0, table(0, MANY))
            heard: list[str] = []
            async with asyncio.timeout(60):
                while len(heard) < MANY * 3 // 4:
                    heard += [message.body.decode() for message in await anext(subscription.batches())]
            again = asyncio.Event()
            client.on_reconnect = again.set
            await first.stop(drain=False)
            async with running(TOML.replace("tcp://127.0.0.1:0", url)):
                async with asyncio.timeout(60):
                    await again.wait()
                await asyncio.to_thread(deliver, Node(url), tmp_path, 0, table(0, MANY))
                async with asyncio.timeout(60):
                    while f"{MANY - 1:06d}" not in heard:
                        heard += [message.body.decode() for message in await anext(subscription.batches())]
                await asyncio.sleep(0)
                heard += [message.body.decode() for message in subscription.take_nowait()]
    assert heard == [f"{number:06d}" for number in range(MANY)]


async def test_values_of_variables_keep_their_times(tmp_path: Path) -> None:
    async with running(TOML) as (node,), chappe.connect(node.url) as client:
        sender = Node(node.url)
        rows = pa.table({"name": ["pipeline/sum"] * 2, "value": [1.0, 2.0], "created_ns": [10, 20]})
        outbox = Outbox(tmp_path, Publish.VARIABLES, sender)
        await asyncio.to_thread(outbox.deliver, 0, rows.slice(0, 1))
        watch = await client.watch("pipeline", "sum")
        await asyncio.to_thread(outbox.deliver, 1, rows.slice(1, 1))
        async with asyncio.timeout(30):
            async for values in watch.batches():
                if values[-1].created == 20:
                    break
        assert (watch.value, watch.created) == (2.0, 20)
        await asyncio.to_thread(sender.close)
