"""ROUTE, TRAIN and TRAINED payloads: what nodes of a mesh send each other besides events."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.errors import ProtocolError
from chappe.wire.events import TopicName
from chappe.wire.frames import Cursor, signed, unsigned

ROUTE_LIMIT = 0xFFFF
SHORTEST_TRAIN, LONGEST_TRAIN = 40, 1 << 26
_BEFORE_PADDING = 20  # of a TRAIN frame, its header included


@dataclass(frozen=True, slots=True)
class RouteDefinition:
    """What a topic number stands for in one direction of a link: a topic and the source route of its events."""

    number: int
    topic: TopicName
    route: bytes

    def encode(self) -> bytes:
        """The payload of a ROUTE frame."""
        if not 1 <= len(self.route) <= ROUTE_LIMIT:
            raise ProtocolError(f"a route has 1 to {ROUTE_LIMIT} bytes, not {len(self.route)}")
        if self.topic.group:
            raise ProtocolError("a route belongs to a topic without a group")
        topic = self.topic.encode()
        head = unsigned(self.number, 4, "topic number") + topic[:2]
        return head + len(self.route).to_bytes(2, "big") + self.route + topic[2:]

    @staticmethod
    def decode(payload: bytes) -> RouteDefinition:
        """The definition in a ROUTE payload."""
        cursor = Cursor(payload, "ROUTE")
        number, head = cursor.unsigned(4, "topic number"), cursor.take(2, "type")
        route = cursor.take(cursor.unsigned(2, "length of the route"), "route")
        if head[1] or not route:
            raise ProtocolError("ROUTE: it needs a route, and no group")
        return RouteDefinition(number, TopicName.decode(head + cursor.rest()), route)


@dataclass(frozen=True, slots=True)
class Train:
    """A piece of the bytes that measure a link: `size` and `offset` count whole frames."""

    token: int
    size: int
    offset: int
    padding: int = 0

    def encode(self) -> bytes:
        """The payload of a TRAIN frame."""
        self._check()
        numbers = unsigned(self.token, 8, "token") + unsigned(self.size, 4, "size") + unsigned(self.offset, 4, "offset")
        return numbers + bytes(self.padding)

    @staticmethod
    def decode(payload: bytes) -> Train:
        """The piece in a TRAIN payload."""
        cursor = Cursor(payload, "TRAIN")
        token, size, offset = cursor.unsigned(8, "token"), cursor.unsigned(4, "size"), cursor.unsigned(4, "offset")
        train = Train(token, size, offset, len(cursor.rest()))
        train._check()
        return train

    def _check(self) -> None:
        length = _BEFORE_PADDING + self.padding
        if not SHORTEST_TRAIN <= self.size <= LONGEST_TRAIN or self.offset + length > self.size:
            raise ProtocolError(f"TRAIN of {self.size} bytes with {length} bytes at {self.offset}")


@dataclass(frozen=True, slots=True)
class Trained:
    """When a train came: its second half by size and time, its first and last byte by the receiver's clock."""

    token: int
    half_bytes: int
    half_ns: int
    first_ns: int
    last_ns: int

    def encode(self) -> bytes:
        """The payload of a TRAINED frame."""
        numbers = (self.token, "token"), (self.half_bytes, "bytes"), (self.half_ns, "time")
        clocks = signed(self.first_ns, 8, "first arrival") + signed(self.last_ns, 8, "last arrival")
        return b"".join(unsigned(value, 8, field) for value, field in numbers) + clocks

    @staticmethod
    def decode(payload: bytes) -> Trained:
        """The answer in a TRAINED payload."""
        cursor = Cursor(payload, "TRAINED")
        trained = Trained(
            cursor.unsigned(8, "token"), cursor.unsigned(8, "bytes"), cursor.unsigned(8, "time"),
            cursor.signed(8, "first arrival"), cursor.signed(8, "last arrival"),
        )  # fmt: skip
        cursor.finish()
        return trained
