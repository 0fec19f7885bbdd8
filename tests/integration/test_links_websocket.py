"""WebSocket links and the ways through proxies, on real sockets; what strangers send there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, Pong, Request, TextMessage

import chappe
from chappe.errors import ConfigError, LinkError, RefusedError, TimeoutExpired
from chappe.links.address import Address, parse
from chappe.links.dial import dial
from chappe.links.handshake import accept_handshake, connect_handshake
from chappe.links.link import Raw, control_frame
from chappe.links.listen import Listener, listen
from chappe.links.options import LinkOptions
from chappe.links.proxy import parse_proxy
from chappe.security.authority import Authority
from chappe.wire.control import Hello, Welcome
from chappe.wire.frames import PREAMBLE
from tests.support.commands import chappe as chappe_command
from tests.support.commands import rows
from tests.support.nodes import eventually, free_port, running
from tests.support.proxyserver import ProxyServer, proxy_server

HELLO = Hello(role="client", name="c", session=b"c" * 16)


@contextlib.asynccontextmanager
async def served(url: str, options: LinkOptions | None = None) -> AsyncIterator[Listener]:
    """A listener that welcomes everybody and then sends back what comes."""
    raws: list[Raw] = []

    async def echo(raw: Raw) -> None:
        raws.append(raw)
        await accept_handshake(raw, lambda _: Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16), 2.0)
        while data := await raw.read_some():
            raw.write(data)
        raw.close()

    listener = await listen(parse(url), echo, options=options)
    try:
        yield listener
    finally:
        await listener.close()
        for raw in raws:
            raw.abort()


async def spoken_through(address: Address, proxy: ProxyServer, credentials: str = "") -> None:
    """Both ends have understood each other through the proxy."""
    raw = await dial(address, proxy=parse_proxy(f"http://{credentials}127.0.0.1:{proxy.port}"))
    assert (await connect_handshake(raw, HELLO)).name == "n"
    raw.write(b"x" * 100_000)
    got = b""
    while len(got) < 100_000:
        got += await raw.read_some()
    assert got == b"x" * 100_000
    raw.close()


@pytest.mark.spec("MR-029", "MR-031", "MR-032")
@pytest.mark.parametrize("scheme", ["ws", "tcp"])
@pytest.mark.parametrize(
    ("door", "algorithm", "credentials"),
    [("none", "", ""), ("basic", "", "ada:l%3Aove%20lace@"), ("digest", "MD5", "ada:l%3Aove%20lace@"),
     ("digest", "SHA-256", "ada:l%3Aove%20lace@")],
)  # fmt: skip
async def test_a_link_goes_through_a_proxy(scheme: str, door: str, algorithm: str, credentials: str) -> None:
    async with served(f"{scheme}://127.0.0.1:0") as listener, proxy_server(scheme=door, algorithm=algorithm) as proxy:
        await spoken_through(listener.address, proxy, credentials)
        assert proxy.targets == [f"127.0.0.1:{listener.address.port}"]
        assert proxy.passed > 100_000
        if door != "none":
            assert proxy.authorizations[0] == ""  # nothing is given before it is asked for
        if door == "digest":
            assert proxy.authorizations[-1].startswith("Digest ")
            assert "lace" not in proxy.authorizations[-1]


@pytest.mark.spec("MR-032")
async def test_a_nonce_that_is_too_old_is_replaced_once() -> None:
    async with served("ws://127.0.0.1:0") as listener, proxy_server(scheme="digest", forget_nonces=1) as proxy:
        await spoken_through(listener.address, proxy, "ada:l%3Aove%20lace@")
        assert len(proxy.authorizations) == 3


@pytest.mark.spec("MR-032")
@pytest.mark.parametrize("door", ["basic", "digest"])
async def test_a_wrong_password_is_refused_with_a_reason_and_not_shown(door: str) -> None:
    async with served("ws://127.0.0.1:0") as listener, proxy_server(scheme=door, forget_nonces=-1) as proxy:
        with pytest.raises(RefusedError, match="refuses user 'ada'") as caught:
            await spoken_through(listener.address, proxy, "ada:wrongword@")
        assert "wrongword" not in str(caught.value)
        assert proxy.targets == []


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", LinkError, "403 Forbidden"),
        (b"HTTP/1.1 200 ok\r\nX: " + b"x" * 100_000, LinkError, "does not speak HTTP"),
        (b"\x00" * 100, LinkError, "does not speak HTTP"),
        (b"HTTP/1.1 200 ok\r\n\r\nsurprise", LinkError, "before it was asked"),
        (b"HTTP/1.1 20", TimeoutExpired, "within 0.3 s"),
    ],
)
async def test_a_hostile_proxy_is_given_up(answer: bytes, error: type[Exception], reason: str) -> None:
    async with proxy_server(answer=answer) as proxy:
        options = LinkOptions(connect_timeout_s=0.3 if error is TimeoutExpired else 30)
        with pytest.raises(error, match=reason):
            await dial(parse("ws://127.0.0.1:1"), proxy=parse_proxy(proxy.url), options=options)


async def test_a_proxy_or_a_target_that_is_not_there_is_named() -> None:
    with pytest.raises(LinkError, match=r"proxy http://127\.0\.0\.1:1.*refused"):
        await dial(parse("ws://127.0.0.1:2"), proxy=parse_proxy("http://127.0.0.1:1"))
    async with proxy_server() as proxy:
        with pytest.raises(LinkError, match="502 Bad Gateway"):
            await dial(parse("ws://127.0.0.1:1"), proxy=parse_proxy(proxy.url))
    with pytest.raises(ConfigError, match="no proxy leads there"):
        await dial(parse("unix:///tmp/x"), proxy=parse_proxy("http://127.0.0.1:1"))


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "ws://127.0.0.1:1", "tcp://127.0.0.1:1?parallel=2"])
async def test_nothing_plain_goes_to_a_proxy_on_another_machine(url: str) -> None:
    """Behind a proxy `loopback` is the proxy's own: what is plain would cross the network on the way there."""
    with pytest.raises(ConfigError, match=r"is plain and proxy http://192\.0\.2\.1:3128 is on another machine"):
        await dial(parse(url), proxy=parse_proxy("http://192.0.2.1:3128"))


