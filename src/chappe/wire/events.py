"""EVENT, TOPIC and ISSUER payloads."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from chappe.errors import ProtocolError
from chappe.wire.addresses import KIND, TEXTS, check_address, redacted
from chappe.wire.frames import Cursor, signed, unsigned

PRIORITIES = 7
NORMAL = 3
TOPIC_LIMIT = 1024
EXT, DURABLE, RESENT = 0x08, 0x10, 0x20
_PRIORITY, _RESERVED = 0x07, 0xC0

CREATED, EXPIRES, REPLY, CORRELATION, CONTENT_TYPE, ORIGIN, PROPERTY = 1, 2, 3, 4, 5, 6, 16

PropertyValue = str | int | float | bool | bytes


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic: text in levels, a number of 32 (`i`) or 64 (`l`) bits, or the address of a node or inbox (`n`)."""

    name: str | int
    kind: str = "s"
    group: str = ""

    def encode(self) -> bytes:
        """As in a TOPIC frame, without the number."""
        group = self.group.encode()
        if isinstance(self.name, str) != (self.kind in TEXTS):
            raise ProtocolError(f"topic {self.name!r} is not of kind {self.kind!r}")
        if isinstance(self.name, str):
            _check_text(self.name, self.kind)
            name = self.name.encode()
        else:
            name = signed(self.name, _size(self.kind), "topic")
        return self.kind.encode() + unsigned(len(group), 1, "length of the group name") + group + name

    @staticmethod
    def decode(raw: bytes) -> TopicName:
        """The topic in these bytes, to their end."""
        cursor = Cursor(raw, "TOPIC")
        kind = chr(cursor.unsigned(1, "type"))
        group = cursor.text(cursor.unsigned(1, "length of the group name"), "group name")
        name: str | int
        if kind in TEXTS:
            rest = cursor.rest()
            name = Cursor(rest, "TOPIC").text(len(rest), "topic")
            _check_text(name, kind)
        else:
            name = cursor.signed(_size(kind), "topic")
            cursor.finish()
        return TopicName(name, kind, group)

    def __repr__(self) -> str:
        """Without the id of an inbox: whoever reads it could send to it."""
        name = redacted(self.name) if self.kind == KIND and isinstance(self.name, str) else self.name
        return f"TopicName({name!r}, {self.kind!r}, {self.group!r})"


def _check_text(text: str, kind: str) -> None:
    (check_address if kind == KIND else check_topic)(text)


def check_topic(topic: str) -> None:
    """ProtocolError if nobody may publish to this topic."""
    size = len(topic.encode())
    if not 1 <= size <= TOPIC_LIMIT:
        raise ProtocolError(f"a topic has 1 to {TOPIC_LIMIT} bytes, not {size}")
    if "+" in topic or "#" in topic:
        raise ProtocolError(f"topic {topic[:80]!r}: wildcards are for subscriptions only")
    if "" in topic.split("/"):
        raise ProtocolError(f"topic {topic[:80]!r} has an empty level: no '/' at the ends, none doubled")


