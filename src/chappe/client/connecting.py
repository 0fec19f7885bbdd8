"""`chappe.connect`: what a user says about a connection, checked before anything is dialled."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from chappe.client.arguments import Secure
from chappe.client.client import Client
from chappe.client.session import ConnectOptions
from chappe.errors import ConfigError
from chappe.links.address import parse
from chappe.links.kinds import encrypts, stream_schemes
from chappe.links.options import LinkOptions
from chappe.links.proxy import ENVIRONMENT as ENVIRONMENT_PROXY
from chappe.links.proxy import parse_proxy
from chappe.security.config import Tls
from chappe.security.tls import client_context

ENVIRONMENT = "CHAPPE_URL"
_unnamed = itertools.count(1)  # brokers know a client by its name: two of one process must not have the same


class Connecting:
    """A client that is not connected yet: `await` it, or use it in `async with`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def issuing(self, session: bytes) -> Connecting:
        """Let its events be those of a session that other processes may have begun: 16 secret bytes, for all the same.

        They publish as the same issuer if nodes know them by the same identity.
        """
        if len(session) != 16:
            raise ConfigError(f"a session number has 16 bytes, not {len(session)}")
        self._client.session_number = session
        return self

    def __await__(self) -> Generator[object, None, Client]:
        return self._client.start().__await__()

    async def __aenter__(self) -> Client:
        return await self._client.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close(flush=error is None)


def connect(
    url: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    token: str | Callable[[], str] | None = None,
    tls: Secure | None = None,
    server_name: str | None = None,
    proxy: str = "",
    queue_bytes: int = 8 << 20,
    status_bytes: int = 1 << 20,
    conflate: bool = False,
    flooded: bool = False,
    status: Literal["stream", "udp"] = "stream",
    reconnect: bool = True,
    heartbeat_s: float = 1.0,
    timeout_s: float = 5.0,
    wait_s: float = 0.0,
    compare_s: float = 30.0,
    durable_s: float = 30.0,
    stamps: bool | None = None,
    report_quality: bool = False,
    options: LinkOptions | None = None,
) -> Connecting:
    """A client of the node at `url` (tcp, tls, ws, wss or unix; several, with commas: the nearest; none: $CHAPPE_URL).

    name: for people, access rules and brokers, which take one client of a name at a time.
    token: signed token, or a function that gives a fresh one at each connection.
    proxy: http://user:password@host:port of a proxy, or "environment" for https_proxy and no_proxy.
    tls: an ssl.SSLContext, the path of the authority's certificate, or (ca, cert, key).
    queue_bytes: bound of events that the node has not confirmed. status_bytes: bound of values not yet written.
    conflate: when this client is slow, the newest value of a variable wins. flooded: also get every flooded variable.
    status: "udp" sends and receives values by datagrams, each on its own and none again, beside the connection.
    heartbeat_s: a node that is silent for three of them is given up. timeout_s: of requests to the node.
    wait_s: how long the first connection is tried; a lost one is tried for ever if `reconnect`.
    compare_s: of several addresses, how often they are compared; one that answered sooner three times in a row (by a
    fifth, and 2 ms) is moved to. 0: only when the connection is lost.
    durable_s: how long an archive may take to confirm an event that is published with durable=True.
    stamps: whether each event says when it was published, by the clock of the node; None: where it is in a mesh.
    report_quality: publish late, missed and extrapolated values and incomplete sets as events on quality/NAME.
    """
    urls = _urls(url)
    addresses = [parse(text, stream_schemes()) for text in urls]
    secured = any(encrypts(address) for address in addresses)
    if proxy and proxy != ENVIRONMENT_PROXY:
        parse_proxy(proxy)
    if secured and tls is None:
        raise ConfigError(f"{urls[0]} needs tls=: the path of ca.pem, (ca, cert, key) or an ssl.SSLContext")
    if tls is not None and not secured:
        raise ConfigError(f"tls is given, but {urls[0]} is not a tls:// or wss:// address")
    if status not in ("stream", "udp"):
        raise ConfigError(f"status is 'stream' or 'udp', not {status!r}")
    if compare_s < 0:
        raise ConfigError(f"compare_s is a time in seconds or 0, not {compare_s}")
    if heartbeat_s <= 0 or timeout_s <= 0 or durable_s <= 0:
        raise ConfigError(
            f"heartbeat_s, timeout_s and durable_s are positive, not {heartbeat_s}, {timeout_s} and {durable_s}"
        )
    return Connecting(
        Client(
            ConnectOptions(
                addresses=addresses,
                name=name or f"{socket.gethostname()}-{os.getpid()}-{next(_unnamed)}",
                token=token,
                tls=None if tls is None else _context(tls),
                server_name=server_name,
                link=options or LinkOptions(),
                reconnect=reconnect,
                heartbeat_s=heartbeat_s,
                wait_s=wait_s,
                proxy=proxy,
                stamps=stamps,
                compare_s=compare_s if reconnect else 0.0,
                queue_bytes=queue_bytes,
                status_bytes=status_bytes,
                conflate=conflate,
                flooded=flooded,
                datagrams=status == "udp",
                timeout_s=timeout_s,
                durable_s=durable_s,
                report_quality=report_quality,
            )
        )
    )


def _urls(url: str | Sequence[str] | None) -> list[str]:
    if url is None:
        found = os.environ.get(ENVIRONMENT)
        if not found:
            raise ConfigError(f"no address: give one, like tcp://127.0.0.1:7400, or set {ENVIRONMENT}")
        return found.split(",")
    urls = url.split(",") if isinstance(url, str) else list(url)
    if not urls:
        raise ConfigError("no address: the list is empty")
    return urls


def _context(tls: Secure) -> ssl.SSLContext:
    match tls:
        case ssl.SSLContext():
            return tls
        case Tls():
            return client_context(tls)
        case str() | Path():
            return client_context(Tls(ca=str(tls)))
        case (ca, cert, key):
            return client_context(Tls(ca=str(ca), cert=str(cert), key=str(key)))
    raise ConfigError(f"tls is an ssl.SSLContext, a path or (ca, cert, key), not {type(tls).__name__}")
