"""WebSocket links (MR-029, MR-031): the byte stream of the wire in binary messages, opened by an HTTP request."""

from __future__ import annotations

import asyncio

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from chappe.errors import LinkError, ProtocolError, RefusedError, TimeoutExpired
from chappe.links.address import Address
from chappe.links.transported import Decoded, TransportRaw

SUBPROTOCOL = "chappe.2"
HTTP_ERRORS = (RemoteProtocolError, LocalProtocolError, UnicodeError, ValueError)
WORDS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 426: "Upgrade Required"}


class WebSocketCodec:
    """The messages of one connection whose upgrade is done; their borders mean nothing."""

    def __init__(self, protocol: WSConnection) -> None:
        self._protocol = protocol
        self._code = CloseReason.NORMAL_CLOSURE

    def decode(self, data: bytes | memoryview) -> Decoded:
        parts: list[bytes | bytearray] = []
        pong: Pong | None = None
        over, error = False, None
        try:
            self._protocol.receive_data(bytes(data))
            for event in self._protocol.events():
                if isinstance(event, BytesMessage):
                    parts.append(event.data)
                elif isinstance(event, Ping):
                    pong = event.response()  # only the latest one has to be answered
                elif isinstance(event, TextMessage):
                    self._code = CloseReason.UNSUPPORTED_DATA
                    error = ProtocolError("a WebSocket message is text; Chappe sends binary ones")
                elif isinstance(event, CloseConnection):
                    over = True
                    if self._protocol.state not in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED):
                        self._code = CloseReason.PROTOCOL_ERROR
                        error = ProtocolError(f"bad WebSocket frame: {event.reason}")
                if error is not None:
                    break
        except (RemoteProtocolError, LocalProtocolError) as failure:
            error = ProtocolError(f"bad WebSocket frame: {failure}")
        answer = self._protocol.send(pong) if pong is not None and not over and error is None else b""
        return Decoded(bytearray(b"".join(parts)), answer, over, error)

    def encode(self, data: bytes) -> bytes:
        if self._protocol.state is not ConnectionState.OPEN:
            return b""  # the other side has said goodbye: it reads no more
        return self._protocol.send(BytesMessage(data=data))

    def farewell(self) -> bytes:
        if self._protocol.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return self._protocol.send(CloseConnection(code=self._code))
        return b""


async def request_upgrade(raw: TransportRaw, address: Address, timeout_s: float) -> None:
    """Turn a connection that was dialled into a WebSocket; LinkError, RefusedError or TimeoutExpired closes it."""
    protocol = WSConnection(ConnectionType.CLIENT)
    default = {"ws": 80, "wss": 443}.get(address.scheme)
    host = f"[{address.host}]" if ":" in address.host else address.host
    host = host if address.port == default else f"{host}:{address.port}"
    raw.write(protocol.send(Request(host=host, target=address.path or "/", subprotocols=[SUBPROTOCOL])))
    try:
        async with asyncio.timeout(timeout_s):
            await _await_upgrade(raw, protocol)
    except TimeoutError:
        raw.abort()
        raise TimeoutExpired(f"{address} did not answer the WebSocket request within {timeout_s:g} s") from None
    except BaseException:
        raw.abort()
        raise
    raw.use(WebSocketCodec(protocol))


async def _await_upgrade(raw: TransportRaw, protocol: WSConnection) -> None:
    while True:
        data = await raw.read_some()
        if not data:
            raise LinkError(f"{raw.peer} closed the connection instead of opening a WebSocket")
        try:
            protocol.receive_data(data)
            events = list(protocol.events()) if protocol.state is not ConnectionState.OPEN else []
        except HTTP_ERRORS as error:
            raise LinkError(f"{raw.peer} does not open a WebSocket: {error}") from None
        for event in events:
            if isinstance(event, RejectConnection):
                raise RefusedError(f"{raw.peer} refuses a WebSocket: HTTP status {event.status_code}")
        if protocol.state is ConnectionState.OPEN:
            return


async def accept_upgrade(raw: TransportRaw, address: Address, timeout_s: float) -> None:
    """Answer the HTTP request of an accepted connection; RefusedError or LinkError after the answer."""
    protocol = WSConnection(ConnectionType.SERVER)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                data = await raw.read_some()
                if not data:
                    raise LinkError(f"{raw.peer} closed the connection before its request was complete")
                try:
                    protocol.receive_data(data)
                    request = next((event for event in protocol.events() if isinstance(event, Request)), None)
                except HTTP_ERRORS as error:
                    raise _refusal(raw, 426 if "Upgrade" in str(error) else 400, str(error)) from None
                if request is not None:
                    break
    except TimeoutError:
        raw.abort()
        raise TimeoutExpired(f"{raw.peer} sent no HTTP request within {timeout_s:g} s") from None
    except LinkError:
        raw.abort()
        raise
    _check(raw, address, request)
    raw.write(protocol.send(AcceptConnection(subprotocol=SUBPROTOCOL)))
    raw.use(WebSocketCodec(protocol))


def _check(raw: TransportRaw, address: Address, request: Request) -> None:
    if request.target.partition("?")[0] != address.path:
        raise _refusal(raw, 404, f"there is nothing at {request.target[:100]!r}")
    if any(name.lower() == b"origin" for name, _ in request.extra_headers):
        # A page of any site may open WebSockets to this machine from the browser of whoever looks at it.
        raise _refusal(raw, 403, "this is for programs, not for pages in a browser")
    if SUBPROTOCOL not in request.subprotocols:
        raise _refusal(raw, 400, f"the subprotocol {SUBPROTOCOL} is missing")


def _refusal(raw: TransportRaw, status: int, reason: str) -> RefusedError:
    body = f"{reason}\n".encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} {WORDS[status]}\r\nConnection: close\r\nUpgrade: websocket\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    raw.write(head.encode("ascii") + body)
    raw.close()
    return RefusedError(f"{raw.peer}: {reason}")