def _size(kind: str) -> int:
    if kind not in ("i", "l"):
        raise ProtocolError(f"unknown type of topic {kind!r}: s, i, l or n")
    return 4 if kind == "i" else 8


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic number stands for in one direction of a link."""

    number: int
    topic: TopicName

    def encode(self) -> bytes:
        """The payload of a TOPIC frame."""
        return unsigned(self.number, 4, "topic number") + self.topic.encode()

    @staticmethod
    def decode(payload: bytes) -> Topic:
        """The definition in a TOPIC payload."""
        cursor = Cursor(payload, "TOPIC")
        return Topic(cursor.unsigned(4, "topic number"), TopicName.decode(cursor.rest()))


@dataclass(frozen=True, slots=True)
class Issuer:
    """What an issuer number stands for in one direction of a link."""

    number: int
    epoch: int
    issuer: bytes

    def encode(self) -> bytes:
        """The payload of an ISSUER frame."""
        if len(self.issuer) != 16:
            raise ProtocolError(f"an issuer has 16 bytes, not {len(self.issuer)}")
        number = bytes(1) + unsigned(self.number, 3, "issuer number")
        return number + unsigned(self.epoch, 4, "epoch") + self.issuer

    @staticmethod
    def decode(payload: bytes) -> Issuer:
        """The definition in an ISSUER payload."""
        cursor = Cursor(payload, "ISSUER")
        number = cursor.unsigned(4, "issuer number")
        if number >= 1 << 24:
            raise ProtocolError(f"ISSUER: number {number} has more than 24 bits")
        issuer = Issuer(number, cursor.unsigned(4, "epoch"), cursor.take(16, "issuer"))
        cursor.finish()
        return issuer


@dataclass(frozen=True, slots=True)
class Event:
    """One message; what is None or empty takes no bytes."""

    topic: int
    sequence: int
    body: bytes = b""
    issuer: int = 0
    priority: int = NORMAL
    durable: bool = False
    resent: bool = False
    created: int | None = None
    expires: int | None = None
    reply: TopicName | None = None
    correlation: int | None = None
    content_type: str | None = None
    origin: str | None = None  # address of the publisher's node: confirmations are sent there
    properties: dict[str, PropertyValue] = field(default_factory=dict)
    unknown: tuple[tuple[int, bytes], ...] = ()  # tags of later versions, kept and passed on

    def encode(self) -> bytes:
        """The payload of an EVENT frame."""
        if not 0 <= self.priority < PRIORITIES:
            raise ProtocolError(f"priority {self.priority} is not in 0 to {PRIORITIES - 1}")
        extension = b"".join(
            bytes((tag,)) + unsigned(len(value), 2, f"length of item {tag}") + value for tag, value in _items(self)
        )
        flags = self.priority | DURABLE * self.durable | RESENT * self.resent
        if extension:
            flags |= EXT
            extension = unsigned(len(extension), 2, "length of the extension") + extension
        head = unsigned(self.topic, 4, "topic") + bytes((flags,)) + unsigned(self.issuer, 3, "issuer")
        return head + unsigned(self.sequence, 4, "sequence") + extension + self.body

    @staticmethod
    def decode(payload: bytes) -> Event:
        """The message in an EVENT payload."""
        cursor = Cursor(payload, "EVENT")
        topic, flags = cursor.unsigned(4, "topic"), cursor.unsigned(1, "flags")
        issuer, sequence = cursor.unsigned(3, "issuer"), cursor.unsigned(4, "sequence")
        priority = flags & _PRIORITY
        if flags & _RESERVED or priority >= PRIORITIES:
            raise ProtocolError(f"EVENT: flags 0x{flags:02x} have no meaning")
        extension = cursor.take(cursor.unsigned(2, "length of the extension"), "extension") if flags & EXT else b""
        event = Event(
            topic, sequence, cursor.rest(), issuer, priority, durable=bool(flags & DURABLE), resent=bool(flags & RESENT)
        )
        return _with_items(event, extension)


def _items(event: Event) -> list[tuple[int, bytes]]:
    items: list[tuple[int, bytes]] = []
    if event.created is not None:
        items.append((CREATED, signed(event.created, 8, "created")))
    if event.expires is not None:
        items.append((EXPIRES, signed(event.expires, 8, "expires")))
    if event.reply is not None:
        items.append((REPLY, event.reply.encode()))
    if event.correlation is not None:
        items.append((CORRELATION, unsigned(event.correlation, 8, "correlation")))
    if event.content_type is not None:
        items.append((CONTENT_TYPE, event.content_type.encode()))
    if event.origin is not None:
        items.append((ORIGIN, TopicName(event.origin, KIND).encode()[2:]))
    items.extend((PROPERTY, _property(key, value)) for key, value in event.properties.items())
    return items + list(event.unknown)


def _property(key: str, value: PropertyValue) -> bytes:
    name = key.encode()
    head = unsigned(len(name), 1, "length of a property's name") + name
    match value:
        case bool():
            return head + b"b" + bytes((value,))
        case str():
            return head + b"s" + value.encode()
        case int():
            return head + b"i" + signed(value, 8, f"property {key!r}")
        case float():
            return head + b"d" + struct.pack(">d", value)
        case bytes():
            return head + b"x" + value


def _with_items(event: Event, extension: bytes) -> Event:
    found: dict[str, object] = {}
    properties: dict[str, PropertyValue] = {}
    unknown = []
    cursor = Cursor(extension, "EVENT extension")
    while cursor:
        tag = cursor.unsigned(1, "tag")
        raw = cursor.take(cursor.unsigned(2, f"length of item {tag}"), f"item {tag}")
        item = Cursor(raw, f"EVENT item {tag}")
        if tag in (CREATED, EXPIRES):
            found["created" if tag == CREATED else "expires"] = item.signed(8, "time")
            item.finish()
        elif tag == REPLY:
            found["reply"] = TopicName.decode(raw)
        elif tag == CORRELATION:
            found["correlation"] = item.unsigned(8, "correlation")
            item.finish()
        elif tag == CONTENT_TYPE:
            found["content_type"] = item.text(len(raw), "content type")
        elif tag == ORIGIN:
            found["origin"] = TopicName.decode(KIND.encode() + b"\0" + raw).name
        elif tag == PROPERTY:
            key = item.text(item.unsigned(1, "length of the name"), "name")
            properties[key] = _property_value(item)
        else:
            unknown.append((tag, raw))
    return Event(
        event.topic, event.sequence, event.body, event.issuer, event.priority, event.durable, event.resent,
        properties=properties, unknown=tuple(unknown), **found,  # type: ignore[arg-type]
    )  # fmt: skip


def _property_value(item: Cursor) -> PropertyValue:
    kind = chr(item.unsigned(1, "type of the property"))
    value: PropertyValue
    if kind == "i":
        value = item.signed(8, "integer")
    elif kind == "d":
        value = float(struct.unpack(">d", item.take(8, "double"))[0])
    elif kind == "b":
        value = item.take(1, "bool") != b"\0"
    elif kind == "x":
        value = item.rest()
    elif kind == "s":
        rest = item.rest()
        value = Cursor(rest, "EVENT property").text(len(rest), "text")
    else:
        raise ProtocolError(f"EVENT: unknown type of property {kind!r}")
    item.finish()
    return value
