"""A certificate authority in a folder of its own, and a real TLS connection over loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chappe.security import Authority, Tls


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class Mesh:
    """An authority and the `[tls]` sections of those it issued to."""

    authority: Authority

    def tls(self, name: str, *, ca: Path | None = None, minimum: str = "1.3", host: bool = False) -> Tls:
        folder = self.authority.folder
        return Tls(
            ca=str(ca or folder / "ca.pem"),
            cert=str(folder / f"{name}.pem"),
            key=str(folder / f"{name}.key"),
            crl=str((ca.parent if ca else folder) / "ca.crl"),
            minimum=minimum,  # type: ignore[arg-type]
            verify_host=host,
        )

    @property
    def anonymous(self) -> Tls:
        folder = self.authority.folder
        return Tls(ca=str(folder / "ca.pem"), crl=str(folder / "ca.crl"), verify_host=False)


@pytest.fixture
def mesh(tmp_path: Path) -> Mesh:
    authority = Authority.create(tmp_path / "ca", now())
    authority.issue("west", "node", now(), hosts=["127.0.0.1", "localhost"])
    authority.issue("east", "node", now(), hosts=["127.0.0.1"])
    authority.issue("pmu-1", "client", now())
    authority.issue("leaf", "broker", now())
    return Mesh(authority)


@pytest.fixture
def other_mesh(tmp_path: Path) -> Mesh:
    authority = Authority.create(tmp_path / "other", now())
    authority.issue("west", "node", now(), hosts=["127.0.0.1"])
    authority.issue("pmu-1", "client", now())
    return Mesh(authority)


@dataclass
class Ends:
    """Both ends of one connection, or why each failed."""

    server: ssl.SSLSocket | ssl.SSLError | OSError
    client: ssl.SSLSocket | ssl.SSLError | OSError

    @property
    def established(self) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
        assert isinstance(self.server, ssl.SSLSocket), self.server
        assert isinstance(self.client, ssl.SSLSocket), self.client
        return self.server, self.client

    @property
    def server_error(self) -> ssl.SSLError:
        assert isinstance(self.server, ssl.SSLError), self.server
        return self.server

    @property
    def client_error(self) -> ssl.SSLError:
        assert isinstance(self.client, ssl.SSLError), self.client
        return self.client


Connect = Callable[[ssl.SSLContext, ssl.SSLContext, str], Ends]


@pytest.fixture
def connect() -> Connect:
    """Connect two contexts; the client reads first, for a TLS 1.3 client learns of a refusal only by reading."""
    opened: list[socket.socket] = []

    def shake(sock: socket.socket, context: ssl.SSLContext, host: str | None) -> ssl.SSLSocket | OSError:
        sock.settimeout(10)
        try:
            secured = context.wrap_socket(sock, server_side=host is None, server_hostname=host)
            opened.append(secured)
            if host is None:
                secured.sendall(b"!")
            assert secured.recv(1) == b"!"
            if host is not None:
                secured.sendall(b"!")
        except OSError as error:
            return error
        return secured

    def connect(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> Ends:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            outgoing = socket.create_connection(listener.getsockname(), timeout=10)
            accepted, _ = listener.accept()
        opened.extend((outgoing, accepted))
        ends: list[ssl.SSLSocket | OSError] = []
        thread = threading.Thread(target=lambda: ends.append(shake(accepted, server, None)))
        thread.start()
        result = shake(outgoing, client, host)
        thread.join(timeout=20)
        return Ends(ends[0], result)

    yield connect  # type: ignore[misc]
    for sock in opened:
        sock.close()
