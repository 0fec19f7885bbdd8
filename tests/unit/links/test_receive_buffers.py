"""Every thread reads into a buffer of its own: what one connection brings is never parsed for another."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.links._datagram import DatagramSocket, siphash128
from chappe.links._socket import StreamSocket
from chappe.links.transported import TransportStream
from chappe.wire.frames import Kind, encode_frame
from tests.support.clientpeer import event, issuer, topic


def in_another_thread(work: Callable[[], object]) -> None:
    """Run it to its end, as a switch of threads at this place would."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Reader:
    """A client core that reads one end of a socket pair."""

    def __init__(self, own: socket.socket, name: str) -> None:
        self.core = ClientCore()
        self.core.connected()
        self.subscription = Subscription(f"{name}/#")
        self.core.add_subscription(self.subscription)
        self.socket = StreamSocket(self.core, 0, own.fileno())

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.subscription.take_nowait(100)]


@contextlib.contextmanager
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(2)]
    try:
        for pair in made:
            for end in pair:
                end.setblocking(False)
        yield made
    finally:
        for pair in made:
            for end in pair:
                end.close()


def test_a_stream_read_while_another_thread_parses_its_own() -> None:
    with pairs() as ((far_one, near_one), (far_two, near_two)):
        one, two = Reader(near_one, "one"), Reader(near_two, "two")
        control = encode_frame(Kind.CONTROL, b"x")
        far_one.sendall(topic(1, "one/a") + issuer() + control + b"".join(event(1, n, b"one") for n in range(1, 20)))
        far_two.sendall(topic(1, "two/a") + issuer() + b"".join(event(1, n, b"two!!!") for n in range(1, 20)))
        one.core.on_control = lambda _: in_another_thread(two.socket.readable)
        one.socket.readable()
        assert one.bodies() == [b"one"] * 19
        assert two.bodies() == [b"two!!!"] * 19


def datagram(sequence: int, frame: bytes, key: bytes) -> bytes:
    start = (1).to_bytes(4, "big") + sequence.to_bytes(8, "big") + frame
    return start + siphash128(key, start)


def test_datagrams_read_while_another_thread_parses_its_own() -> None:
    """The echo of a probe calls `on_progress`; what came in the same batch is parsed after it."""
    echo, probe = (encode_frame(kind, bytes(16)) for kind in (Kind.ECHO, Kind.PROBE))
    with contextlib.ExitStack() as stack:
        sockets, sessions, cores = [], [], []
        for key in (bytes(16), bytes(range(16))):
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.bind(("127.0.0.1", 0))
            far = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            core = ClientCore()
            core.connected()
            core.open_datagrams()
            carried = DatagramSocket(sock.fileno())
            sessions.append(carried.bind(1, core, 1, key, opener=True))
            for sequence, frame in enumerate((echo, probe, probe), start=1):
                far.sendto(datagram(sequence | 1 << 63, frame, key), sock.getsockname())
            sockets.append(carried)
            cores.append(core)
        cores[0].on_progress = lambda: in_another_thread(sockets[1].readable)
        sockets[0].readable()
        assert [session.counters()["bad_tag"] for session in sessions] == [0, 0]
        assert [session.counters()["accepted"] for session in sessions] == [3, 3]


def test_tls_buffers_of_two_threads_are_two() -> None:
    """OpenSSL fills the buffer without the interpreter lock: another thread must not be given the same one."""
    mine = TransportStream().get_buffer(-1)
    mine[:4] = b"mine"
    in_another_thread(lambda: TransportStream().get_buffer(-1).__setitem__(slice(0, 4), b"else"))
    assert bytes(mine[:4]) == b"mine"
