"""Inboxes at real nodes: answers that nobody reads or forges, over meshes, static routes, moves and losses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import chappe
from chappe.errors import LinkError, ProtocolError, RefusedError
from chappe.links.delays import DelayRelay
from chappe.runtime.metrics import render
from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.addresses import check_address, confirm_address, inbox_address
from chappe.wire.durable import Confirmation, encode_confirmation
from chappe.wire.events import Event, Topic, TopicName
from tests.support.keys import Keys
from tests.support.meshes import Plan, mesh, quiet, wants, way
from tests.support.nodes import eventually, free_port, running
from tests.support.wireclient import WireClient

TOML = '[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n{more}'


def toml(name: str, more: str = "", port: int = 0) -> str:
    return TOML.format(name=name, more=more, port=port)


@contextlib.asynccontextmanager
async def answering(client: chappe.Client, topic: str = "double") -> AsyncIterator[None]:
    """A service that doubles numbers."""
    requests = await client.subscribe(topic)

    async def answer() -> None:
        async for request in requests:
            await request.respond(b"=%d" % (2 * int(request.body)))

    serving = asyncio.ensure_future(answer())
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def asked(client: chappe.Client, count: int, timeout_s: float = 20.0) -> list[int]:
    """The answers to so many requests at once."""
    found = await asyncio.gather(*(client.request("double", b"%d" % at, timeout_s=timeout_s) for at in range(count)))
    return [int(message.body.removeprefix(b"=")) for message in found]


# --- who reads, who forges


async def test_nobody_reads_an_answer_whatever_he_subscribed_to() -> None:
    async with (
        running(toml("a")) as (node,),
        chappe.connect(node.url) as client,
        chappe.connect(node.url) as service,
        chappe.connect(node.url) as curious,
    ):
        everything = [await curious.subscribe(pattern) for pattern in ("#", "+/#", "_reply/#", "+/+")]
        async with answering(service):
            assert await asked(client, 20) == [2 * at for at in range(20)]
        await curious.flush()
        await curious.list("topics")  # what the node sent before has arrived with the answer
        bodies = [message.body for queue in everything for message in queue.take_nowait()]
        assert len(bodies) == 2 * 20  # the requests, by two of the patterns
        assert not any(body.startswith(b"=") for body in bodies)


async def test_nobody_forges_an_answer_by_guessing() -> None:
    """The forger knows who asks what, and answers long before the service does."""
    async with (
        running(toml("a")) as (node,),
        chappe.connect(node.url) as client,
        chappe.connect(node.url) as service,
    ):
        requests = await service.subscribe("double")
        asking = asyncio.ensure_future(client.request("double", b"21"))
        request = await anext(requests)
        forger = await WireClient.open(node.url)
        issuer = client.issuer.hex()
        for correlation in range(5):
            forger.publish(f"_reply/{issuer}", b"forged", correlation=correlation)
            for address in (f"a@{issuer}", f"a@confirm:{issuer}", "a"):
                forger.publish(address, b"forged", kind="n", correlation=correlation)
        await forger.flush()
        await client.flush()
        assert not asking.done()
        await request.respond(b"42")
        assert (await asking).body == b"42"
        await forger.close()
        assert client.counters()["replies_unexpected"] == 0


async def test_an_answer_with_another_correlation_is_dropped_and_counted() -> None:
    async with (
        running(toml("a")) as (node,),
        chappe.connect(node.url) as client,
        chappe.connect(node.url) as service,
    ):
        requests = await service.subscribe("double")
        asking = asyncio.ensure_future(client.request("double", b"21"))
        request = await anext(requests)
        assert request.reply is not None
        for correlation in (None, 0, 1, 2, (request.correlation or 0) ^ 1):
            service.publish(request.reply, b"forged", correlation=correlation)
        await request.respond(b"42")
        await request.respond(b"42")
        assert (await asking).body == b"42"
        await eventually(lambda: client.counters()["replies_unexpected"] == 6)
        again = asyncio.ensure_future(client.request("double", b"1"))
        other = await anext(requests)
        assert other.reply == request.reply
        assert other.correlation is not None
        assert abs(other.correlation - (request.correlation or 0)) > 1000  # they cannot be counted
        await other.respond(b"2")
        await again


async def test_an_inbox_belongs_to_its_client_and_comes_back_with_it() -> None:
    async with running(toml("a")) as (node,):
        key, session = secrets.token_bytes(16), secrets.token_bytes(16)
        owner = await WireClient.open(node.url, session=session, name="owner")
        address = await owner.open_inbox(key)
        assert await owner.open_inbox(key) == address
        thief = await WireClient.open(node.url, name="thief")
        assert await thief.open_inbox(key) != address  # even if he knew the key
        for kind in ("s", "n"):
            for pattern in (address, "#", "a@"):
                answer = await thief.ask(control.Subscribe, pattern=pattern, kind=kind)
                assert isinstance(answer, control.Failed) == (kind == "n")
        answer = await thief.ask(control.CloseInbox, address=address)
        assert answer.code == "unknown"
        assert address.partition("@")[2] not in answer.reason
        thief.publish(address, b"1", kind="n")
        await owner.until(lambda: owner.events == [(address, b"1")])
        await owner.close()
        await eventually(lambda: address not in inboxes(node))
        back = await WireClient.open(node.url, session=session, name="owner")
        assert await back.open_inbox(key) == address
        thief.publish(address, b"2", kind="n")
        await back.until(lambda: back.events == [(address, b"2")])
        assert not thief.events
        await thief.close()
        await back.close()


def inboxes(node: Node) -> list[str]:
    """Addresses that clients of a node hold."""
    ports = [connection.port for connection in node.connections if connection.session.role == "client"]
    return [text for port in ports for text, kind, _, _ in node.engine.topics.patterns(port) if kind == "n"]


# --- limits and hostile input


async def test_an_identity_has_so_many_inboxes_and_no_more() -> None:
    async with running(toml("a", "[limits]\ninboxes = 3\n")) as (node,):
        first, second = [await WireClient.open(node.url, name="greedy") for _ in range(2)]
        other = await WireClient.open(node.url, name="modest")
        addresses = [await client.open_inbox(secrets.token_bytes(16)) for client in (first, second, second)]
        for client in (first, second):
            answer = await client.ask(control.OpenInbox, key=secrets.token_bytes(16))
            assert (answer.code, "limits.inboxes" in answer.reason) == ("limit", True)
        await other.open_inbox(secrets.token_bytes(16))
        await second.ask(control.CloseInbox, address=addresses[1])
        await first.open_inbox(secrets.token_bytes(16))
        await second.close()
        await eventually(lambda: len(inboxes(node)) == 3)
        await first.open_inbox(secrets.token_bytes(16))
        for length in (1, 15, 17, 5000):
            answer = await first.ask(control.OpenInbox, key=bytes(length))
            assert answer.code == "invalid"
        await first.close()
        await other.close()


NO_ADDRESSES = [
    b"", b"a@", b"@", b"a@" + b"0" * 31, b"a@" + b"G" * 32, b"x" * 1025, b"a\xff", b"+", b"a/#", b"a@confirm:1",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_ADDRESSES)
async def test_what_is_no_address_ends_the_connection_of_whoever_sent_it(text: bytes) -> None:
    async with running(toml("a")) as (node,), chappe.connect(node.url) as client:
        hostile = await WireClient.open(node.url)
        payload = (1).to_bytes(4, "big") + b"n\0" + text
        hostile.send_bytes(b"\x12" + len(payload).to_bytes(3, "big") + payload)
        await hostile.until(hostile.closed.is_set)
        assert hostile.refused is not None
        await hostile.close()
        await client.flush()


async def test_what_has_no_inbox_is_counted_and_nobody_sees_an_id() -> None:
    """Listings, drops, metrics and logs name the node alone."""
    id = secrets.token_bytes(16)
    with capture_logs() as logs:
        async with running(toml("a")) as (node,), chappe.connect(node.url) as client:
            inbox = await client.open_inbox()
            assert inbox.address is not None
            hidden = [id.hex(), inbox.address.text.partition("@")[2]]
            peer = await WireClient.open(node.url)
            peer.publish(inbox_address("elsewhere", id), b"x", kind="n", expires=1)
            peer.publish(inbox.address.text, b"x", kind="n", expires=1)
            peer.publish(inbox_address("elsewhere", id), b"x", kind="n")
            peer.publish(inbox_address("a", id), b"x", kind="n")
            await peer.flush()
            assert node.engine.counters()["unrouted"] == 2
            shown = [await client.list(what) for what in ("topics", "clients", "drops", "counters", "publications")]
            shown.append([{"metrics": render(await node.snapshot()).decode()}])
            peer.send(Topic(1, TopicName("b", "n")), Event(9, 1))
            await peer.until(peer.closed.is_set)
            shown.append([{"refused": str(peer.refused)}])
            await peer.close()
            drops = {(row["address"], row["reason"]): row["count"] for row in shown[2]}
            assert drops == {("elsewhere@…", "drop_expired"): 1, ("a@…", "drop_expired"): 1}
            assert repr(inbox.address) == "Address('a@…')"
    for secret in hidden:
        assert secret not in json.dumps(shown, default=str)
        assert secret not in str(logs)


# --- confirmations

RULES = """
[[rule]]
action = ["publish", "subscribe"]
pattern = "#"
[[rule]]
action = "confirm"
pattern = "#"
names = ["archive"]
"""


async def test_nobody_confirms_without_the_right_to(tmp_path: Path) -> None:
    """Who subscribes to durable events knows all that a confirmation says; with `publish "#"` he may not send one."""
    keys = Keys(tmp_path)
    async with running(keys.toml("a", rules=RULES), dev=False) as (node,):
        options: dict[str, Any] = {"tls": f"{tmp_path}/ca/ca.pem"}
        async with chappe.connect(node.url, token=keys.token("alice"), **options) as alice:
            forger = await WireClient.open(node.url, tls=keys.context(), token=keys.token("mallory"), name="mallory")
            archive = await WireClient.open(node.url, tls=keys.context(), token=keys.token("archive"), name="archive")
            await forger.subscribe("#")
            stored = alice.publish("plant/order", b"open", durable=True)
            await forger.until(lambda: bool(forger.raw_events))
            seen = forger.raw_events[0]
            assert seen.origin == "a"
            assert seen.reply is None  # nothing that gives a right
            body = encode_confirmation(
                Confirmation(archive="forged", epoch=1, ranges=((seen.sequence, seen.sequence),))
            )
            address = confirm_address("a", alice.issuer)
            forger.publish(address, body, kind="n")
            forger.publish(f"archive/stored/{alice.issuer.hex()}", body)
            await forger.flush()
            await alice.flush()
            assert not stored.done()
            (refusal,) = (each for each in forger.told if isinstance(each, control.PublishRefused))
            assert 'mallory\' may not confirm "a"' in refusal.reason
            body = encode_confirmation(Confirmation(archive="real", epoch=1, ranges=((seen.sequence, seen.sequence),)))
            archive.publish(address, body, kind="n")
            assert await stored == "real"
            for answer, client in ((control.Failed, forger), (control.Done, archive)):
                assert isinstance(await client.ask(control.Check, action="confirm", address="#"), answer)
            await forger.close()
            await archive.close()


async def test_deny_rules_hold_for_inboxes(tmp_path: Path) -> None:
    rule = '[[rule]]\naction = "inbox"\npattern = "{pattern}"\nnames = ["{name}"]\ndeny = true\n'
    keys = Keys(tmp_path)
    rules = rule.format(pattern="#", name="mute") + rule.format(pattern="b", name="local")
    async with running(keys.toml("a", rules=rules), dev=False) as (node,):
        mute, local, free = [
            await WireClient.open(node.url, tls=keys.context(), token=keys.token(name), name=name)
            for name in ("mute", "local", "free")
        ]
        address = await free.open_inbox(secrets.token_bytes(16))
        refused = await mute.ask(control.OpenInbox, key=secrets.token_bytes(16))
        assert refused.code == "denied"
        await local.open_inbox(secrets.token_bytes(16))
        mute.publish(address, b"mute", kind="n")
        local.publish(address, b"local", kind="n")
        local.publish(inbox_address("b", bytes(16)), b"far", kind="n")
        local.publish("a", b"the node itself", kind="n")
        for client in (mute, local):
            await client.flush()
        await free.until(lambda: free.events == [(address, b"local")])
        reasons = [str(each) for client in (mute, local) for each in client.told]
        assert [text for reason in reasons for text in ('inbox \\"a\\"', 'inbox \\"b\\"', "publish") if text in reason]
        assert len(reasons) == 3
        assert node.engine.counters()["drop_not_permitted"] == 3
        for client in (mute, local, free):
            await client.close()


# --- meshes, static routes, moves


async def test_requests_cross_a_mesh_of_units_and_take_another_route_when_one_breaks() -> None:
    """a asks a service at d; b between them stops while requests are under way."""
    units = {"a": "x", "b": "x", "c": "y", "d": "y"}
    plan = Plan((("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")), units)
    async with (
        mesh(plan) as nodes,
        chappe.connect(nodes["a"].url) as client,
        chappe.connect(nodes["d"].url) as service,
        answering(service),
    ):
        assert client.address == "x/a"
        await eventually(lambda: wants(nodes["a"], "double") == {"y"} and quiet(nodes["a"]))
        assert await asked(client, 50) == [2 * at for at in range(50)]
        over = asyncio.ensure_future(asked(client, 200))
        await nodes["b"].stop(drain=False)
        assert await over == [2 * at for at in range(200)]
        assert await asked(client, 50) == [2 * at for at in range(50)]


async def test_interest_does_not_widen_with_many_requesters() -> None:
    """100 clients that ask: a topic of answers for each of them would be more than a unit tells, and become floods."""
    plan = Plan((("a", "b"), ("b", "c")), {"a": "x", "b": "y", "c": "z"})
    async with mesh(plan) as nodes, contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(chappe.connect(nodes["c"].url))
        await stack.enter_async_context(answering(service))
        await eventually(lambda: wants(nodes["a"], "double") == {"z"} and quiet(nodes["a"]))
        clients = [await stack.enter_async_context(chappe.connect(nodes["a"].url)) for _ in range(100)]
        await asyncio.gather(*(asked(client, 2) for client in clients))
        await eventually(lambda: all(quiet(node) for node in nodes.values()))
        for name, node in nodes.items():
            assert node.mesh is not None
            told = {pattern.text for pattern in node.mesh.member.subscriptions.patterns()}
            assert told <= ({"double"} if name == "c" else set()) | {text for text in told if "PBR" in text}
        assert wants(nodes["c"], f"_reply/{clients[0].issuer.hex()}") == set()
        assert wants(nodes["c"], "any/other/topic") == set()


async def test_an_answer_to_a_node_out_of_reach_waits_for_it() -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    async with mesh(plan) as nodes, chappe.connect(nodes["a"].url) as client, chappe.connect(nodes["c"].url) as service:
        requests = await service.subscribe("double")
        await eventually(lambda: wants(nodes["a"], "double") and quiet(nodes["a"]))
        asking = asyncio.ensure_future(client.request("double", b"21", timeout_s=60))
        request = await anext(requests)
        await nodes["b"].stop(drain=False)
        await eventually(lambda: not way(nodes["c"], "a"))
        await request.respond(b"42")
        await service.flush()
        async with running(plan.toml("b")):
            assert (await asking).body == b"42"


async def test_static_routes_carry_requests_and_answers() -> None:
    """a - b - c without a mesh: neighbours are reached by name, further nodes by routes of theirs."""
    ports = [free_port() for _ in range(3)]
    peer = '[[peer]]\nname = "{}"\nurl = "tcp://127.0.0.1:{}"\n'
    route = '[[topic_route]]\npattern = "{}"\nto = ["{}"]\n'
    a = peer.format("b", ports[1]) + route.format("double", "b")
    b = '[[peer]]\nname = "a"\n' + peer.format("c", ports[2]) + route.format("double", "c")
    c = '[[peer]]\nname = "b"\n'
    for back in ("node:a", "node:#", "#"):
        tomls = [toml("a", a, ports[0]), toml("b", b, ports[1]), toml("c", c + route.format(back, "b"), ports[2])]
        async with running(*tomls) as nodes:
            await eventually(lambda: len(nodes[1].peers.channels()) == 2)
            async with contextlib.AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(chappe.connect(node.url)) for node in nodes]
                await stack.enter_async_context(answering(clients[2]))
                for client in clients:
                    assert await asked(client, 5) == [2 * at for at in range(5)]


async def test_a_client_that_moves_asks_from_there_and_what_it_asked_before_fails_at_once() -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    async with (
        mesh(plan) as nodes,
        DelayRelay(plan.ports["a"]) as relay,
        DelayRelay(plan.ports["b"], delay_s=0.2) as slow,
        chappe.connect([f"tcp://127.0.0.1:{each.port}" for each in (relay, slow)]) as client,
        chappe.connect(nodes["c"].url) as service,
    ):
        assert client.address == "a"
        requests = await service.subscribe("double")
        await eventually(lambda: wants(nodes["a"], "double") == {"c"} and quiet(nodes["a"]))
        await eventually(lambda: wants(nodes["b"], "double") == {"c"} and quiet(nodes["b"]))
        moved = asyncio.Event()
        inbox = await client.open_inbox(moved=moved.set)
        before = inbox.address
        asking = asyncio.ensure_future(client.request("double", b"21", timeout_s=60))
        request = await anext(requests)
        relay.cut()
        with pytest.raises(LinkError, match=r"moved to another node .* may have been carried out or not"):
            await asking
        await asyncio.wait_for(moved.wait(), 30)
        assert before is not None
        assert inbox.address is not None
        assert (before.text.partition("@")[2], "b") == tuple(reversed(inbox.address.text.split("@")))
        await request.respond(b"42")  # to where it was: nobody gets it
        again = asyncio.ensure_future(client.request("double", b"1", timeout_s=30))
        await (await anext(requests)).respond(b"2")
        assert (await again).body == b"2"
        service.publish(inbox.address, b"here")
        assert (await asyncio.wait_for(anext(aiter(inbox)), 30)).body == b"here"
        assert client.counters()["replies_unexpected"] == 0


async def test_a_client_does_not_move_while_it_waits_for_an_answer() -> None:
    async with (
        running(toml("a")) as (node,),
        chappe.connect(node.url) as client,
        chappe.connect(node.url) as service,
    ):
        requests = await service.subscribe("double")
        assert await client.settled()
        asking = asyncio.ensure_future(client.request("double", b"21"))
        request = await anext(requests)
        assert not await client.settled()
        await request.respond(b"42")
        await asking
        assert await client.settled()


async def test_an_inbox_of_an_application_is_closed_by_it() -> None:
    async with (
        running(toml("a")) as (node,),
        chappe.connect(node.url) as owner,
        chappe.connect(node.url) as other,
    ):
        inbox = await owner.open_inbox()
        assert inbox.address is not None
        other.publish(inbox.address, b"one", content_type="text/plain")
        message = await asyncio.wait_for(anext(aiter(inbox)), 30)
        assert (message.body, message.content_type, message.topic) == (b"one", "text/plain", inbox.address)
        assert message.issuer == other.issuer
        await inbox.unsubscribe()
        other.publish(inbox.address, b"two")
        await other.flush()
        assert node.engine.counters()["unrouted"] == 1
        with pytest.raises(ValueError, match="open_inbox"):
            await other.subscribe(inbox.address)
        with pytest.raises(ValueError, match="no archive can store it"):
            other.publish(inbox.address, b"three", durable=True)
        for text in ("", "a@", "a@" + "x" * 32):
            with pytest.raises(ValueError, match="address"):
                other.publish(chappe.Address(text), b"x")
            with pytest.raises(ProtocolError):
                check_address(text)
        with pytest.raises(RefusedError, match="none to subscribe to"):
            await other.operate(control.Advertise(id=0, pattern="a", kind="n"))
