"""Contexts of an authority of our own, and pairs of connected sockets and transports."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from chappe.links.tls import start_tls
from chappe.security.authority import Authority
from chappe.security.config import Tls
from chappe.security.tls import client_context, server_context

HOST = "127.0.0.1"


class Keys:
    """An authority with a node and a client."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        made = Authority.create(folder, datetime.now(UTC))
        made.issue("node", "node", datetime.now(UTC), hosts=[HOST])
        made.issue("meter", "client", datetime.now(UTC))

    def _files(self, name: str, minimum: str = "1.3") -> Tls:
        files = {kind: f"{self._folder}/{name}.{kind}" for kind in ("pem", "key")} if name else {"pem": "", "key": ""}
        return Tls(ca=f"{self._folder}/ca.pem", cert=files["pem"], key=files["key"], minimum=minimum)  # type: ignore[arg-type]

    def server(self, minimum: str = "1.3") -> ssl.SSLContext:
        return server_context(self._files("node", minimum), require_certificate=True)

    def client(self, name: str = "meter", minimum: str = "1.3") -> ssl.SSLContext:
        return client_context(self._files(name, minimum))


def sockets(host: str = HOST, buffer: int = 0) -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection, not blocking: of who accepted, and of who dialled from that host."""
    with socket.create_server((HOST, 0)) as listener:
        if buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        dialled = socket.create_connection(listener.getsockname(), source_address=(host, 0))
        accepted, _ = listener.accept()
    for sock in (accepted, dialled):
        sock.setblocking(False)
    return accepted, dialled


@dataclass(eq=False)
class Sink(asyncio.BufferedProtocol):
    """Keeps what arrives and what it is told; pauses its transport when it has as much as `pause_at`."""

    room: memoryview = field(default_factory=lambda: memoryview(bytearray(65_536)))
    pause_at: int = 1 << 60
    data: bytearray = field(default_factory=bytearray)
    lost: list[Exception | None] = field(default_factory=list)
    pauses: int = 0
    resumes: int = 0
    transport: asyncio.Transport = field(init=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.room[:nbytes]
        if len(self.data) >= self.pause_at:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumes += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


async def transports(keys: Keys, buffer: int = 0, minimum: str = "1.3") -> tuple[Sink, Sink]:
    """Both ends of a connection over TLS: of the server, and of the client."""
    accepted, dialled = sockets(buffer=buffer)
    far, near = Sink(), Sink()
    await asyncio.gather(
        start_tls(accepted, keys.server(minimum), None, far),
        start_tls(dialled, keys.client(minimum=minimum), HOST, near),
    )
    return far, near
