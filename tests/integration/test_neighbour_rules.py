"""Deny rules for nodes: held at their neighbour for what comes from them and what is handed to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

import chappe
from chappe.client.client import Client
from chappe.errors import ConfigError
from chappe.node.config import parse
from chappe.node.node import Node
from chappe.security.config import Rule
from tests.integration.test_mesh_tls import secured
from tests.support.meshes import Plan, joined, quiet, wants
from tests.support.nodes import eventually, running

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
        await eventually(lambda: {"b", "c", "d"} <= {str(t) for t in a.mesh.member.state.things()})  # type: ignore[union-attr]
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
        a, b, c = nodes
        await eventually(lambda: all(joined(plan, node) for node in nodes))
        async with chappe.connect(a.url, tls=tls) as hearer, chappe.connect(c.url, tls=tls) as publisher:
            heard = await hearer.subscribe("+/x")
            await eventually(lambda: wants(c, "closed/x") and quiet(c))
            publisher.publish("closed/x", b"before")
            assert await body(heard) == b"before"
            await ruled(a, DENY_B)  # the definition that b has made is decided anew
            await eventually(lambda: "b" in a.peers.channels() and wants(c, "closed/x") and quiet(c) and quiet(b))
            publisher.publish("closed/x", b"denied")
            publisher.publish("open/x", b"after")
            assert await body(heard) == b"after", "c is behind b, which may not bring it"
            assert a.rules.refused["b", "publish"] >= 1
            assert (await a.snapshot()).neighbours["b", "publish"] >= 1


async def test_a_route_of_the_file_may_not_lead_to_a_node_that_is_denied_it(tmp_path: Path) -> None:
    toml = '[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[[peer]]\nname = "b"\n'
    toml += '[[topic_route]]\npattern = "closed/#"\nto = ["b"]\n'
    toml += '[[rule]]\naction = "subscribe"\npattern = "closed/+"\nroles = ["node"]\ndeny = true\n'
    with pytest.raises(ConfigError, match=r"topic_route.*may not subscribe"):
        Node(parse(toml))