async def said_to(listener: Listener, data: bytes) -> bytes:
    """What a listener answers to bytes, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    writer.write(data)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
UPGRADE = b"Host: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + KEY
OURS = b"Sec-WebSocket-Protocol: chappe.2\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /chappe HTTP/1.1\r\nHost: h\r\n\r\n", b"426"),
        (b"GET /other HTTP/1.1\r\n" + UPGRADE + OURS + b"\r\n", b"404"),
        (b"GET /chappe HTTP/1.1\r\n" + UPGRADE + OURS + b"Origin: https://evil.example\r\n\r\n", b"403"),
        (b"GET /chappe HTTP/1.1\r\n" + UPGRADE + b"\r\n", b"400"),
        (b"POST /chappe HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 5\r\n\r\nhello", b"400"),
        (b"GET /chappe HTTP/1.1\r\nHost: \xff\xfe\r\n" + UPGRADE + b"\r\n", b"400"),
        (b"GET /chappe HTTP/1.1\r\nX: " + b"x" * 100_000, b"400"),
        (PREAMBLE + b"\0\0\0\0\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_websocket_of_ours_gets_an_http_answer(request_bytes: bytes, status: bytes) -> None:
    async with served("ws://127.0.0.1:0") as listener:
        answer = await said_to(listener, request_bytes)
        assert answer.split(b" ")[1] == status
        raw = await dial(listener.address)  # and the next one is served
        await connect_handshake(raw, HELLO)
        raw.close()


async def test_a_request_that_never_ends_is_cut_off() -> None:
    async with served("ws://127.0.0.1:0", LinkOptions(handshake_timeout_s=0.2)) as listener:
        assert await said_to(listener, b"GET /chappe HTTP/1.1\r\nHost: h\r\n") == b""
        assert listener.pending == 0


class Peer:
    """The other end of a WebSocket, one frame at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self.payload = b""
        self.others: list[object] = []

    @classmethod
    async def open(cls, listener: Listener) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", listener.address.port))
        peer.writer.write(peer.protocol.send(Request(host="h", target="/chappe", subprotocols=["chappe.2"])))
        await peer.until(lambda: any(isinstance(event, AcceptConnection) for event in peer.others))
        return peer

    async def until(self, done: object) -> None:
        assert callable(done)
        async with asyncio.timeout(30):
            while not done():
                data = await self.reader.read(65_536)
                if not data:
                    self.others.append("end")
                    continue
                self.protocol.receive_data(data)
                for event in self.protocol.events():
                    if isinstance(event, BytesMessage):
                        self.payload += event.data
                    else:
                        self.others.append(event)

    def send(self, event: Message | Ping | CloseConnection) -> None:
        self.writer.write(self.protocol.send(event))

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def test_message_borders_mean_nothing_and_pings_are_answered() -> None:
    async with served("ws://127.0.0.1:0") as listener:
        peer = await Peer.open(listener)
        whole = PREAMBLE + control_frame(HELLO) + b"after"
        for place in range(len(whole)):
            peer.send(BytesMessage(data=whole[place : place + 1], message_finished=place % 3 == 0))
        peer.send(BytesMessage(data=b"", message_finished=True))
        peer.send(Ping(payload=b"there?"))
        await peer.until(lambda: peer.payload.endswith(b"after"))
        await peer.until(lambda: any(isinstance(e, Pong) and e.payload == b"there?" for e in peer.others))
        await peer.close()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (None, 1003),  # text
        (b"\x82\x05hello", 1002),  # not masked
        (b"\xf2\x85\0\0\0\0hello", 1002),  # reserved bits
        (b"\x89\xff" + b"\0" * 8, 1002),  # a ping that is too long
    ],
)
async def test_frames_that_break_the_rules_end_the_connection_with_a_code(frame: bytes | None, code: int) -> None:
    async with served("ws://127.0.0.1:0") as listener:
        peer = await Peer.open(listener)
        if frame is None:
            peer.send(TextMessage(data="hello"))
        else:
            peer.writer.write(frame)
        await peer.until(lambda: any(isinstance(e, CloseConnection) for e in peer.others))
        [closed] = [event for event in peer.others if isinstance(event, CloseConnection)]
        assert closed.code == code
        await peer.close()


