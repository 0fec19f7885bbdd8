"""Who published is what was authenticated: another identity with the same session number is somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chappe
from chappe.archive.reader import Reader
from chappe.archive.segments import Segments
from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.durable import STORE_TOPIC, ResentEvent, encode_store_request
from chappe.wire.events import Issuer
from tests.support.keys import Keys
from tests.support.meshes import Plan, joined, quiet, wants
from tests.support.nodes import NodeProcess, eventually, running
from tests.support.wireclient import WireClient

EVERYTHING = '[[rule]]\naction = ["publish", "subscribe", "register", "watch"]\npattern = "#"\n'
FORGED = 50


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@contextlib.asynccontextmanager
async def two_nodes(keys: Keys) -> AsyncIterator[tuple[Node, Node]]:
    """A mesh of two nodes with certificates; clients bring certificates or tokens."""
    plan = Plan((("a", "b"),))
    tomls = []
    for name in plan.names:
        url = f"tls://127.0.0.1:{plan.ports[name]}"
        meshed = plan.toml(name).partition("[[peer]]")[2].replace("tcp://", "tls://")
        tomls.append(keys.toml(name, url).replace("audit.jsonl", f"{name}.jsonl") + "[[peer]]" + meshed + EVERYTHING)
    async with running(*tomls, dev=False) as (a, b):
        await eventually(lambda: joined(plan, a) and joined(plan, b))
        yield a, b


async def until_flushed(forger: WireClient, topic: str, first: int) -> None:
    """Publish as many events as the attack has, numbered from there, and wait until the node has them."""
    forger._sequence = first - 1
    for number in range(FORGED):
        forger.publish(topic, b"forged %d" % number)
    await forger.flush()


@pytest.mark.parametrize("where", ["at the same node", "at another node"])
@pytest.mark.parametrize("proof", ["certificate", "token"])
async def test_another_identity_with_the_same_session_number_publishes_as_itself(
    keys: Keys, where: str, proof: str
) -> None:
    number = secrets.token_bytes(16)
    async with two_nodes(keys) as (a, b):
        place = a if where == "at the same node" else b
        certificate: dict[str, Any] = {"tls": keys.context("mallory")}
        token: dict[str, Any] = {"tls": keys.context(), "token": keys.token("mallory")}
        async with (
            chappe.connect(a.url, tls=keys.context("victim")).issuing(number) as victim,
            chappe.connect(b.url, tls=keys.context("reader")) as reader,
        ):
            heard = await reader.subscribe("plant/#")
            await eventually(lambda: wants(a, "plant/#") and quiet(a))
            victim.publish("plant/order", b"true 0")
            first = await asyncio.wait_for(anext(heard), 30)
            forger = await WireClient.open(
                place.url, session=number, **(certificate if proof == "certificate" else token)
            )
            await until_flushed(forger, "plant/order", first=2)
            assert victim.state == "connected"
            for count in range(1, 11):
                victim.publish("plant/order", b"true %d" % count)
            await victim.flush(30)
            bodies: dict[bytes, list[bytes]] = {}
            async with asyncio.timeout(30):
                while sum(map(len, bodies.values())) < FORGED + 10:
                    message = await anext(heard)
                    bodies.setdefault(message.issuer, []).append(message.body)
            await forger.close()
    assert bodies.pop(first.issuer) == [b"true %d" % count for count in range(1, 11)]
    assert [len(each) for each in bodies.values()] == [FORGED]


@pytest.mark.parametrize("where", ["at the same node", "at another node"])
async def test_nobody_stores_in_the_name_of_another(keys: Keys, tmp_path: Path, where: str) -> None:
    number = secrets.token_bytes(16)
    async with two_nodes(keys) as (a, b):
        file = tmp_path / "plant.toml"
        file.write_text(
            f'[archive]\nname = "plant"\nurl = "{b.url}"\nfolder = "history"\nlog = "log"\ntopics = ["plant/#"]\n'
            'ca = "ca/ca.pem"\ntoken_file = "token"\n'
        )
        (tmp_path / "token").write_text(keys.token("plant", "admin"))
        archive = await NodeProcess.start(file, module="chappe.archive")
        try:
            await eventually(lambda: wants(a, STORE_TOPIC) and quiet(a))
            forger = await WireClient.open(
                (a if where == "at the same node" else b).url, session=number, tls=keys.context("mallory")
            )
            again = [ResentEvent(count, "plant/order", "s", 1, b"forged") for count in range(1, 11)]
            forger._sequence = 100
            forger.publish(STORE_TOPIC, encode_store_request(1, again))
            await forger.flush()
            await eventually(lambda: len(rows(tmp_path)) == 10)
            async with chappe.connect(a.url, tls=keys.context("victim")).issuing(number) as victim:
                stored = [victim.publish("plant/order", b"true", durable=True) for _ in range(10)]
                assert set(await asyncio.gather(*stored)) == {"plant"}
            await forger.close()
        finally:
            await archive.end(signal.SIGTERM)
    bodies: dict[bytes, list[bytes]] = {}
    for row in rows(tmp_path):
        bodies.setdefault(row["issuer"], []).append(row["body"])
    assert sorted(bodies.values()) == [[b"forged"] * 10, [b"true"] * 10]


def rows(folder: Path) -> list[dict[str, Any]]:
    reader = Reader(Segments(folder / "history", "plant"), folder / "log")
    batches = list(reader.read("events", reader.begin("events"), reader.end("events")))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


async def test_the_issuer_is_the_same_at_every_node_and_after_a_change_of_credentials(keys: Keys) -> None:
    number = secrets.token_bytes(16)
    async with two_nodes(keys) as (a, b):
        issuers = []
        for node, options in (
            (a, {"tls": keys.context("alice")}),
            (b, {"tls": keys.context("alice")}),
            (a, {"tls": keys.context(), "token": keys.token("alice")}),
        ):
            async with chappe.connect(node.url, **options).issuing(number) as client:  # type: ignore[arg-type]
                issuers.append(client.issuer)
        keys.authority.issue("alice", "client", datetime.now(UTC), replace=True)  # another key, the same name
        async with chappe.connect(b.url, tls=keys.context("alice")).issuing(number) as client:
            issuers.append(client.issuer)
        assert len(set(issuers)) == 1
        assert number not in issuers
        others = [{"tls": keys.context("bob")}, {"tls": keys.context(), "token": keys.token("alice", "admin")}]
        for options in others:
            async with chappe.connect(a.url, **options).issuing(number) as client:  # type: ignore[arg-type]
                issuers.append(client.issuer)
        assert len(set(issuers)) == 3


async def test_a_second_connection_of_an_issuer_ends_the_first_and_another_identity_ends_nobodys(keys: Keys) -> None:
    number = secrets.token_bytes(16)
    async with running(keys.toml("n1", rules=EVERYTHING), dev=False) as (node,):
        first = await WireClient.open(node.url, tls=keys.context("alice"), session=number)
        other = await WireClient.open(node.url, tls=keys.context("bob"), session=number)
        assert not first.closed.is_set()
        second = await WireClient.open(node.url, tls=keys.context("alice"), session=number)
        await first.until(first.closed.is_set)
        await second.flush()
        await other.flush()
        for client in (first, other, second):
            await client.close()


async def test_a_client_refuses_to_go_on_as_somebody_else(keys: Keys) -> None:
    names = ["alice", "bob", "alice"]
    said: list[str] = []

    def token() -> str:
        said.append(names[len(said)])
        return keys.token(said[-1])

    async with (
        running(keys.toml("n1", "tcp://127.0.0.1:0", EVERYTHING), dev=False) as (node,),
        chappe.connect(node.url, token=token) as client,
    ):
        issuer = client.issuer
        for connection in node.connections:
            node.connections.abort(connection, "the link failed")
        await eventually(lambda: client.reconnections == 1)
        assert client.issuer == issuer
        assert said == names


async def test_a_client_has_no_means_to_say_who_publishes(keys: Keys) -> None:
    async with running(keys.toml("n1", rules=EVERYTHING), dev=False) as (node,):
        client = await WireClient.open(node.url, tls=keys.context("mallory"))
        client.send(Issuer(1, 1, bytes(16)))
        await client.until(client.closed.is_set)
        assert client.refused is not None
        assert "own name only" in client.refused.reason
        await client.close()


async def test_the_session_number_is_shown_to_nobody(keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    number = secrets.token_bytes(16)
    async with two_nodes(keys) as (a, b):
        reader = await WireClient.open(b.url, tls=keys.context("reader"))
        await reader.subscribe("#")
        await eventually(lambda: wants(a, "#") and quiet(a))
        operator = await WireClient.open(a.url, tls=keys.context(), token=keys.token("root", "admin"))
        async with chappe.connect(a.url, tls=keys.context("alice")).issuing(number) as alice:
            alice.publish("plant/order", b"x")
            await reader.until(lambda: bool(reader.events))
            listings = [
                await operator.ask(control.List, what=what)
                for what in ("clients", "transports", "links", "counters", "drops", "members", "publications", "topics")
            ]
            shown = repr(listings)
            shown += "".join(capsys.readouterr())
            for written in (repr(number)[2:-1], number.hex()):
                assert written not in shown
        assert alice.issuer in reader.issuers  # among those of the nodes themselves
        assert number not in reader.issuers
        await operator.close()
        await reader.close()


async def test_on_a_node_that_authenticates_nobody_the_secret_number_is_the_identity() -> None:
    number = secrets.token_bytes(16)
    async with running('[node]\nname = "n"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n') as (node,):
        issuers = []
        for name, session in (("a", number), ("b", number), ("a", secrets.token_bytes(16))):
            client = await WireClient.open(node.url, name=name, session=session)
            issuers.append(client.issuer)
            await client.close()
        assert issuers[0] == issuers[1] != issuers[2]
