"""UDP data links (GS-003, NS-009): one socket of a node or client, any number of sessions with keys of their own."""

from __future__ import annotations

import asyncio
import socket

from chappe.engine._stack import Stack
from chappe.errors import ConfigError, LinkError
from chappe.links._datagram import DatagramSession, DatagramSocket
from chappe.links.address import Address
from chappe.links.link import reason_of
from chappe.links.options import BufferSizes, LinkOptions, apply, effective
from chappe.links.tick import FlushTick

DEFAULT_BUFFER = 1 << 20  # a burst of one tick must fit: the kernel drops what does not


async def open_datagrams(address: Address, tick: FlushTick, *, options: LinkOptions | None = None) -> DatagramEndpoint:
    """A UDP socket bound to that address (port 0: any); its datagrams go to the stacks of its sessions."""
    if address.scheme != "udp":
        raise ConfigError(f"{address} is no datagram address; write it like udp://127.0.0.1:7400")
    options = options or LinkOptions(send_buffer=DEFAULT_BUFFER, receive_buffer=DEFAULT_BUFFER)
    try:
        found = await tick.loop.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
        family, _, _, _, place = found[0]
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            apply(sock, options)
            sock.bind(place)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise LinkError(f"can not open {address}: {reason_of(error)}") from error
    return DatagramEndpoint(sock, address, tick)


async def resolve_peer(host: str, port: int) -> tuple[str, int]:
    """The numeric address that `DatagramEndpoint.bind` wants."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise LinkError(f"host name {host!r} is not known ({error.strerror})") from None
    return str(found[0][4][0]), port


class DatagramEndpoint:
    """A bound UDP socket; `address` has the real port."""

    def __init__(self, sock: socket.socket, address: Address, tick: FlushTick) -> None:
        self.address = address.with_port(sock.getsockname()[1])
        self._sock = sock
        self._tick = tick
        self._loop = tick.loop
        self._socket = DatagramSocket(sock.fileno(), tick.flusher)
        self._sessions: dict[int, DatagramSession] = {}
        self._blocked: set[int] = set()  # session numbers
        self._loop.add_reader(sock, self._socket.on_readable)

    @property
    def buffers(self) -> BufferSizes:
        """Sizes that the kernel granted."""
        return effective(self._sock)

    def bind(
        self, session: int, stack: Stack, port: int, key: bytes, *, opener: bool, peer: tuple[str, int] | None = None,
        mute: bool = False,
    ) -> DatagramSession:  # fmt: skip
        """Carry `port` as that session.

        Exactly one side is the `opener` (the one that asked for the session). `peer` is a numeric address; without it
        the address of the first authentic datagram is asked for an answer, and what the port queues waits until then.
        `mute`: nothing is ever sent.
        """
        bound = self._socket.bind(session, stack, port, key, opener=opener, peer=peer, mute=mute)
        self._sessions[session] = bound
        self._tick.bind(port, self, bound)
        return bound

    def carry(self, session: int, port: int) -> None:
        """From now on that session carries another port of its stack."""
        bound = self._sessions[session]
        self._tick.unbind(bound.port, self)
        bound.carry(port)
        self._tick.bind(port, self, bound)

    def unbind(self, session: int) -> None:
        """End a session; what still arrives for it is counted as unknown."""
        bound = self._sessions.pop(session, None)
        if bound is not None:
            self._blocked.discard(session)
            self._socket.unbind(session)
            self._tick.unbind(bound.port, self)

    def counters(self) -> dict[str, int]:
        """All sessions together: accepted, bad_tag, replayed, unknown_session, kernel_drops, …"""
        return self._socket.counters()

    def want_write(self, port: int) -> None:
        """The socket is full: frames wait in the queue of their port."""
        self._blocked.update(number for number, bound in self._sessions.items() if bound.port == port)
        if self._blocked:
            self._loop.add_writer(self._sock, self._on_writable)

    def failed(self, port: int, error: Exception) -> None:
        """A stack could not give its frames: that is a defect, and the loop's log says so."""
        self._loop.call_exception_handler({"message": f"sending datagrams of port {port} failed", "exception": error})

    def close(self) -> None:
        """End all sessions and the socket."""
        if self._sock.fileno() >= 0:
            for session in list(self._sessions):
                self.unbind(session)
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _on_writable(self) -> None:
        for session in list(self._blocked):
            if self._sessions[session].writable():
                self._blocked.discard(session)
        if not self._blocked:
            self._loop.remove_writer(self._sock)
