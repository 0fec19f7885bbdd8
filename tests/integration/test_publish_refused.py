"""A refused publish does not look like success: errors at the next flush, counts by client and topic, audit lines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chappe
from chappe.client.connecting import Connecting
from chappe.errors import DeniedError
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.wire import control
from tests.support.commands import chappe as command
from tests.support.keys import Keys
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

RULES = '[[rule]]\naction = "publish"\npattern = ["open/#", "changing"]\n'


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def toml(keys: Keys, rules: str = RULES) -> str:
    return keys.toml("n1", "tcp://127.0.0.1:0", rules)


async def drops(node: Node, keys: Keys) -> list[dict[str, Any]]:
    operator = await WireClient.open(node.url, token=keys.token("root", "admin"))
    answer = await operator.ask(control.List, what="drops")
    await operator.close()
    return [row for row in answer.rows if row["reason"] == "drop_not_permitted"]


async def test_a_refused_event_raises_at_the_next_flush_each_time(keys: Keys) -> None:
    async with running(toml(keys), dev=False) as (node,):
        async with chappe.connect(node.url, token=keys.token("alice")) as client:
            told: list[Exception] = []
            client.on_error = told.append
            client.publish("open/a", b"1")
            await client.flush(30)
            for _ in range(3):
                client.publish("closed/a", b"2")
            with pytest.raises(DeniedError, match=r"(?s)3 events were refused:.*closed/a"):
                await client.flush(30)
            await client.flush(30)  # raised once
            client.publish("closed/a", b"3")
            client.publish(7, b"3")
            with pytest.raises(DeniedError, match=r'(?s)2 events were refused.*"closed/a".*"int:7"'):
                await client.flush(30)
            under_way = asyncio.ensure_future(client.flush(30))
            client.publish("closed/a", b"4")  # behind the probe of that flush
            outcomes = await asyncio.gather(under_way, client.flush(30), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes if outcome is not None] == [DeniedError]
            assert client.counters()["refused_by_rule"] == 6
            assert all(isinstance(error, DeniedError) for error in told)
            await client.publish_wait("open/a", b"5")
        assert node.engine.counters()["drop_not_permitted"] == 6


async def fail(connecting: Connecting) -> None:
    async with connecting as client:
        client.publish("closed/a", b"1")
        raise ZeroDivisionError


async def test_closing_and_blocking_clients_raise_too(keys: Keys) -> None:
    async with running(toml(keys), dev=False) as (node,):
        with pytest.raises(DeniedError, match='may not publish "closed/a"'):
            async with chappe.connect(node.url, token=keys.token("alice")) as client:
                client.publish("closed/a", b"1")
        client = await chappe.connect(node.url, token=keys.token("alice"))
        client.publish("closed/a", b"1")
        await eventually(lambda: client.core.refused == (1, 0))  # known before it ends
        with pytest.raises(DeniedError, match='may not publish "closed/a"'):
            await client.close()
        with pytest.raises(ZeroDivisionError):  # an error of the application is not covered up
            await fail(chappe.connect(node.url, token=keys.token("alice")))

        def blocking() -> None:
            with chappe.sync.connect(node.url, token=keys.token("alice")) as client:
                client.publish("closed/a", b"1")
                with pytest.raises(DeniedError, match='may not publish "closed/a"'):
                    client.flush(30)

        await asyncio.to_thread(blocking)


async def test_the_command_line_exits_4_and_prints_the_rule_to_add(keys: Keys) -> None:
    async with running(toml(keys), dev=False) as (node,):
        reader = await WireClient.open(node.url, token=keys.token("root", "admin"))
        await reader.subscribe("#")
        given = ("--url", node.url, "--token", keys.token("alice"), "--count", 3)
        done = await asyncio.to_thread(command, "pub", "closed/a", "x", *given, code=4)
        assert "published" not in done.stdout + done.stderr
        assert '[[rule]]\naction = "publish"\npattern = "closed/a"\nnames = ["alice"]' in done.stderr
        done = await asyncio.to_thread(command, "pub", "open/a", "x", *given)
        assert "published 3" in done.stderr
        await reader.until(lambda: len(reader.events) == 3)
        assert {topic for topic, _ in reader.events} == {"open/a"}
        await reader.close()


async def test_refusals_are_counted_by_client_and_topic_and_audited_once(keys: Keys) -> None:
    async with running(toml(keys), dev=False) as (node,):
        alice = await WireClient.open(node.url, token=keys.token("alice"))
        bob = await WireClient.open(node.url, token=keys.token("bob"))
        for _ in range(5):
            alice.publish("closed/a", b"")
        alice.publish("closed/b", b"")
        bob.publish("closed/a", b"")
        await alice.flush()
        await bob.flush()
        await alice.close()  # what it was refused stays known
        await eventually(lambda: len(keys.audit("publish")) >= 3)
        found = {(row["client"], row["address"]): row["count"] for row in await drops(node, keys)}
        assert found == {
            ("client 'alice'", "closed/a"): 5, ("client 'alice'", "closed/b"): 1, ("client 'bob'", "closed/a"): 1,
        }  # fmt: skip
        for _ in range(1000):
            bob.publish("closed/a", b"")
        await bob.flush()
        await bob.close()
        await eventually(lambda: node.core.access.refusals.rows()[0]["count"] == 1001)
        lines = keys.audit("publish")
        assert [(line["who"], line["target"], line["outcome"]) for line in lines if line["who"] == "bob"] == [
            ("bob", "closed/a", "denied")
        ]
        assert sum(line["details"]["events"] for line in lines if line["who"] == "alice") == 6  # type: ignore[index]


async def test_a_right_that_is_taken_or_given_later_counts_from_then_on(keys: Keys) -> None:
    async with (
        running(toml(keys), dev=False) as (node,),
        chappe.connect(node.url, token=lambda: keys.token("alice")) as client,
    ):
        client.publish("changing", b"1")
        await client.flush(30)
        before = node.config
        other = parse(toml(keys, RULES.replace("changing", "other")))
        await node.reload(msgspec.structs.replace(before, rule=other.rule))
        await eventually(lambda: client.reconnections == 1 and client.state == "connected")
        client.publish("changing", b"2")
        with pytest.raises(DeniedError, match='may not publish "changing"'):
            await client.flush(30)
        await node.reload(before)
        client.publish("changing", b"3")
        await client.flush(30)
        assert client.reconnections == 1


async def test_what_was_refused_before_a_connection_was_lost_is_refused_again(keys: Keys) -> None:
    number = bytes(16)
    async with running(toml(keys), dev=False) as (node,):
        first = await WireClient.open(node.url, token=keys.token("alice"), session=number)
        first.publish("closed/a", b"1")
        await first.flush()
        await first.close()
        again = await WireClient.open(node.url, token=keys.token("alice"), session=number)
        again.publish("closed/a", b"1")  # the same identity: sequence 1
        await again.flush()
        assert [(denial.by_rule, denial.for_room) for denial in again.denials] == [(1, 0)]
        await again.close()
