"""The client and its connection: cut, silent, killed, secured, refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import chappe
from chappe.errors import DeniedError, LinkError, RefusedError, TimeoutExpired
from chappe.links.link import control_frame
from chappe.security.authority import Authority
from chappe.security.tokens import create_key, issue
from chappe.wire.control import Refused, Welcome
from chappe.wire.frames import PREAMBLE
from tests.support.nodes import NodeProcess, eventually, free_port, running

LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


class Relay:
    """A TCP relay that can cut its connections or stop passing bytes on."""

    def __init__(self, target: str) -> None:
        self._host, port = target.removeprefix("tcp://").rsplit(":", 1)
        self._port = int(port)
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.passed = 0  # bytes from the client to the node
        self.shut = False  # new connections are ended at once
        self.budget: int | None = None  # after so many bytes of the client the connection is cut

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.shut:
            writer.transport.abort()
            return
        near, far = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far]
        for source, sink, counts in ((reader, far, True), (near, writer, False)):
            task = asyncio.create_task(self._pass(source, sink, counts))
            self._tasks.add(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(4096):
                if counts:
                    self.passed += len(piece)
                    if self.budget is not None and self.passed > self.budget:
                        self.budget = None
                        self.cut()
                        return
                sink.write(piece)
                await sink.drain()
        sink.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()


@contextlib.asynccontextmanager
async def relayed() -> AsyncIterator[tuple[str, str, Relay]]:
    """The address of a node, the address of a relay to it, and the relay."""
    async with running(LISTEN) as (node,):
        relay = Relay(node.url)
        try:
            yield node.url, await relay.start(), relay
        finally:
            await relay.close()


@pytest.mark.spec("GS-034", "GS-035")
async def test_after_a_cut_everything_is_registered_again_and_streams_resume() -> None:
    async with relayed() as (url, through, relay), chappe.connect(url) as other, chappe.connect(through) as client:
        downs: list[object] = []
        ups: list[bool] = []
        client.on_disconnect = downs.append
        client.on_reconnect = lambda: ups.append(True)
        remote = await other.register("other", "var", rate=30)
        watch = await client.watch("other", "var")
        mine = await client.register("mine", "var", rate=30)
        subscription = await client.subscribe("a/#")
        relay.shut = True
        relay.cut()
        await eventually(lambda: client.state == "reconnecting")
        assert mine.publish(1.0) is False
        assert client.publish("a/b", b"while down") is True
        relay.shut = False
        await client.flush(10)
        await eventually(lambda: mine.active and watch.active and ups)
        seen = await other.watch("mine", "var")
        assert mine.publish(2.0) is True
        assert (await anext(seen)).value == 2.0
        remote.publish(3.0)
        assert (await anext(watch)).value == 3.0
        other.publish("a/c", b"after")
        assert {(await anext(subscription)).body for _ in range(2)} == {b"while down", b"after"}
        assert (len(downs), len(ups), client.reconnections) == (1, 1, 1)


async def test_events_cut_at_any_byte_arrive_once_and_in_order() -> None:
    async with relayed() as (url, through, relay), chappe.connect(url) as other:
        subscription = await other.subscribe("a/#")
        async with chappe.connect(through) as client:
            count = 5_000
            for number in range(count):
                if number % 1000 == 500:
                    await client.flush(10)  # the cut before is over, so that each of them ends a connection
                    relay.passed, relay.budget = 0, 7_001 + number
                while not client.publish(f"a/{number % 5}", b"%d" % number):
                    await client.drain()
                if number % 10 == 0:
                    await asyncio.sleep(0)
            await client.flush(10)
            assert client.reconnections >= 3
            assert client.counters()["resent"] > 0
        got = []
        async with asyncio.timeout(30):
            while len(got) < count:
                got.append(int((await anext(subscription)).body))
        assert got == list(range(count))
        assert len(subscription) == 0


@pytest.mark.spec("GS-035")
async def test_streams_resume_after_the_node_was_killed_and_started_again(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'[node]\nname = "n1"\n[[listen]]\nurl = "tcp://127.0.0.1:{free_port()}"\n')
    node = await NodeProcess.start(file, "--dev")
    try:
        async with chappe.connect(node.urls[0]) as one, chappe.connect(node.urls[0]) as two:
            variable = await one.register("pub", "var", rate=30)
            watch = await two.watch("pub", "var")
            subscription = await two.subscribe("a")
            await node.end()
            await eventually(lambda: "reconnecting" == one.state == two.state)
            node = await NodeProcess.start(file, "--dev")
            await eventually(lambda: variable.active and watch.active)
            assert variable.publish(5.0)
            assert (await anext(watch)).value == 5.0
            one.publish("a", b"again")
            assert (await anext(subscription)).body == b"again"
    finally:
        await node.end()


async def test_a_silent_node_is_given_up_after_three_heartbeats() -> None:
    silent = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        welcome = Welcome(name="mute", session=bytes(16), issuer=b"i" * 16, heartbeat_ns=50_000_000)
        writer.write(PREAMBLE + control_frame(welcome))
        await silent.wait()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    errors: list[Exception | None] = []
    began = time.monotonic()
    client = await chappe.connect(url, heartbeat_s=0.05, reconnect=False)
    client.on_disconnect = errors.append
    subscription_error = asyncio.create_task(_error_of(client.flush()))
    await eventually(lambda: errors)
    assert time.monotonic() - began > 0.15
    assert "silent for 3 heartbeats" in str(errors[0])
    assert isinstance(await subscription_error, LinkError)
    assert client.state == "closed"
    silent.set()
    server.close()
    await server.wait_closed()


async def _error_of(work: object) -> Exception | None:
    try:
        await work  # type: ignore[misc]
    except Exception as error:
        return error
    return None


async def test_requests_that_are_not_answered_expire() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(PREAMBLE + control_frame(Welcome(name="deaf", session=bytes(16), issuer=b"i" * 16)))
        with contextlib.suppress(OSError):
            while await reader.read(1000):
                pass
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = await chappe.connect(url, timeout_s=0.1)
    for work in (client.subscribe("a"), client.register("p", "v"), client.watch("p", "v"), client.list("topics")):
        with pytest.raises(TimeoutExpired, match="no answer within"):
            await work
    client.publish("a", b"x")
    with pytest.raises(TimeoutExpired, match="did not confirm"):
        await client.flush(0.05)
    await client.close(flush=False)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (PREAMBLE + control_frame(Refused(reason="no place", code="limit")), "no place"),
        (b"CHAPPE\x09\x00", "version 9.0"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not a Chappe peer"),
    ],
)
async def test_a_refusal_says_why(answer: bytes, reason: str) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with contextlib.suppress(OSError):
            await reader.read(1000)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(chappe.errors.ChappeError, match=reason):
        await chappe.connect(url)
    server.close()
    await server.wait_closed()


async def test_unix_sockets(tmp_path: Path) -> None:
    toml = f'[[listen]]\nurl = "unix://{tmp_path}/node.sock"\n'
    async with running(toml) as (node,), chappe.connect(node.url) as client:
        subscription = await client.subscribe("a")
        client.publish("a", b"x")
        assert (await anext(subscription)).body == b"x"


RULES = """
[[rule]]
action = ["publish", "subscribe"]
pattern = "plant/#"
[[rule]]
action = ["register", "watch"]
pattern = "{name}/#"
"""


async def test_tls_with_a_certificate_or_token_and_what_no_rule_allows(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority.create(tmp_path / "ca", now)
    authority.issue("n1", "node", now, hosts=["127.0.0.1"])
    authority.issue("alice", "client", now)
    key = create_key(tmp_path / "tokens")
    ca = tmp_path / "ca"
    toml = (
        '[node]\nname = "n1"\n[[listen]]\nurl = "tls://127.0.0.1:0"\n'
        f'[tls]\nca = "{ca}/ca.pem"\ncert = "{ca}/n1.pem"\nkey = "{ca}/n1.key"\n'
        f'[tokens]\nkeys = ["{tmp_path}/tokens/token.pub"]\n' + RULES
    )
    async with running(toml, dev=False) as (node,):
        with pytest.raises(RefusedError, match="must bring a certificate or a token"):
            await chappe.connect(node.url, name="mallory", tls=f"{ca}/ca.pem")
        async with (
            chappe.connect(node.url, name="alice", tls=(f"{ca}/ca.pem", f"{ca}/alice.pem", f"{ca}/alice.key")) as alice,
            chappe.connect(
                node.url, name="bob", tls=f"{ca}/ca.pem", token=lambda: issue(key, "bob", "client", 60, time.time_ns())
            ) as bob,
        ):
            subscription = await bob.subscribe("plant/#")
            for number in range(20_000):
                await alice.publish_wait("plant/x", b"%d" % number)
            for number in range(20_000):
                assert int((await anext(subscription)).body) == number
            with pytest.raises(DeniedError, match="office"):
                await bob.subscribe("office/#")
            with pytest.raises(DeniedError, match="alice/var"):
                await bob.register("alice", "var")
            denials: list[Exception] = []
            bob.on_error = denials.append
            bob.publish("office/secret", b"x")
            await eventually(lambda: denials)
            assert isinstance(denials[0], DeniedError)
            assert "office/secret" in str(denials[0])
            with pytest.raises(DeniedError, match="office/secret"):
                await bob.flush()
