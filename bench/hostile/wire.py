"""A blocking connection in plain Python that says whatever an attack wants to say."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import time
from collections import deque
from typing import Any

from chappe.errors import LinkError, RefusedError
from chappe.wire import control
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import PREAMBLE, FrameReader, Kind, encode_frame
from chappe.wire.payloads import Echo, Payload, Probe, decode_payload, encode_payload

CONNECT_S = 10.0
HEARTBEAT_NS = 60_000_000_000
READ_BYTES = 65_536


def dial(port: int, source: str = "", host: str = "127.0.0.1") -> socket.socket:
    """A TCP connection to the target, from one of the addresses of the loopback."""
    try:
        return socket.create_connection((host, port), CONNECT_S, (source, 0) if source else None)
    except OSError as error:
        raise LinkError(f"no connection to {host}:{port}: {error}") from None


class Wire:
    """One connection and what came over it; `TimeoutError` where the node does not answer within CONNECT_S."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.welcome: control.Welcome | None = None
        self.events: list[Event] = []
        self.topics: dict[int, str | int] = {}  # of the events that came
        self.notices: list[control.Message] = []  # control messages that answer no request
        self._frames = FrameReader(0xFF_FFFF)
        self._arrived: deque[Payload] = deque()
        self._preamble = b""
        self._serial = 0
        self.sequence = 0
        self._numbers: dict[str, int] = {}  # of topics that were defined

    @classmethod
    def open(cls, port: int, *, tls: ssl.SSLContext | None = None, source: str = "", **hello: Any) -> Wire:
        """Connect and be welcomed; RefusedError has the reason of the node."""
        sock = dial(port, source)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname="127.0.0.1")
        wire = cls(sock)
        try:
            wire.hello(**hello)
        except BaseException:
            wire.close()
            raise
        return wire

    def hello(self, **fields: Any) -> None:
        """The handshake of a client, or of whoever `fields` say."""
        given = {
            "role": "client", "name": "hostile", "session": secrets.token_bytes(16),
            "capabilities": control.CAPABILITIES, "heartbeat_ns": HEARTBEAT_NS, **fields,
        }  # fmt: skip
        self.sock.sendall(PREAMBLE + encode_frame(Kind.CONTROL, control.encode(control.Hello(**given))))
        answer = self.message()
        if isinstance(answer, control.Refused):
            raise RefusedError(answer.reason)
        if not isinstance(answer, control.Welcome):
            raise LinkError(f"expected Welcome, got {type(answer).__name__}")
        self.welcome = answer

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send(self, *payloads: Payload) -> None:
        self.sock.sendall(b"".join(encode_frame(*encode_payload(payload)) for payload in payloads))

    def ask(self, request: type[control.Request], **fields: Any) -> control.Message:
        """The answer to a request."""
        self._serial += 1
        self.send(request(id=self._serial, **fields))
        while True:
            answer = self.message()
            if isinstance(answer, control.Refused):
                raise RefusedError(answer.reason)
            if isinstance(answer, control.Answer) and answer.id == self._serial:
                return answer
            self.notices.append(answer)

    def flush(self) -> None:
        """The node has taken everything that was sent before."""
        self._serial += 1
        self.send(Probe(self._serial, 0))
        while True:
            payload = self._next()
            if isinstance(payload, Echo) and payload.probe.token == self._serial:
                return
            self._keep(payload)

    def define(self, topic: str, kind: str = "s") -> int:
        """The number of a topic, which is defined at its first use."""
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self._numbers) + 1
            self.send(Topic(number, TopicName(topic, kind)))
        return number

    def publish(self, topic: str, body: bytes, *, kind: str = "s", **fields: Any) -> None:
        self.sequence += 1
        self.send(Event(self.define(topic, kind), self.sequence, body, **fields))

    def message(self) -> control.Message:
        """The next control message; heartbeats are answered, events are kept."""
        while True:
            payload = self._next()
            if isinstance(payload, control.Message):
                return payload
            self._keep(payload)

    def await_events(self, count: int, within_s: float = CONNECT_S) -> list[Event]:
        """The events that came so far, at least so many unless the time is over."""
        deadline = time.monotonic() + within_s
        while len(self.events) < count and (left_s := deadline - time.monotonic()) > 0:
            self.sock.settimeout(left_s)
            with contextlib.suppress(TimeoutError):
                self._keep(self._next())
        self.sock.settimeout(CONNECT_S)
        return self.events

    def await_end(self, within_s: float = CONNECT_S) -> str:
        """Why the node ended this connection; empty if it did not within that time."""
        deadline = time.monotonic() + within_s
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                self.sock.settimeout(left_s)
                payload = self._next()
                if isinstance(payload, control.Refused):
                    return payload.reason
                self._keep(payload)
        except TimeoutError:
            return ""
        except (LinkError, OSError) as error:
            return str(error) or "closed"
        return ""

    def _keep(self, payload: Payload) -> None:
        match payload:
            case Event():
                self.events.append(payload)
            case Topic(number, topic):
                self.topics[number] = topic.name
            case Probe():
                self.send(Echo(payload))
            case control.Notice() | control.Request() | control.Command() | control.Answer():
                self.notices.append(payload)

    def _next(self) -> Payload:
        while not self._arrived:
            piece = self.sock.recv(READ_BYTES)
            if not piece:
                raise LinkError("the node closed the connection")
            missing = len(PREAMBLE) - len(self._preamble)
            self._preamble, piece = self._preamble + piece[:missing], piece[missing:]
            self._arrived.extend(decode_payload(frame) for frame in self._frames.feed(piece))
        return self._arrived.popleft()
