"""TLS handshakes: computed in threads, by turns of hosts, from whole records, and bounded in bytes and time."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import ssl
import struct
import termios
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from chappe.links import tls
from chappe.links.tls import RECORD_MAX, HandshakeThreads, Step, start_tls, whole_records
from chappe.links.transported import accepted
from chappe.security.tls import handshake_reason
from tests.unit.links.tlspairs import HOST, Keys, Sink, sockets, transports
from tests.unit.links.wait import until


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


class Recording(HandshakeThreads):
    """Threads that keep the host of each step they are given."""

    def __init__(self, threads: int = 2) -> None:
        super().__init__(threads)
        self.hosts: list[str] = []

    def submit(self, host: str, step: Step) -> Future[bool]:
        self.hosts.append(host)
        return super().submit(host, step)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    made = Recording()
    monkeypatch.setattr(tls, "handshake_threads", lambda: made)
    yield made
    made.close()


class Gate:
    """Lets the first step of a server begin and not end until it is opened."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        context.sni_callback = self._wait

    def _wait(self, _connection: object, _name: object, _context: object) -> None:
        self.entered.set()
        assert self.opened.wait(60)


@contextlib.asynccontextmanager
async def pair(host: str = HOST) -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    ends = sockets(host)
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


def unread(sock: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0])


def first_flight(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST).do_handshake()
    return outgoing.read()


async def test_the_loop_turns_while_a_handshake_computes(keys: Keys) -> None:
    server, client = keys.server(), keys.client()
    gate = Gate(server)
    far, near = Sink(), Sink()
    ours, theirs = sockets()
    both = asyncio.gather(start_tls(ours, server, None, far), start_tls(theirs, client, HOST, near))
    await until(gate.entered.is_set)  # a loop that computed it would be in the gate now
    for _ in range(100):
        await asyncio.sleep(0)
    assert not both.done()
    gate.opened.set()
    await both
    near.transport.write(b"hello")
    await until(lambda: far.data == b"hello")
    near.transport.abort()
    await until(lambda: bool(far.lost and near.lost))


def test_hosts_take_turns_and_what_was_cancelled_does_not_run() -> None:
    threads = HandshakeThreads(1)
    entered, gate = threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> bool:
        entered.set()
        return gate.wait(60)

    def note(name: str) -> Step:
        def step() -> bool:
            order.append(name)
            return True

        return step

    held = threads.submit("first", hold)
    assert entered.wait(60)
    flood = [threads.submit("flood", note(f"flood {number}")) for number in range(4)]
    calm = [threads.submit("calm", note(f"calm {number}")) for number in range(2)]
    assert flood[1].cancel()
    gate.set()
    threads.close()
    assert held.result()
    assert all(step.result() for step in flood[2:] + calm)
    assert order == ["flood 0", "calm 0", "calm 1", "flood 2", "flood 3"]


def test_the_error_of_a_step_is_that_of_its_handshake_alone() -> None:
    threads = HandshakeThreads(1)
    failed = threads.submit("a", lambda: 1 // 0 > 0)
    fine = threads.submit("a", lambda: True)
    threads.close()
    assert isinstance(failed.exception(), ZeroDivisionError)
    assert fine.result()


async def test_steps_are_counted_for_the_host_at_the_other_end(keys: Keys, threads: Recording) -> None:
    for host in (HOST, "127.0.0.2"):
        async with pair(host) as (ours, theirs):
            task = asyncio.create_task(start_tls(ours, keys.server(), None, Sink()))
            await asyncio.get_running_loop().sock_sendall(theirs, first_flight(keys.client()))
            await until(lambda: threads.hosts[-1:] == [host])  # noqa: B023 - awaited before the next turn
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_bytes_that_drip_cost_no_thread_until_a_record_is_whole(keys: Keys, threads: Recording) -> None:
    hello = first_flight(keys.client())
    async with pair() as (ours, theirs):
        task = asyncio.create_task(start_tls(ours, keys.server(), None, Sink()))
        for place in range(len(hello) - 1):
            theirs.send(hello[place : place + 1])
            if place % 50 == 0:
                await until(lambda: unread(ours) == 0)
        await until(lambda: unread(ours) == 0)
        await asyncio.sleep(0)
        assert threads.hosts == []
        theirs.send(hello[-1:])
        await until(lambda: threads.hosts == [HOST])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("arrived", "whole"),
    [
        (b"", 0),
        (b"\x16\x03\x01\x00", 0),
        (b"\x16\x03\x01\x00\x02x", 0),
        (b"\x16\x03\x01\x00\x02xx", 7),
        (b"\x16\x03\x01\x00\x02xx\x17\x03\x03\x00\x01y", 13),
        (b"\x16\x03\x01\x00\x02xx\x17\x03\x03\x00\x02y", 7),
        (b"\x14\x03\x03\x00\x00", 5),
        (b"GET / HTTP/1.1\r\n", 16),  # no TLS: OpenSSL is to say so
        (b"\x16\x02\x01\x00\x02", 5),
    ],
)
def test_whole_records_are_found_by_their_headers(arrived: bytes, whole: int) -> None:
    assert whole_records(bytearray(arrived)) == whole


