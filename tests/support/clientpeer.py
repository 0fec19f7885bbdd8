"""The other side of a ClientCore in unit tests: reads what it writes, frame by frame, and makes what it is fed."""

from __future__ import annotations

from typing import Any

from chappe.client._core import ClientCore
from chappe.links._socket import collect
from chappe.wire.events import Event, Issuer, Topic, TopicName
from chappe.wire.frames import Frame, FrameReader, Kind, encode_frame
from chappe.wire.payloads import Payload, Probe, decode_payload
from chappe.wire.status import Value, encode_status, record

SESSION = bytes(range(16))


class Peer:
    """Understands one connection of a core, as a node would."""

    def __init__(self, core: ClientCore, **welcome: Any) -> None:
        self.core = core
        self.topics: dict[int, str | int] = {}
        self.events: list[Event] = []
        self.frames: list[Frame] = []
        self._reader = FrameReader()
        core.connected(**welcome)

    def read(self, limit: int = 1 << 22, echo: bool = False) -> list[Payload]:
        """What the core writes now, in pieces of at most `limit` bytes; `echo` answers probes."""
        payloads: list[Payload] = []
        while piece := collect(self.core, 0, limit):
            for frame in self._reader.feed(piece):
                self.frames.append(frame)
                payloads.append(self._understand(frame, echo))
        return payloads

    def _understand(self, frame: Frame, echo: bool) -> Payload:
        payload = decode_payload(frame)
        if isinstance(payload, Topic):
            self.topics[payload.number] = payload.topic.name
        elif isinstance(payload, Event):
            assert payload.topic in self.topics, "an event before the definition of its topic"
            self.events.append(payload)
        elif isinstance(payload, Probe) and echo:
            self.core.feed(encode_frame(Kind.ECHO, frame.payload))
        return payload

    @property
    def received(self) -> list[tuple[str | int, bytes]]:
        """Topic and body of every event."""
        return [(self.topics[event.topic], event.body) for event in self.events]


def topic(number: int, name: str | int, kind: str = "s", group: str = "") -> bytes:
    return encode_frame(Kind.TOPIC, Topic(number, TopicName(name, kind, group)).encode())


def issuer(number: int = 0, epoch: int = 1, publisher: bytes = SESSION) -> bytes:
    return encode_frame(Kind.ISSUER, Issuer(number, epoch, publisher).encode())


def event(number: int, sequence: int, body: bytes, **fields: object) -> bytes:
    return encode_frame(Kind.EVENT, Event(number, sequence, body, **fields).encode())  # type: ignore[arg-type]


def status(*values: tuple[int, int, Value]) -> bytes:
    """A STATUS frame of (variable, created, value)."""
    records = (record(created, variable, value) for variable, created, value in values)
    return encode_frame(Kind.STATUS, encode_status(records))
