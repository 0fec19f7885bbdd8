"""Capabilities over HTTP and in the handshake, and what nodes make of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chappe.errors import ConfigError, LinkError, ProtocolError, TimeoutExpired
from chappe.links.administrative import exchange, parse_site
from chappe.links.options import LinkOptions
from chappe.links.proxy import parse_proxy
from chappe.runtime.node import Node
from chappe.runtime.process import open_web
from tests.support.nodes import eventually, fetch, free_port, running
from tests.support.proxyserver import proxy_server


def west(tmp_path: Path, *kinds: str) -> str:
    urls = {
        "tcp": "tcp://127.0.0.1:0",
        "ws": "ws://127.0.0.1:0/mesh",
        "udp": "udp://127.0.0.1:0",
        "unix": f"unix://{tmp_path}/west",
    }
    listens = "".join(f'[[listen]]\nurl = "{urls[kind]}"\n' for kind in kinds)
    return f'[node]\nname = "west"\n{listens}[metrics]\naddress = "127.0.0.1:{free_port()}"\n'


def east(url: str, more: str = "") -> str:
    return f'[node]\nname = "east"\n[[peer]]\nname = "west"\nurl = {url}\n{more}'


@contextlib.asynccontextmanager
async def web(node: Node) -> AsyncIterator[str]:
    """The pages of a node; their address."""
    served = open_web(node, asyncio.get_running_loop())
    assert served is not None
    try:
        yield f"http://127.0.0.1:{served.port}"
    finally:
        await asyncio.to_thread(served.close)


async def carried(node: Node) -> str:
    """The kind of the link to west."""
    await eventually(lambda: node.peers.channels() == ["west"])
    peer = node.peers.named("west")
    assert peer is not None
    assert peer.connection is not None
    return peer.connection.link.kind


@pytest.mark.spec("MR-043", "MR-044")
async def test_a_node_that_knows_only_a_page_of_another_takes_the_best_link_offered_there(tmp_path: Path) -> None:
    async with running(west(tmp_path, "ws", "tcp", "unix")) as (far,), web(far) as page:
        status, text = await fetch(f"{page}/capabilities")
        assert status == 200
        offered = json.loads(text)
        assert offered["node"] == "west"
        assert sorted(uri.partition(":")[0] for uri in offered["links"]) == ["tcp", "unix", "ws"]
        async with running(east(f'"{page}"')) as (near,):
            assert await carried(near) == "unix"
            peer = near.peers.named("west")
            assert peer is not None
            assert peer.choice.startswith("unix: ranked 1 of unix, tcp, ws for control")


@pytest.mark.spec("MR-120", "MR-044")
async def test_a_preference_or_a_proxy_changes_the_choice(tmp_path: Path) -> None:
    async with running(west(tmp_path, "ws", "tcp", "unix")) as (far,), web(far) as page, proxy_server() as proxy:
        async with running(east(f'"{page}"', 'prefer = ["ws"]\n')) as (near,):
            assert await carried(near) == "ws"
        async with running(east(f'"{page}"', f'proxy = "{proxy.url}"\n')) as (near,):
            assert await carried(near) == "tcp"  # no proxy leads to a Unix socket
            assert len(proxy.targets) == 2  # the page, and the link


@pytest.mark.spec("MR-044")
async def test_of_several_urls_one_that_answers_is_found(tmp_path: Path) -> None:
    async with running(west(tmp_path, "ws")) as (far,):
        urls = json.dumps([f"tcp://127.0.0.1:{free_port()}", far.url])
        async with running(east(urls)) as (near,):
            assert await carried(near) == "ws"


@pytest.mark.spec("MR-043", "MR-048", "MR-025")
@pytest.mark.parametrize(("kinds", "expected"), [(("tcp", "udp"), True), (("tcp",), False)])
async def test_the_handshake_tells_whether_status_can_go_by_datagrams(
    tmp_path: Path, kinds: tuple[str, ...], expected: bool
) -> None:
    async with running(west(tmp_path, *kinds)) as (far,), running(east(f'"{far.url}"', 'data = "auto"\n')) as (near,):
        assert await carried(near) == "tcp"
        peer = near.peers.named("west")
        assert peer is not None
        assert peer.theirs is not None
        assert peer.theirs.uris() == tuple(str(address) for address in far.addresses)
        if expected:
            await eventually(lambda: "status_out" in near.datagrams.counters(peer.port))
        else:
            assert "status_out" not in near.datagrams.counters(peer.port)


@contextlib.asynccontextmanager
async def page_that_says(answer: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if answer.endswith(b"..."):
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (b"HTTP/1.1 404 no\r\n\r\n", LinkError, "status 404"),
        (b"SSH-2.0\r\n\r\n", LinkError, "does not speak HTTP"),
        (b"HTTP/1.1 200 ok\r\nContent-Length: 5\r\n\r\nhi", LinkError, "does not speak HTTP|ended before"),
        (b"HTTP/1.1 200 ok\r\nContent-Length: 999999\r\n\r\n" + b"x" * 100_000, LinkError, "more than 65536"),
        (b"HTTP/1.1 200 ok\r\nContent-Length: 2\r\n\r\nhi", ProtocolError, "not readable"),
        (b"HTTP/1.1 200 ok\r\nContent-Length: 2\r\n\r\n...", TimeoutExpired, "within 0.3 s"),
    ],
)
async def test_a_page_that_lies_is_given_up_with_a_reason(answer: bytes, error: type[Exception], reason: str) -> None:
    padded = answer if not answer.endswith(b"...") else answer.replace(b"Content-Length: 2", b"Content-Length: 9")
    async with page_that_says(padded) as url:
        options = LinkOptions(connect_timeout_s=0.3 if error is TimeoutExpired else 30)
        with pytest.raises(error, match=reason):
            await exchange(parse_site(url), options=options)


async def test_what_is_no_page_is_said_before_anything_is_dialled() -> None:
    for url in ("http://", "http://u:p@h:1/x", "http://h:99999", "ftp://h"):
        with pytest.raises(ConfigError, match="write it like http"):
            parse_site(url)
    with pytest.raises(ConfigError, match="needs certificates"):
        await exchange(parse_site("https://127.0.0.1:1"))
    with pytest.raises(LinkError, match="refused"):
        await exchange(parse_site("http://127.0.0.1:1"), proxy=parse_proxy("http://127.0.0.1:1"))