def test_a_record_longer_than_one_can_be_is_refused_by_its_header() -> None:
    assert whole_records(bytearray(b"\x16\x03\x01" + RECORD_MAX.to_bytes(2, "big"))) == 0
    with pytest.raises(OSError, match="record of 18433 bytes; 18432 are allowed"):
        whole_records(bytearray(b"\x16\x03\x01" + (RECORD_MAX + 1).to_bytes(2, "big")))


async def test_a_handshake_of_too_many_bytes_is_ended(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_MAX", 1000)
    async with pair() as (ours, theirs):
        theirs.send(b"\x16\x03\x01\x40\x00" + bytes(2000))
        with pytest.raises(ConnectionAbortedError, match="more than 1000 bytes"):
            await start_tls(ours, keys.server(), None, Sink())


async def test_a_handshake_ends_when_its_time_is_up(keys: Keys) -> None:
    async with pair() as (ours, theirs):
        theirs.send(first_flight(keys.client())[:20])
        with pytest.raises(TimeoutError, match=r"not over within 0\.05 s"):
            await accepted(ours, keys.server(), 0.05)
        assert ours.fileno() >= 0  # the caller closes it


async def test_a_handshake_can_be_cancelled_while_a_thread_computes(keys: Keys, threads: Recording) -> None:
    server = keys.server()
    gate = Gate(server)
    sink = Sink()
    async with pair() as (ours, theirs):
        theirs.send(first_flight(keys.client()))
        task = asyncio.create_task(start_tls(ours, server, None, sink))
        await until(gate.entered.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del server
    gate.opened.set()
    threads.close()  # the step ends on what it keeps alive itself
    assert sink.lost == []


async def test_whoever_refuses_a_certificate_says_so_to_the_other(keys: Keys, tmp_path: Path) -> None:
    stranger = Keys(tmp_path / "other")
    async with pair() as (ours, theirs):
        found = await asyncio.gather(
            start_tls(ours, keys.server(), None, Sink()),
            start_tls(theirs, stranger.client(), HOST, Sink()),
            return_exceptions=True,
        )
    assert isinstance(found[1], ssl.SSLCertVerificationError)
    assert "not issued by an authority in our `ca` file" in handshake_reason(found[1])
    assert isinstance(found[0], ssl.SSLError)
    assert "it does not believe our certificate" in handshake_reason(found[0])


async def test_a_client_without_certificate_hears_why_it_is_refused(keys: Keys) -> None:
    """By TLS 1.3 its own handshake is over before the server looks at certificates."""
    ours, theirs = sockets()
    near = Sink()
    try:
        serving = asyncio.create_task(start_tls(ours, keys.server(), None, Sink()))
        await start_tls(theirs, keys.client(""), HOST, near)
        with pytest.raises(ssl.SSLError) as refused:
            await serving
        assert handshake_reason(refused.value) == "it showed no certificate, and one is required"
        await until(lambda: bool(near.lost))
        (told,) = near.lost
        assert isinstance(told, ssl.SSLError)
        assert handshake_reason(told) == "it requires a certificate, and we showed none; set `cert` and `key`"
    finally:
        ours.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(b"GET / HTTP/1.1\r\n\r\n", "it speaks plain HTTP, not TLS"), (b"CHAPPE\x02\x00", "it does not speak TLS")],
)
async def test_what_is_no_tls_is_named_at_once(keys: Keys, sent: bytes, reason: str) -> None:
    async with pair() as (ours, theirs):
        theirs.send(sent)
        with pytest.raises(ssl.SSLError) as refused:
            await start_tls(ours, keys.server(), None, Sink())
        assert handshake_reason(refused.value) == reason


async def test_an_end_during_the_handshake_is_a_lost_connection(keys: Keys) -> None:
    async with pair() as (ours, theirs):
        theirs.close()
        with pytest.raises(ConnectionResetError, match="it closed the connection"):
            await start_tls(ours, keys.client(), HOST, Sink())


async def test_what_comes_with_the_end_of_the_handshake_is_delivered(keys: Keys) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = sockets()
    far = Sink()
    serving = asyncio.create_task(start_tls(ours, keys.server(), None, far))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = keys.client().wrap_bio(incoming, outgoing, server_hostname=HOST)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            if outgoing.pending:
                await loop.sock_sendall(theirs, outgoing.read())
            incoming.write(await loop.sock_recv(theirs, 65_536))
    client.write(b"at once")
    client.write(b", and more")
    last = outgoing.read()
    theirs.send(last[:-3])  # the last record is cut: its start comes with the handshake, too
    await serving
    await until(lambda: far.data == b"at once")
    theirs.send(last[-3:])
    await until(lambda: far.data == b"at once, and more")
    theirs.close()
    await until(lambda: len(far.lost) == 1)


def test_other_loops_than_uvloop_serve_as_well(keys: Keys) -> None:
    async def talk() -> None:
        far, near = await transports(keys)
        near.transport.write(bytes(3_000_000))
        await until(lambda: len(far.data) == 3_000_000)
        near.transport.close()
        await until(lambda: far.lost == [None] == near.lost)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(talk())
