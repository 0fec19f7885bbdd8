"""Who gets in, what they may do, and what is written down about it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import chappe
from chappe.errors import ChappeError
from chappe.runtime.config.reader import parse
from chappe.security.authority import Authority
from chappe.wire import control, management
from tests.support.keys import Keys
from tests.support.nodes import eventually, free_port, running
from tests.support.wireclient import WireClient


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


RULES = """
[[rule]]
action = ["publish", "subscribe"]
pattern = "plant/#"
names = ["alice"]
[[rule]]
action = ["register", "watch"]
pattern = "{name}/#"
"""


async def refused(url: str, **options: object) -> control.Refused:
    client = await WireClient.connect(url, **options)  # type: ignore[arg-type]
    await client.until(client.closed.is_set)
    await client.close()
    assert client.refused is not None
    return client.refused


@pytest.mark.spec("NS-072", "NS-073")
async def test_clients_come_by_certificate_or_token_and_nobody_else(keys: Keys) -> None:
    async with running(keys.toml("n1", rules=RULES), dev=False) as (node,):
        by_certificate = await WireClient.open(node.url, tls=keys.context("alice"))
        by_token = await WireClient.open(node.url, tls=keys.context(), token=keys.token("alice"))
        names = {connection.session.identity.name for connection in node.connections}
        assert names == {"alice"}
        await by_certificate.close()
        await by_token.close()
        answer = await refused(node.url, tls=keys.context(), name="mallory")
        assert (answer.code, answer.reason) == ("identity", "client 'mallory' must bring a certificate or a token")
        answer = await refused(node.url, tls=keys.context(), token=keys.token("alice")[:-8] + "AAAAAAAA")
        assert (answer.code, "signature" in answer.reason) == ("identity", True)
        answer = await refused(node.url, tls=keys.context(), role="node", name="n2")
        assert (answer.code, "node 'n2'" in answer.reason) == ("identity", True)


async def test_plain_tcp_on_loopback_needs_a_token_too(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0"), dev=False) as (node,):
        assert (await refused(node.url)).code == "identity"
        client = await WireClient.open(node.url, token=keys.token("alice"))
        await client.close()


def hop(path: int = 1, target: str = "") -> management.Path:
    speed = control.Variable(5, "plant", "speed", "float", 1, 1_000_000, 3, 0)
    return management.Path(speed, path, "", target, (0,), (3,), 0xFFFF)


@pytest.mark.spec("NS-072", "GS-160")
async def test_what_no_rule_allows_is_refused_and_the_missing_rule_is_named(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0", RULES), dev=False) as (node,):
        alice = await WireClient.open(node.url, token=keys.token("alice"))
        bob = await WireClient.open(node.url, token=keys.token("bob"))
        try:
            await alice.subscribe("plant/+/volts")
            await alice.register("alice/x")
            expected = [
                (control.Subscribe, {"pattern": "#"}, 'action = "subscribe"\npattern = "#"'),
                (control.Register, {"publisher": "bob", "variable": "x"}, 'action = "register"\npattern = "bob/x"'),
                (control.Watch, {"publisher": "bob", "variable": "x"}, 'action = "watch"\npattern = "bob/x"'),
                (
                    management.Setup,
                    {"epoch": 1, "command": 1, "paths": (hop(),)},
                    'action = "control"\npattern = "n1/Setup"',
                ),
            ]
            for kind, fields, rule in expected:
                answer = await alice.ask(kind, **fields)
                assert answer.code == "denied"
                assert rule in answer.reason
                assert 'names = ["alice"]' in answer.reason
            assert node.engine.status.entries() == 1
            bob.publish("plant/one/volts", b"forged")
            await bob.flush()
            await bob.until(lambda: bool(bob.told))
            told = bob.told[0]
            assert isinstance(told, control.PublishRefused)
            assert 'action = "publish"\npattern = "plant/one/volts"\nnames = ["bob"]' in told.reason
            alice.publish("plant/one/volts", b"true")
            await alice.flush()
            await alice.until(lambda: bool(alice.events))
            assert alice.events == [("plant/one/volts", b"true")]
            assert (await alice.ask(control.List, what="clients")).code == "denied"
            assert [(line["who"], line["outcome"]) for line in keys.audit()] == [("alice", "denied")]
        finally:
            await alice.close()
            await bob.close()


@pytest.mark.spec("GS-160", "GS-073")
async def test_a_broker_drives_the_table_and_every_command_is_written_down(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0"), dev=False) as (node,):
        broker = await WireClient.open(node.url, token=keys.token("leaf-7", "broker"))
        try:
            here = (hop(),)
            assert isinstance(await broker.ask(management.Setup, epoch=2, command=1, paths=here), control.Done)
            answer = await broker.ask(management.Teardown, epoch=1, command=9, paths=((5, 1),))
            assert (answer.code, "epoch 1 is over" in answer.reason) == ("stale", True)
            astray = (hop(path=2, target="nowhere"),)
            answer = await broker.ask(management.Setup, epoch=2, command=2, paths=astray)
            assert answer.code == "invalid"
            assert answer.reason == "Setup: path 2 of plant/speed (0x5): there is no link named 'nowhere'"
            assert len(node.core.paths) == 1
            lines = [(line["target"], line["outcome"]) for line in keys.audit()]
            assert lines == [
                ("n1/Setup", "intent"), ("n1/Setup", "done"), ("n1/Teardown", "intent"), ("n1/Teardown", "failed"),
                ("n1/Setup", "intent"), ("n1/Setup", "failed"),
            ]  # fmt: skip
        finally:
            await broker.close()


async def test_a_command_is_done_when_its_intent_is_on_disk(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def held(descriptor: int) -> None:
        syncing.set()
        go_on.wait(20)
        fsync(descriptor)

    async with running(keys.toml("n1", "tcp://127.0.0.1:0"), dev=False) as (node,):
        broker = await WireClient.open(node.url, token=keys.token("leaf-7", "broker"))
        monkeypatch.setattr(os, "fsync", held)
        try:
            asked = asyncio.ensure_future(broker.ask(management.Setup, epoch=2, command=1, paths=(hop(),)))
            assert await asyncio.to_thread(syncing.wait, 20)
            assert len(node.core.paths) == 0
            assert [line["outcome"] for line in keys.audit()] == ["intent"]
            go_on.set()
            assert isinstance(await asked, control.Done)
            assert len(node.core.paths) == 1
            intent, done = keys.audit()
            assert (intent["outcome"], done["outcome"]) == ("intent", "done")
            assert intent["number"] == done["number"]
            assert "paths" in intent["details"]  # type: ignore[operator]
        finally:
            go_on.set()
            await broker.close()


async def test_what_cannot_be_written_down_is_not_done(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running(keys.toml("n1", "tcp://127.0.0.1:0"), dev=False) as (node,):
        broker = await WireClient.open(node.url, token=keys.token("leaf-7", "broker"))
        try:
            monkeypatch.setattr(os, "fsync", full)
            for command in (1, 2):
                answer = await broker.ask(management.Setup, epoch=2, command=command, paths=(hop(),))
                assert isinstance(answer, control.Failed), answer
                assert answer.code == "unavailable"
                assert "No space left on device; nothing was done" in answer.reason
            assert len(node.core.paths) == 0
            monkeypatch.undo()
            assert isinstance(await broker.ask(management.Setup, epoch=2, command=1, paths=(hop(),)), control.Done)
            assert len(node.core.paths) == 1
        finally:
            await broker.close()


async def test_an_outcome_that_the_disk_does_not_take_is_written_later(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent is on disk, so who asked hears what was done."""
    fsync = os.fsync
    synced = 0

    def once(descriptor: int) -> None:
        nonlocal synced
        if synced:
            raise OSError(errno.EIO, "Input/output error")
        synced += 1
        fsync(descriptor)

    async with running(keys.toml("n1", "tcp://127.0.0.1:0"), dev=False) as (node,):
        broker = await WireClient.open(node.url, token=keys.token("leaf-7", "broker"))
        try:
            monkeypatch.setattr(os, "fsync", once)
            assert isinstance(await broker.ask(management.Setup, epoch=2, command=1, paths=(hop(),)), control.Done)
            monkeypatch.undo()
            assert isinstance(await broker.ask(management.Reset, epoch=2, command=2), control.Done)
            lines = [(line["number"], line["target"], line["outcome"]) for line in keys.audit()]
            assert lines == [(1, "n1/Setup", "done"), (2, "n1/Reset", "intent"), (2, "n1/Reset", "done")]
        finally:
            await broker.close()