async def test_a_server_that_is_none_is_refused_by_the_one_who_dials() -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(RefusedError, match="HTTP status 200"):
        await dial(parse(f"ws://127.0.0.1:{port}/x"))
    server.close()
    await server.wait_closed()


def node_toml(folder: Path, name: str, port: int, peer: str) -> str:
    """A node with certificates that is reached by WebSocket only."""
    return (
        f'[node]\nname = "{name}"\n[[listen]]\nurl = "wss://127.0.0.1:{port}/mesh"\n'
        f'[tls]\nca = "{folder}/ca.pem"\ncert = "{folder}/{name}.pem"\nkey = "{folder}/{name}.key"\n'
        '[[rule]]\naction = ["publish", "subscribe"]\npattern = "#"\nnames = ["meter"]\n'
        f'{peer}[[topic_route]]\npattern = "#"\nto = ["{"east" if name == "west" else "west"}"]\n'
    )


@pytest.mark.spec("MR-029", "MR-031", "MR-032")
async def test_nodes_and_clients_meet_by_websocket_inside_tls_inside_an_authenticated_tunnel(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", datetime.now(UTC))
    for name in ("west", "east"):
        authority.issue(name, "node", datetime.now(UTC), hosts=["127.0.0.1"])
    authority.issue("meter", "client", datetime.now(UTC))
    folder = tmp_path / "ca"
    west, east = free_port(), free_port()
    async with proxy_server(scheme="digest") as proxy:
        way = f"http://ada:l%3Aove%20lace@127.0.0.1:{proxy.port}"
        listed = '[[peer]]\nname = "east"\n'
        dials = f'[[peer]]\nname = "west"\nurl = "wss://127.0.0.1:{west}/mesh"\nproxy = "{way}"\n'
        tomls = (node_toml(folder, "west", west, listed), node_toml(folder, "east", east, dials))
        tls = (str(folder / "ca.pem"), str(folder / "meter.pem"), str(folder / "meter.key"))
        async with running(*tomls, dev=False) as nodes:
            await eventually(lambda: all(peer.connection for node in nodes for peer in node.peers))
            async with (
                chappe.connect(f"wss://127.0.0.1:{west}/mesh", tls=tls, name="reader", proxy=way) as reader,
                chappe.connect(f"wss://127.0.0.1:{east}/mesh", tls=tls, name="writer", proxy=way) as writer,
            ):
                subscription = await reader.subscribe("secret/#")
                writer.publish("secret/word", b"rosebud")
                async with asyncio.timeout(30):
                    message = await anext(aiter(subscription))
                assert message.body == b"rosebud"
        assert b"rosebud" not in proxy.clear  # TLS is end to end
        assert sorted(set(proxy.targets)) == sorted([f"127.0.0.1:{west}", f"127.0.0.1:{east}"])


@pytest.mark.spec("MR-031")
async def test_a_client_takes_the_proxy_of_the_environment_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running('[[listen]]\nurl = "ws://127.0.0.1:0"\n') as (node,), proxy_server() as proxy:
        monkeypatch.setitem(os.environ, "https_proxy", proxy.url)
        monkeypatch.setitem(os.environ, "no_proxy", "")
        async with chappe.connect(node.url, name="direct"):
            assert proxy.targets == []
        async with chappe.connect(node.url, name="asked", proxy="environment"):
            assert len(proxy.targets) == 1
            assert [connection.session.name for connection in node.connections] == ["asked"]


@pytest.mark.spec("MR-031")
async def test_the_command_line_goes_through_a_proxy() -> None:
    async with running('[[listen]]\nurl = "ws://127.0.0.1:0"\n') as (node,), proxy_server(scheme="basic") as proxy:
        way = f"http://ada:l%3Aove%20lace@127.0.0.1:{proxy.port}"
        done = await asyncio.to_thread(chappe_command, "ls", "transports", "--json", "--url", node.url, "--proxy", way)
        assert [row["kind"] for row in rows(done.stdout)] == ["ws"]
        assert len(proxy.targets) == 1
