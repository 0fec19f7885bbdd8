"""Deny rules for nodes: held at their neighbour for what comes from them and what is handed to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

import chappe
from chappe.client.client import Client
from chappe.errors import ConfigError
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.security.config import Rule
from chappe.wire import control
from chappe.wire.events import Issuer, Topic, TopicName
from tests.integration.test_mesh_tls import secured
from tests.support.keys import Keys
from tests.support.meshes import Plan, joined, quiet, wants
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

SQUARE = (("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"))  # from a to d over b, or over c
DENY_B = Rule(("publish", "subscribe"), "closed/#", names=("b",), deny=True)


@contextlib.asynccontextmanager
async def square(folder: Path, *rules: Rule) -> AsyncIterator[tuple[dict[str, Node], dict[str, Client]]]:
    """Four nodes with a client each; a has these rules besides."""
    plan = Plan(SQUARE)
    tls = (f"{folder}/ca.pem", f"{folder}/user.pem", f"{folder}/user.key")
    async with running(*secured(plan, folder), dev=False) as nodes, contextlib.AsyncExitStack() as stack:
        found = dict(zip(plan.names, nodes, strict=True))
        await eventually(lambda: all(joined(plan, node) for node in nodes))
        await ruled(found["a"], *rules)
        clients = {}
        for name, node in found.items():
            clients[name] = await stack.enter_async_context(chappe.connect(node.url, tls=tls))
        yield found, clients


async def ruled(node: Node, *rules: Rule) -> None:
    kept = tuple(rule for rule in node.config.rule if not rule.deny)
    await node.reload(msgspec.structs.replace(node.config, rule=(*kept, *rules)))


async def body(subscription: chappe.Subscription) -> bytes:
    return (await anext(subscription)).body


async def test_events_that_a_node_may_not_have_go_round_it_and_not_to_it(tmp_path: Path) -> None:
    async with square(tmp_path, DENY_B) as (nodes, clients):
        a = nodes["a"]
        await eventually(lambda: {"b", "c", "d"} <= {str(t) for t in a.mesh.member.state.vertex_ids()})  # type: ignore[union-attr]
        at_b, at_d = await clients["b"].subscribe("+/x"), await clients["d"].subscribe("+/x")
        await eventually(lambda: wants(a, "closed/x") == {"b", "d"} and quiet(a))
        clients["a"].publish("closed/x", b"secret")
        clients["a"].publish("open/x", b"all")
        assert {await body(at_d) for _ in range(2)} == {b"secret", b"all"}  # over different nodes
        assert await body(at_b) == b"all"
        assert ("topic", "closed/x", "drop_not_permitted", 1) in a.engine.address_drops()
        await ruled(a)
        await eventually(lambda: quiet(a) and "b" in a.peers.channels())
        await eventually(lambda: wants(a, "closed/x") == {"b", "d"} and quiet(a))
        clients["a"].publish("closed/x", b"free")
        assert await body(at_b) == b"free"


async def test_what_a_node_may_not_publish_is_dropped_and_counted_at_its_neighbour(tmp_path: Path) -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    tls = (f"{tmp_path}/ca.pem", f"{tmp_path}/user.pem", f"{tmp_path}/user.key")
    async with running(*secured(plan, tmp_path), dev=False) as nodes:
        a, _, c = nodes
        await eventually(lambda: all(joined(plan, node) for node in nodes))
        async with chappe.connect(a.url, tls=tls) as hearer, chappe.connect(c.url, tls=tls) as publisher:
            heard = await hearer.subscribe("+/x")
            await eventually(lambda: wants(c, "closed/x") and quiet(c))
            publisher.publish("closed/x", b"before")
            assert await body(heard) == b"before"
            await ruled(a, DENY_B)  # the definition that b has made is decided anew
            first = None  # until c sees a again: b connects anew, and in one cluster nobody waits for a lost node
            while first is None:
                publisher.publish("closed/x", b"denied")
                publisher.publish("open/x", b"after")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        first = await body(heard)
            assert first == b"after", "c is behind b, which may not bring it"
            assert a.core.access.neighbours.refused["b", "publish"] >= 1
            assert (await a.snapshot()).neighbours["b", "publish"] >= 1


def denied(*actions: str) -> str:
    """A file's rules that keep the node `mallet` from these actions at the node and below `closed`."""
    patterns = '["hub", "closed/#"]'
    return f'[[rule]]\naction = {json.dumps(actions)}\npattern = {patterns}\nnames = ["mallet"]\ndeny = true\n'