async def test_a_client_is_shown_by_its_proven_name_whatever_it_calls_itself(keys: Keys) -> None:
    """Counters, listings and the owner of a variable: nobody hides behind the name of another."""
    rules = RULES + '[[rule]]\naction = "admin"\npattern = "n1/#"\nnames = ["alice"]\n'
    async with running(keys.toml("n1", "tcp://127.0.0.1:0", rules), dev=False) as (node,):
        alice = await WireClient.open(node.url, token=keys.token("alice"), name="alice")
        mallory = await WireClient.open(node.url, token=keys.token("mallory"), name="alice")
        try:
            await mallory.register("mallory/x")
            listing = await alice.ask(control.List, what="clients")
            assert {row["name"] for row in listing.rows} == {"alice", "mallory/alice"}
            entry = node.core.variables.directory.named("mallory", "x")
            assert entry is not None
            assert entry.owner_name == "mallory/alice"
            mallory.publish("plant/x", b"denied")
            await mallory.flush()
            ports = {port.name: port.counters for port in (await node.snapshot()).ports}
            assert set(ports) == {"alice", "mallory"}
            assert ports["mallory"]["drop_not_permitted"] == 1
            assert ports["alice"]["drop_not_permitted"] == 0
        finally:
            await alice.close()
            await mallory.close()


