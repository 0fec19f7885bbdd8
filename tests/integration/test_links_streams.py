"""What every stream transport promises, between two stacks over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from chappe.errors import LinkError, ProtocolError, RefusedError, VersionError
from chappe.links._socket import Flusher
from chappe.links.address import parse
from chappe.links.handshake import Decide, accept_handshake, connect_handshake
from chappe.links.kinds import encrypts
from chappe.links.stream import FlushTick, Link, LinkOptions, Listener, Raw, control_frame, dial, listen
from chappe.links.striping import WINDOW
from chappe.wire.control import CAPABILITIES, MAJOR, MINOR, Hello, Refused, Welcome, decode
from chappe.wire.frames import PREAMBLE, Kind
from tests.support.rawframes import read_frame
from tests.unit.links.tapes import Tape
from tests.unit.links.wait import until

TURNS = 5  # a loop that stood still may find a timer due before what it could read and write
HELLO = Hello(role="client", name="c", session=b"c" * 16, capabilities=CAPABILITIES)
SCHEMES = ("tcp", "unix", "tls", "ws", "wss", "tcp?parallel=3", "tls?parallel=2")


async def still(reading: Callable[[], int]) -> int:
    """The reading, once it is not nothing and has not changed for some turns of the loop."""
    last, same = 0, 0
    async with asyncio.timeout(30):
        while same < TURNS:
            await asyncio.sleep(0.01)
            now = reading()
            same = same + 1 if now == last != 0 else 0
            last = now
    return last


def welcome(_: Hello) -> Welcome:
    return Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16, capabilities=CAPABILITIES)


@dataclass
class Place:
    """A tape with its flush tick, and the links attached to it."""

    tape: Any
    tick: FlushTick = field(init=False)
    links: list[Link] = field(default_factory=list)
    lost: list[Exception | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tick = FlushTick(asyncio.get_running_loop(), Flusher(self.tape))

    def attach(self, raw: Raw, port: int) -> Link:
        link = raw.attach(self.tape, port, self.tick, self.lost.append)
        self.links.append(link)
        return link

    def send(self, port: int, data: bytes) -> None:
        self.tape.queue(port, data)
        self.tick.soon()

    def fed(self, port: int) -> bytes:
        return bytes(self.tape.fed.get(port, b""))

    def fed_bytes(self, port: int) -> int:
        return len(self.tape.fed.get(port, b""))

    async def close(self) -> None:
        for link in self.links:
            link.abort()
            await link.wait_closed()


@dataclass
class Secrets:
    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    client = ssl.create_default_context()
    authority.issue_cert("meter-7.example.org").configure_cert(client)
    authority.configure_trust(client)
    return Secrets(server, client)


@dataclass
class World:
    """A listener of one scheme, its place, and a way to connect."""

    node: Place
    client: Place
    listener: Listener
    tls: ssl.SSLContext | None
    options: LinkOptions

    async def dial(self) -> Raw:
        return await dial(self.listener.address, tls=self.tls, options=self.options)

    async def connect(self, port: int = 0) -> Link:
        count = len(self.node.links)
        raw = await self.dial()
        await connect_handshake(raw, HELLO)
        link = self.client.attach(raw, port)
        await until(lambda: len(self.node.links) > count)
        return link


Open = Callable[..., Awaitable[World]]


@pytest.fixture
async def world(tmp_path: Path, secrets: Secrets) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def open_world(
            scheme: str, *, options: LinkOptions | None = None, node: Any = None, client: Any = None,
            decide: Decide = welcome,
        ) -> World:  # fmt: skip
            name, mark, query = scheme.partition("?")
            address = parse(f"unix://{tmp_path}/s" if name == "unix" else f"{name}://127.0.0.1:0{mark}{query}")
            place = Place(node or Tape(echo=True))

            async def accepted(raw: Raw) -> None:
                await accept_handshake(raw, decide)
                place.attach(raw, len(place.links))

            tls = encrypts(address)
            options = options or LinkOptions()
            listener = await listen(address, accepted, tls=secrets.server if tls else None, options=options)
            made = World(place, Place(client or Tape()), listener, secrets.client if tls else None, options)
            stack.push_async_callback(made.node.close)
            stack.push_async_callback(made.client.close)
            stack.push_async_callback(listener.close)
            return made

        yield open_world


@pytest.mark.spec("NS-007", "NS-012", "MR-023", "MR-024", "MR-028", "MR-029")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_bytes_go_there_and_back(world: Open, scheme: str) -> None:
    made = await world(scheme)
    link = await made.connect()
    wanted = bytes(range(256)) * 4096 * 4
    for place in range(0, len(wanted), 300_000):
        made.client.send(0, wanted[place : place + 300_000])
    await until(lambda: made.client.fed_bytes(0) == len(wanted))
    assert made.client.fed(0) == wanted
    counters = link.counters()
    assert counters["bytes_out"] == counters["bytes_in"] == len(wanted)
    assert made.client.lost == []


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_tiny_buffers_and_partial_writes_lose_nothing(world: Open, scheme: str) -> None:
    tiny = LinkOptions(send_buffer=4096, receive_buffer=4096)
    made = await world(scheme, options=tiny, node=Tape(echo=True, pieces=37), client=Tape(pieces=1013))
    await made.connect()
    wanted = b"".join(number.to_bytes(4, "big") for number in range(100_000))
    made.client.send(0, wanted)
    await until(lambda: made.client.fed_bytes(0) == len(wanted))
    assert made.client.fed(0) == wanted


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_bytes_cut_anywhere_arrive_whole(world: Open, scheme: str) -> None:
    made = await world(scheme, options=LinkOptions(budget=7))
    raw = await made.dial()
    whole = PREAMBLE + control_frame(HELLO) + b"after the hello"
    for place in range(len(whole)):
        raw.write(whole[place : place + 1])
        if place % 5 == 0:
            await asyncio.sleep(0)
    await until(lambda: made.node.fed(0) == b"after the hello")
    assert await raw.read_preamble() == PREAMBLE
    kind, payload = await read_frame(raw)
    assert kind == Kind.CONTROL
    assert isinstance(decode(payload), Welcome)
    raw.abort()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_end_of_one_side_is_told_to_the_other_once(world: Open, scheme: str) -> None:
    made = await world(scheme)
    link = await made.connect()
    made.client.send(0, b"last words")
    link.close()
    await until(lambda: made.node.lost == [None])
    assert made.node.fed(0) == b"last words"
    assert made.client.lost == []  # whoever closes knows
    assert not made.node.links[0].open
    await link.wait_closed()


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
async def test_a_reset_is_told_as_an_error(world: Open, scheme: str) -> None:
    made = await world(scheme)
    link = await made.connect()
    node_link = made.node.links[0]
    node_link.pause_reading()
    made.client.send(0, b"x" * 1000)
    await until(lambda: made.client.tape.pending(0) == 0)
    node_link.abort()  # closing with unread bytes sends a reset
    await until(lambda: len(made.client.lost) == 1)
    assert isinstance(made.client.lost[0], ConnectionResetError)
    assert not link.open


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_bad_bytes_are_answered_with_a_reason_and_touch_no_other_link(world: Open, scheme: str) -> None:
    made = await world(scheme, node=Tape(echo=True, reject=0xFF))
    bad, good = await made.connect(0), await made.connect(1)
    made.client.send(0, b"fine\xff")
    await until(lambda: len(made.node.lost) == 1 and len(made.client.lost) == 1)
    assert isinstance(made.node.lost[0], ProtocolError)
    refused = decode(made.client.fed(0)[4:])
    assert isinstance(refused, Refused)
    assert "0xff" in refused.reason
    assert not bad.open
    made.client.send(1, b"still here")
    await until(lambda: made.client.fed(1) == b"still here")
    assert good.open


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_close_writes_what_is_queued_and_then_the_reason(world: Open, scheme: str) -> None:
    made = await world(scheme, node=Tape())
    await made.connect()
    made.node.tape.queue(0, b"q" * 400_000)
    made.node.links[0].close(b"<reason>")
    await until(lambda: len(made.client.lost) == 1)
    assert made.client.fed(0) == b"q" * 400_000 + b"<reason>"
    await made.node.links[0].wait_closed()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_reader_that_pauses_makes_the_other_side_keep_its_bytes(world: Open, scheme: str) -> None:
    """Nothing but the bounded queue of the stack grows, and the window of a parallel link, which must send it again."""
    made = await world(scheme, node=Tape(), options=LinkOptions(send_buffer=65_536, receive_buffer=65_536))
    link = await made.connect()
    made.node.links[0].pause_reading()
    made.client.send(0, b"p" * 8_000_000)
    written = await still(lambda: link.counters()["bytes_out"])
    assert 0 < written < (WINDOW + 100_000 if "parallel" in scheme else 1_500_000)
    assert made.client.tape.pending(0) == 8_000_000 - written
    made.client.send(0, b"!")  # dirty again while full: must not disturb
    await asyncio.sleep(0)
    made.node.links[0].resume_reading()
    await until(lambda: made.node.fed_bytes(0) == 8_000_001)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_link_that_is_held_writes_nothing_until_it_is_released(world: Open, scheme: str) -> None:
    """Also when it was full at that moment, and room comes while it is held."""
    made = await world(scheme, node=Tape(), options=LinkOptions(send_buffer=65_536, receive_buffer=65_536))
    link = await made.connect()
    made.node.links[0].pause_reading()
    made.client.send(0, b"h" * 9_000_000)
    written = await still(lambda: link.counters()["bytes_out"])
    link.hold()
    link.hold()
    made.node.links[0].resume_reading()
    await until(lambda: made.node.fed_bytes(0) == written)
    made.client.send(0, b"!")
    await asyncio.sleep(0.02)  # nothing to wait for: nothing is to happen
    assert made.node.fed_bytes(0) == link.counters()["bytes_out"] == written
    link.release()
    await until(lambda: made.node.fed_bytes(0) == 9_000_001)
    assert made.node.fed(0) == b"h" * 9_000_000 + b"!"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_port_can_go_on_over_a_new_connection(world: Open, scheme: str) -> None:
    made = await world(scheme)
    first = await made.connect(0)
    made.client.send(0, b"one")
    await until(lambda: made.client.fed(0) == b"one")
    made.node.links[0].close()
    await until(lambda: made.client.lost == [None])
    made.client.send(0, b"two")  # waits: nothing carries the port
    await asyncio.sleep(0)
    assert made.client.tape.pending(0) == 3
    second = await made.connect(0)
    first.abort()  # an old link does not take the port from the new one
    await until(lambda: made.client.fed(0) == b"onetwo")
    assert second.open


@pytest.mark.spec("NS-012")
async def test_tls_shows_the_verified_certificate_and_refuses_strangers(world: Open, secrets: Secrets) -> None:
    made = await world("tls")
    raw = await made.dial()
    assert raw.certificate is not None
    assert raw.certificate_der is not None
    assert ("IP Address", "127.0.0.1") in raw.certificate["subjectAltName"]
    raw.abort()
    stranger = trustme.CA()
    context = ssl.create_default_context()
    stranger.configure_trust(context)
    with pytest.raises(LinkError, match="not issued by an authority in our `ca` file"):
        await dial(made.listener.address, tls=context)
    impostor = ssl.create_default_context()
    impostor.check_hostname = False
    impostor.verify_mode = ssl.CERT_NONE
    stranger.issue_cert("meter-7.example.org").configure_cert(impostor)
    with pytest.raises(LinkError):
        await connect_handshake(await dial(made.listener.address, tls=impostor), HELLO)
    await until(lambda: made.listener.tls_failures >= 2)
    assert made.node.links == []


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_another_major_version_is_refused_and_both_are_named(world: Open, scheme: str) -> None:
    made = await world(scheme)
    raw = await made.dial()
    raw.write(b"CHAPPE\x01\x02")
    assert await raw.read_preamble() == PREAMBLE
    _, payload = await read_frame(raw)
    refused = decode(payload)
    assert isinstance(refused, Refused)
    assert refused.code == "version"
    assert "1.2" in refused.reason
    assert f"{MAJOR}.{MINOR}" in refused.reason
    assert await raw.read_some() == b""
    raw.close()


async def test_a_node_of_another_major_version_is_named_by_the_connector() -> None:
    async def future_node(raw: Raw) -> None:
        raw.write(b"CHAPPE\x03\x01")
        await raw.read_preamble()
        raw.close()

    listener = await listen(parse("tcp://127.0.0.1:0"), future_node)
    raw = await dial(listener.address)
    with pytest.raises(VersionError, match=rf"127\.0\.0\.1.*3\.1.*{MAJOR}\.{MINOR}"):
        await connect_handshake(raw, HELLO)
    await listener.close()


@pytest.mark.spec("MR-036")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_reason_of_a_refusal_reaches_the_one_who_connects(world: Open, scheme: str) -> None:
    made = await world(scheme, decide=lambda _: Refused(reason="the limit is 0 connections", code="limit"))
    with pytest.raises(RefusedError, match="the limit is 0 connections"):
        await connect_handshake(await made.dial(), HELLO)
    assert made.node.links == []


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_link_that_is_cut_is_told_once_and_leaves_nothing(world: Open, scheme: str) -> None:
    made = await world(scheme)
    link = await made.connect()
    made.node.links[0].abort()
    await until(lambda: len(made.client.lost) == 1)
    await link.wait_closed()
    assert not link.open
    assert len(made.client.lost) == 1
    assert made.node.lost == []  # whoever cuts knows


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_frame_as_long_as_a_frame_can_be_arrives_whole(world: Open, scheme: str) -> None:
    made = await world(scheme)
    await made.connect()
    frame = b"\x02\xff\xff\xff" + bytes(range(256)) * 65_535 + bytes(255)
    made.client.send(0, frame)
    await until(lambda: made.client.fed_bytes(0) == len(frame))
    assert made.client.fed(0) == frame


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_idle_link_does_nothing_and_is_there_when_it_is_needed(world: Open, scheme: str) -> None:
    made = await world(scheme)
    link = await made.connect()
    made.client.send(0, b"one")
    await until(lambda: made.client.fed(0) == b"one")
    before, flushes = link.counters(), made.client.tick.flusher.flushes
    await asyncio.sleep(0.1)  # nothing to wait for: nothing is to happen
    assert link.counters() == before
    assert made.client.tick.flusher.flushes == flushes
    made.client.send(0, b"two")
    await until(lambda: made.client.fed(0) == b"onetwo")


@pytest.mark.spec("MR-037")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_link_says_what_protects_it(world: Open, scheme: str) -> None:
    made = await world(scheme)
    link = await made.connect()
    wanted = {"tls": "TLSv1.3", "wss": "TLSv1.3", "unix": "this machine"}.get(scheme.partition("?")[0])
    for end in (link, made.node.links[0]):
        assert end.security.secure == (wanted is not None)
        assert end.security.mechanism.startswith(wanted or "none")
        assert end.local


async def test_nobody_there_is_an_error_with_the_address(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"tcp://127\.0\.0\.1:1: Connection refused"):
        await dial(parse("tcp://127.0.0.1:1"))
    with pytest.raises(LinkError, match="No such file"):
        await dial(parse(f"unix://{tmp_path}/none"))
