"""What a transport over TLS promises its protocol: order, pauses in both directions, and one end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from chappe.links import tls
from chappe.links.tls import start_tls
from tests.unit.links.tlspairs import HOST, Keys, Sink, sockets, transports
from tests.unit.links.wait import until

Open = Callable[..., Awaitable[tuple[Sink, Sink]]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time to close."""
    monkeypatch.setattr(tls, "LINGER_S", 60.0)


@pytest.fixture
async def pair(keys: Keys) -> AsyncIterator[Open]:
    made: list[Sink] = []

    async def open_pair(**how: Any) -> tuple[Sink, Sink]:
        ends = await transports(keys, **how)
        made.extend(ends)
        return ends

    yield open_pair
    for sink in made:
        sink.transport.abort()
    await until(lambda: all(len(sink.lost) == 1 for sink in made))


@contextlib.asynccontextmanager
async def foreign(keys: Keys) -> AsyncIterator[tuple[ssl.SSLSocket, Sink]]:
    """A client that is a blocking socket of the standard library, and our end."""
    ours, theirs = sockets()
    far = Sink()
    theirs.settimeout(60)
    context = keys.client()
    wrapping = asyncio.to_thread(context.wrap_socket, theirs, server_hostname=HOST, suppress_ragged_eofs=False)
    client, _ = await asyncio.gather(wrapping, start_tls(ours, keys.server(), None, far))
    try:
        yield client, far
    finally:
        client.close()
        far.transport.abort()
        await until(lambda: len(far.lost) == 1)


@pytest.mark.parametrize("minimum", ["1.2", "1.3"])
async def test_bytes_go_there_and_back_in_order(pair: Open, minimum: str) -> None:
    far, near = await pair(minimum=minimum)
    wanted = b"".join(number.to_bytes(4, "big") for number in range(500_000))
    for place in range(0, len(wanted), 70_001):
        near.transport.write(wanted[place : place + 70_001])
        far.transport.writelines([b"<", wanted[place : place + 5], b">"])
    await until(lambda: len(far.data) == len(wanted))
    assert far.data == wanted
    await until(lambda: near.data.count(b"<") >= 1 and near.data[-1:] == b">")


async def test_it_knows_its_ends_and_its_protection(pair: Open) -> None:
    far, near = await pair()
    assert near.transport.get_extra_info("sockname") == far.transport.get_extra_info("peername")
    assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
    assert near.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert near.transport.get_extra_info("cipher")[1] == "TLSv1.3"
    assert ("IP Address", HOST) in near.transport.get_extra_info("peercert")["subjectAltName"]
    assert near.transport.get_extra_info("socket").fileno() >= 0
    assert near.transport.get_extra_info("nothing", 7) == 7
    assert not near.transport.can_write_eof()
    with pytest.raises(NotImplementedError):
        near.transport.write_eof()


async def test_a_protocol_that_pauses_gets_nothing_until_it_resumes(pair: Open) -> None:
    """Not even what was decrypted, or could be."""
    far, near = await pair()
    far.room = memoryview(bytearray(1000))
    far.pause_at = 1000
    near.transport.write(bytes(range(250)) * 100)
    await until(lambda: len(far.data) == 1000)
    assert not far.transport.is_reading()
    near.transport.write(b"and more")
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert len(far.data) == 1000
    far.pause_at = 2000
    far.transport.resume_reading()
    far.transport.resume_reading()
    assert far.transport.is_reading()
    await until(lambda: len(far.data) == 2000)
    far.pause_at = 1 << 60
    far.transport.resume_reading()
    await until(lambda: far.data == bytes(range(250)) * 100 + b"and more")


async def test_what_waits_for_a_paused_protocol_comes_before_the_end(pair: Open) -> None:
    far, near = await pair()
    far.room = memoryview(bytearray(1000))
    far.pause_at = 1
    near.transport.write(bytes(5000))
    near.transport.close()
    await until(lambda: len(far.data) == 1000)
    assert far.lost == []
    far.pause_at = 1 << 60
    far.transport.resume_reading()
    await until(lambda: far.lost == [None] == near.lost)
    assert len(far.data) == 5000