async def test_a_client_is_told_why_a_certificate_does_not_do(keys: Keys) -> None:
    """In the words of the table at the end of Secure a mesh."""
    keys.authority.issue("n1", "node", datetime.now(UTC), hosts=["west.example.org"])
    ca = keys.folder / "ca"
    async with running(keys.toml("n1"), dev=False) as (node,):
        with pytest.raises(ChappeError, match="its certificate is for other addresses; issue it with `--san`"):
            await chappe.connect(node.url, tls=ca / "ca.pem", reconnect=False)
        Authority.create(keys.folder / "other", datetime.now(UTC))
        with pytest.raises(ChappeError, match="not issued by an authority in our `ca` file"):
            await chappe.connect(node.url, tls=keys.folder / "other" / "ca.pem", reconnect=False)


async def test_a_session_ends_when_its_token_does(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0"), dev=False) as (node,):
        client = await WireClient.open(node.url, token=keys.token("alice", ttl_s=2))
        await client.until(client.closed.is_set)
        await client.close()
        assert client.refused is not None
        assert (client.refused.code, "expired" in client.refused.reason) == ("identity", True)


async def test_a_reload_ends_the_sessions_of_revoked_tokens_and_certificates(keys: Keys) -> None:
    text = keys.toml("n1")
    async with running(text, dev=False) as (node,):
        eve = await WireClient.open(node.url, tls=keys.context(), token=keys.token("eve"))
        dan = await WireClient.open(node.url, tls=keys.context("dan"))
        alice = await WireClient.open(node.url, tls=keys.context("alice"))
        try:
            (keys.folder / "revoked").write_text("name:eve\n")
            keys.authority.revoke("dan", datetime.now(UTC))
            await node.reload(parse(text))
            await eve.until(eve.closed.is_set)
            await dan.until(dan.closed.is_set)
            assert eve.refused is not None
            assert dan.refused is not None
            assert "revoked" in eve.refused.reason
            assert "revoked" in dan.refused.reason
            assert isinstance(await alice.ask(control.List, what="variables"), control.Listing)
        finally:
            for client in (eve, dan, alice):
                await client.close()


async def test_a_reload_ends_the_sessions_whose_rights_were_taken_away(keys: Keys) -> None:
    async with running(keys.toml("n1", "tcp://127.0.0.1:0", RULES), dev=False) as (node,):
        alice = await WireClient.open(node.url, token=keys.token("alice"))
        bob = await WireClient.open(node.url, token=keys.token("bob"))
        try:
            alice.publish("plant/x", b"")
            await alice.flush()
            await bob.register("bob/x")
            await node.reload(parse(keys.toml("n1", "tcp://127.0.0.1:0", RULES.replace("alice", "anna"))))
            await alice.until(alice.closed.is_set)
            assert alice.refused is not None
            assert 'may not publish "plant/x"' in alice.refused.reason
            await bob.register("bob/y")
        finally:
            await alice.close()
            await bob.close()


@pytest.mark.spec("NS-073")
async def test_nodes_trust_each_other_by_certificate(keys: Keys) -> None:
    port = free_port()
    path = '[[path]]\nvariables = "#"\nto = ["n2"]\n[[topic_route]]\npattern = "#"\nto = ["n2"]\n'
    peer = f'[[peer]]\nname = "n2"\nurl = "tls://127.0.0.1:{port}"\n'
    rules = '[[rule]]\naction = ["publish", "subscribe", "register", "watch"]\npattern = "#"\n'
    first = keys.toml("n1", "tls://127.0.0.1:0", peer + path + rules)
    second = keys.toml("n2", f"tls://127.0.0.1:{port}", rules)
    async with running(second, first, dev=False) as (last, begin):
        await eventually(lambda: all(peer.connection is not None for peer in begin.peers))
        alice = await WireClient.open(begin.url, tls=keys.context("alice"))
        bob = await WireClient.open(last.url, tls=keys.context("bob"))
        try:
            await bob.subscribe("x")
            variable = await alice.register("p/v")
            await bob.watch("p/v", wait_ns=30_000_000_000)
            alice.publish("x", b"hello")
            alice.publish_status(variable, 1.0)
            await bob.until(lambda: bool(bob.events) and bool(bob.records))
        finally:
            await alice.close()
            await bob.close()


async def test_a_node_with_the_name_of_another_is_not_dialled_into_the_mesh(keys: Keys) -> None:
    port = free_port()
    peer = f'[[peer]]\nname = "n2"\nurl = "tls://127.0.0.1:{port}"\n'
    async with running(keys.toml("n3", f"tls://127.0.0.1:{port}"), keys.toml("n1", rules=peer), dev=False) as (_, node):
        await eventually(lambda: all(peer.problem for peer in node.peers))
        (link,) = node.peers
        assert "is node 'n3', not 'n2'" in link.problem
        assert link.connection is None


async def test_the_present_certificate_is_shown_after_a_reload(keys: Keys) -> None:
    text = keys.toml("n1")
    async with running(text, dev=False) as (node,):

        async def serial() -> str:
            client = await WireClient.open(node.url, tls=keys.context("alice"))
            try:
                shown = client._writer.get_extra_info("peercert")
                return str(shown["serialNumber"])
            finally:
                await client.close()

        before = await serial()
        await asyncio.to_thread(keys.authority.renew, "n1", datetime.now(UTC))
        assert await serial() == before
        await node.reload(parse(text))
        assert await serial() != before
