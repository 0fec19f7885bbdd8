"""A port of the engine that is the node's own: what the node itself publishes and subscribes to (MR-110)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import structlog

from chappe.engine._engine import Engine
from chappe.links._socket import Flusher, collect
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.payloads import decode_payload

log = structlog.get_logger(__name__)

Listener = Callable[[str, bytes], None]  # topic, body
PIECE = 1 << 18
QUEUE_BYTES = 4 << 20


class OwnPort:
    """Behaves like a client without a connection: it goes through the same tables, queues and routes as all others."""

    def __init__(self, engine: Engine, flusher: Flusher) -> None:
        self._engine = engine
        self._flusher = flusher
        issuer = secrets.token_bytes(16)  # no hash of an identity, so no client can have it
        self.port = engine.open_port(queue_bytes=QUEUE_BYTES, issuer=issuer, loss=False)
        self._sequence = 0
        self._numbers: dict[str, int] = {}  # of topics published to
        self._listeners: dict[str, list[Listener]] = {}  # by pattern
        self._topics: dict[int, str] = {}  # defined by the engine in the direction of this port
        self._reader = FrameReader(1 << 24)
        flusher.bind(self.port, self._take)

    def publish(self, topic: str, body: bytes, content_type: str = "application/json", priority: int = 3) -> None:
        """An event of this node; it leaves with the next flush."""
        frames = b""
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self._numbers) + 1
            frames = encode_frame(Kind.TOPIC, Topic(number, TopicName(topic)).encode())
        self._sequence += 1
        event = Event(number, self._sequence, body, priority=priority, content_type=content_type,
                      created=self._engine.wall_ns or None)  # fmt: skip
        self._engine.feed(self.port, frames + encode_frame(Kind.EVENT, event.encode()))
        self._flusher.soon()

    def subscribe(self, pattern: str, listener: Listener) -> None:
        """Call `listener(topic, body)` for each event of that pattern; ValueError for a bad pattern."""
        self._engine.topics.subscribe(self.port, pattern)
        self._listeners.setdefault(pattern, []).append(listener)

    @property
    def patterns(self) -> list[str]:
        """What it subscribed to."""
        return list(self._listeners)

    def close(self) -> None:
        """It publishes and hears no more; the caller frees the port."""
        self._flusher.unbind(self.port)
        self._listeners.clear()

    def _take(self) -> bool:
        while piece := collect(self._engine, self.port, PIECE):
            for frame in self._reader.feed(piece):
                if frame.kind is Kind.TOPIC:
                    topic = Topic.decode(frame.payload)
                    self._topics[topic.number] = str(topic.topic.name)
                elif frame.kind is Kind.EVENT:
                    event = decode_payload(frame)
                    assert isinstance(event, Event)
                    self._deliver(self._topics.get(event.topic, ""), event.body)
        return True

    def _deliver(self, topic: str, body: bytes) -> None:
        for pattern, listeners in list(self._listeners.items()):
            if not _matches(pattern, topic):
                continue
            for listener in listeners:
                try:
                    listener(topic, body)
                except Exception:  # a listener's defect must not stop the flush of others
                    log.exception("an event for the node itself could not be handled", topic=topic)


def _matches(pattern: str, topic: str) -> bool:
    levels, wanted = topic.split("/"), pattern.split("/")
    for at, each in enumerate(wanted):
        if each == "#":
            return True
        if at >= len(levels) or each not in ("+", levels[at]):
            return False
    return len(levels) == len(wanted)