async def test_a_reader_that_pauses_stops_the_writer(pair: Open) -> None:
    far, near = await pair(buffer=16_384)
    near.transport.set_write_buffer_limits(high=100_000, low=20_000)
    assert near.transport.get_write_buffer_limits() == (20_000, 100_000)
    far.transport.pause_reading()
    sent = 0
    while not near.pauses:
        near.transport.write(bytes([sent // 50_000 % 251]) * 50_000)
        sent += 50_000
        assert sent < 50_000_000
        await asyncio.sleep(0)
    assert near.transport.get_write_buffer_size() > 100_000
    assert near.resumes == 0
    far.transport.resume_reading()
    await until(lambda: len(far.data) == sent)
    await until(lambda: near.resumes == 1)
    assert near.transport.get_write_buffer_size() == 0
    assert far.data == b"".join(bytes([number % 251]) * 50_000 for number in range(sent // 50_000))


async def test_limits_that_make_no_sense_are_refused(pair: Open) -> None:
    _, near = await pair()
    with pytest.raises(ValueError, match="high is 1 and low is 2"):
        near.transport.set_write_buffer_limits(high=1, low=2)
    near.transport.set_write_buffer_limits()
    assert near.transport.get_write_buffer_limits() == (16_384, 65_536)


async def test_a_close_sends_everything_and_is_told_once_at_both_ends(pair: Open) -> None:
    far, near = await pair(buffer=16_384)
    near.transport.write(bytes(2_000_000))
    near.transport.close()
    near.transport.close()
    near.transport.write(b"too late")
    assert near.transport.is_closing()
    await until(lambda: near.lost == [None] == far.lost)
    assert len(far.data) == 2_000_000
    near.transport.abort()
    await asyncio.sleep(0.01)
    assert (near.lost, far.lost) == ([None], [None])


async def test_a_close_reads_on_though_the_protocol_has_paused(pair: Open) -> None:
    """Closing a socket with unread input would reset the last words away."""
    far, near = await pair()
    near.transport.pause_reading()
    far.transport.write(bytes(300_000))
    await asyncio.sleep(0.01)
    near.transport.write(b"last words")
    near.transport.close()
    await until(lambda: near.lost == [None] == far.lost)
    assert far.data == b"last words"
    assert near.data == b""


async def test_the_end_is_said_by_close_notify(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        far.transport.write(b"bye")
        far.transport.close()
        assert await asyncio.to_thread(client.recv, 100) == b"bye"
        assert await asyncio.to_thread(client.recv, 100) == b""  # without close_notify this raises
        assert far.lost == []  # it waits for the other side
        client.close()
        await until(lambda: far.lost == [None])


async def test_close_notify_of_the_other_side_is_answered(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        client.sendall(b"bye")
        await asyncio.to_thread(client.unwrap)
        await until(lambda: far.lost == [None])
        assert far.data == b"bye"


async def test_an_end_without_close_notify_is_an_end(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        client.sendall(b"bye")
        client.shutdown(socket.SHUT_RDWR)
        await until(lambda: far.lost == [None])
        assert far.data == b"bye"


async def test_whoever_ends_its_own_direction_gets_what_was_written_before(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        far.transport.write(bytes(20_000_000))
        assert far.transport.get_write_buffer_size() > 0

        def end_and_read() -> int:
            socket.socket.shutdown(client, socket.SHUT_WR)
            count = 0
            while received := client.recv(65_536):
                count += len(received)
            return count

        assert await asyncio.to_thread(end_and_read) == 20_000_000
        await until(lambda: far.lost == [None])


async def test_a_close_waits_no_longer_than_it_may(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LINGER_S", 0.05)
    async with foreign(keys) as (_, far):
        far.transport.write(bytes(20_000_000))  # nobody reads it
        far.transport.close()
        assert far.lost == []
        await until(lambda: far.lost == [None])


async def test_an_abort_ends_at_once_and_is_told_later(pair: Open) -> None:
    far, near = await pair()
    near.transport.write(b"x")
    near.transport.abort()
    assert near.lost == []
    near.transport.abort()
    near.transport.close()
    near.transport.write(b"ignored")
    near.transport.resume_reading()
    assert near.transport.get_extra_info("socket").fileno() == -1
    await until(lambda: near.lost == [None] and len(far.lost) == 1)


async def test_a_reset_is_told_as_an_error(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
        await until(lambda: len(far.lost) == 1)
        assert isinstance(far.lost[0], ConnectionResetError)


async def test_writing_to_who_is_gone_is_told_after_what_it_said(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        far.transport.write(b"never read")
        client.sendall(b"last words")
        client.close()  # with unread input: a reset follows the last words
        while not far.transport.is_closing():
            far.transport.write(b"x")
            await asyncio.sleep(0)
        await until(lambda: len(far.lost) == 1)
        assert far.data == b"last words"


async def test_bytes_that_are_no_tls_end_it_with_an_error(keys: Keys) -> None:
    async with foreign(keys) as (client, far):
        client.sendall(b"fine")
        with socket.socket(fileno=client.detach()) as plain:
            plain.sendall(b"in the clear" * 100)
            await until(lambda: len(far.lost) == 1)
        assert isinstance(far.lost[0], ssl.SSLError)
        assert far.data == b"fine"


async def test_a_protocol_that_fails_loses_its_connection_alone(pair: Open) -> None:
    far, near = await pair()
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    far.room = None  # type: ignore[assignment]
    near.transport.write(b"x")
    await until(lambda: len(far.lost) == 1 and len(near.lost) == 1)
    assert isinstance(far.lost[0], TypeError)
    assert [context["exception"] for context in told] == far.lost