@contextlib.asynccontextmanager
async def mallet(keys: Keys, *actions: str) -> AsyncIterator[tuple[Node, WireClient, WireClient]]:
    """A hub, a client that it trusts, and a neighbour that sends frames of its own."""
    async with running(keys.toml("hub", rules='[[peer]]\nname = "mallet"\n' + denied(*actions)), dev=False) as (hub,):
        tls = keys.context()
        trusted = await WireClient.open(hub.url, tls=tls, token=keys.token("trusted", "admin"), name="trusted")
        node = await WireClient.open(hub.url, tls=keys.context("mallet", "node"), role="node", name="mallet")
        node.send(Issuer(0, 1, b"m" * 16))
        try:
            yield hub, trusted, node
        finally:
            await node.close()
            await trusted.close()


@pytest.mark.parametrize("action", ["inbox", "confirm"])
async def test_who_is_denied_addresses_reaches_none_by_frames_of_its_own(tmp_path: Path, action: str) -> None:
    async with mallet(Keys(tmp_path), action) as (hub, trusted, node):
        addresses = {"inbox": await trusted.open_inbox(b"k" * 16), "confirm": await trusted.open_inbox()}
        for name, address in addresses.items():
            node.publish(address, name.encode(), kind="n")
        await node.flush()
        (other,) = addresses.keys() - {action}
        await trusted.until(lambda: bool(trusted.events))
        await trusted.flush()
        assert trusted.events == [(addresses[other], other.encode())]
        assert hub.core.access.neighbours.refused == {("mallet", action): 1}
        (refused,) = (each for each in node.told if isinstance(each, control.Failed))
        assert f'may not {action} "hub"' in refused.reason
        assert hub.engine.counters()["drop_not_permitted"] == 1


async def test_what_a_neighbour_is_refused_is_audited_once_for_an_action_and_address(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    async with mallet(keys, "publish", "inbox", "register") as (hub, trusted, node):
        inbox = await trusted.open_inbox(b"k" * 16)
        names = TopicName("closed/a"), TopicName("open/a"), TopicName(inbox, "n")
        variables = tuple(control.Variable(5, each, "v", "float", 0, 1, 3, 0) for each in ("closed", "open"))
        with capture_logs() as log:
            for _ in range(200):  # each time another meaning of the number, so that the rules are asked
                node.send(*(Topic(1, name) for name in names), control.Announce(variables=variables))
            await node.flush()
            await eventually(lambda: hub.core.access.neighbours.refused["mallet", "register"] == 200)
            await eventually(lambda: len(keys.audit("publish") + keys.audit("inbox") + keys.audit("register")) >= 3)
            await hub.shell.recorded()
        found = {action: keys.audit(action) for action in ("publish", "inbox", "register")}
        assert {action: [line["target"] for line in lines] for action, lines in found.items()} == {
            "publish": ["closed/a"], "inbox": ["hub"], "register": ["closed/v"],
        }  # fmt: skip
        for (line,) in found.values():
            assert (line["who"], line["role"], line["how"], line["outcome"]) == (
                "mallet", "node", "certificate", "denied",
            )  # fmt: skip
            assert line["serial"]
            assert "[[rule]] number 1 denies it" in str(line["reason"])
            assert line["details"]["times"] >= 1  # type: ignore[index]
        said = [line for line in log if line["event"] == "refused to a neighbour"]
        assert sorted((line["neighbour"], line["action"], line["address"]) for line in said) == [
            ("mallet", "inbox", "hub"), ("mallet", "publish", "closed/a"), ("mallet", "register", "closed/v"),
        ]  # fmt: skip
        assert inbox not in str(log) + (tmp_path / "audit.jsonl").read_text()
        assert hub.core.access.neighbours.refused["mallet", "publish"] == 200, "each is counted"


async def test_a_route_of_the_file_may_not_lead_to_a_node_that_is_denied_it(tmp_path: Path) -> None:
    toml = '[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[[peer]]\nname = "b"\n'
    toml += '[[topic_route]]\npattern = "closed/#"\nto = ["b"]\n'
    toml += '[[rule]]\naction = "subscribe"\npattern = "closed/+"\nroles = ["node"]\ndeny = true\n'
    with pytest.raises(ConfigError, match=r"topic_route.*may not subscribe"):
        Node(parse(toml))
