"""A simulated client of a node: it publishes, subscribes, makes requests, and remembers what it got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from chappe.sim._pump import Reader
from chappe.sim.clock import Clock
from chappe.sim.codec import Codec
from chappe.wire.addresses import KIND, inbox_address
from chappe.wire.base import Answer, Command, Message, Request
from chappe.wire.control import Subscribe, Unsubscribe
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.status import Record, decode_status

SEQUENCE = 12  # place of the sequence in the frame of an event without extension


class Host(Protocol):
    """The node of a client."""

    name: str
    clock: Clock
    codec: Codec

    @property
    def now_ns(self) -> int: ...
    @property
    def location(self) -> str:
        """Its address."""

    def open_client(self, client: Client) -> int:
        """Attach it; the port that carries it."""

    def close_client(self, client: Client, leaves: bool = False) -> None:
        """End its connection; `leaves`: with a goodbye."""

    def subscribe_address(self, port: int, address: str, on: bool) -> None:
        """What is sent to an address at this node goes to that port, or no more."""

    def feed(self, port: int, piece: bytes) -> None:
        """Bytes of the client."""


class Arrival(NamedTuple):
    """An event that a client got."""

    when_ns: int
    issuer: bytes  # of the client that published it
    sequence: int
    topic: str


class ValueArrival(NamedTuple):
    """A value of a variable that a client got."""

    when_ns: int
    record: Record


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client subscribed to, and since when."""

    pattern: str
    kind: str
    group: str
    since_ns: int


class EventReader:
    """Follows what a node sends to a client, for those who need what an event says."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self._topics: dict[int, str] = {}

    def events(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        """Topic and body of each event that is complete with this piece."""
        for frame in self._frames.feed(piece):
            if frame.kind is Kind.TOPIC:
                topic = Topic.decode(frame.payload)
                self._topics[topic.number] = str(topic.topic.name)
            elif frame.kind is Kind.EVENT:
                event = Event.decode(frame.payload)
                yield self._topics[event.topic], event.body


class Client:
    """A program that stays with one node: while the node is down it waits, then it attaches and subscribes again.

    Other requests than subscriptions it does not repeat: `on_attach` is called after each time it was attached.
    """

    def __init__(self, node: Host, name: str, issuer: bytes, internal: bool = False) -> None:
        self.node = node
        self.name = name
        self.issuer = issuer
        self.internal = internal  # the worker of its node
        self.port = -1
        self.subscriptions: list[Subscription] = []
        self.arrivals: list[Arrival] = []
        self.values: list[ValueArrival] = []
        self.answers: dict[int, Message] = {}  # by the id of the request
        self.notices: list[Message] = []  # messages that answer nothing
        self.on_arrival: Callable[[Client, Arrival], None] | None = None  # instead of the list
        self.on_value: Callable[[Client, ValueArrival], None] | None = None  # instead of the list
        self.on_records: Callable[[bytes], None] | None = None  # whole payloads, before they are decoded
        self.on_answer: Callable[[Client, Message], None] | None = None  # beside `answers` and `notices`
        self.on_event: Callable[[str, bytes], None] | None = None  # topic and body, beside the arrival
        self.on_attach: Callable[[Client], None] | None = None
        self.published = 0  # sequence of the last event
        self.received = 0
        self._requests = 0
        self._topics: dict[tuple[str, str], int] = {}
        self._reader = Reader()
        self._bodies = EventReader()

    @property
    def attached(self) -> bool:
        return self.port >= 0

    def attach(self) -> None:
        """The node runs: connect, and subscribe to what was subscribed to before."""
        self.port = self.node.open_client(self)
        self._topics = {}
        self._reader, self._bodies = Reader(), EventReader()
        subscriptions, self.subscriptions = self.subscriptions, []
        for each in subscriptions:
            self.subscribe(each.pattern, each.kind, each.group)
        if self.on_attach is not None:
            self.on_attach(self)

    def detach(self) -> None:
        """The node is gone, or has ended the connection."""
        self.port = -1

    def leave(self) -> None:
        """Say goodbye: everything it has is over."""
        if self.attached:
            self.node.close_client(self, leaves=True)

    # --- requests

    def request(self, make: Callable[..., Request | Command], /, **fields: Any) -> int:
        """Send a request; the number under which its answer will be in `answers`, 0 while the node is down."""
        if not self.attached:
            return 0
        self._requests += 1
        self.send(make(id=self._requests, **fields))
        return self._requests

    def send(self, message: Message) -> None:
        """Send any message."""
        self.node.feed(self.port, self.node.codec.encode(message))

    def publish_value(self, variable_id: int, created_ns: int, value: bytes) -> None:
        """Publish eight bytes as the value of a variable that this client registered."""
        self.publish_records(Record(created_ns, variable_id, value).encode())

    def publish_records(self, records: bytes) -> None:
        """Publish values of several variables, encoded, in one frame."""
        self.node.feed(self.port, encode_frame(Kind.STATUS, records))

    # --- events

    def subscribe(self, pattern: str, kind: str = "s", group: str = "") -> None:
        """Get what is published to matching topics; while the node is down, as soon as it is back."""
        self.subscriptions.append(Subscription(pattern, kind, group, self.node.now_ns))
        if not self.attached:
            return
        if kind == KIND:
            self.node.subscribe_address(self.port, pattern, True)
        else:
            self.request(Subscribe, pattern=pattern, kind=kind, group=group)

    def unsubscribe(self, pattern: str, kind: str = "s", group: str = "") -> None:
        """Get it no more."""
        key = (pattern, kind, group)
        self.subscriptions = [each for each in self.subscriptions if (each.pattern, each.kind, each.group) != key]
        if not self.attached:
            return
        if kind == KIND:
            self.node.subscribe_address(self.port, pattern, False)
        else:
            self.request(Unsubscribe, pattern=pattern, kind=kind, group=group)

    def open_inbox(self, id: bytes) -> str:
        """An inbox at the node, as long as it runs and again when it is back; its address."""
        address = inbox_address(self.node.location, id)
        self.subscribe(address, KIND)
        return address

    def publish(self, topic: str, body: bytes = b"", count: int = 1, priority: int = 3, kind: str = "s") -> int:
        """Give so many events to the node in one buffer; the sequence of the last, or 0 if the node is down."""
        if not self.attached:
            return 0
        number = self._topics.get((kind, topic))
        frames = []
        if number is None:
            number = self._topics[kind, topic] = len(self._topics) + 1
            frames.append(encode_frame(Kind.TOPIC, Topic(number, TopicName(topic, kind)).encode()))
        first = self.published + 1
        self.published += count
        head = encode_frame(Kind.EVENT, Event(number, 0, body, priority=priority).encode())[:SEQUENCE]
        frames.extend(head + sequence.to_bytes(4, "big") + body for sequence in range(first, first + count))
        self.node.feed(self.port, b"".join(frames))
        return self.published

    # --- what comes

    def take(self, piece: bytes) -> None:
        """Bytes that the node sent."""
        now_ns = self.node.now_ns
        reader = self._reader
        for issuer, sequence, topic, _ in reader.events(piece):
            arrival = Arrival(now_ns, issuer or b"", sequence, (topic or b"").decode())
            self.received += 1
            if self.on_arrival is None:
                self.arrivals.append(arrival)
            else:
                self.on_arrival(self, arrival)
        if self.on_event is not None:
            for topic_name, body in self._bodies.events(piece):
                self.on_event(topic_name, body)
        if reader.control:
            payloads, reader.control = reader.control, []
            for payload in payloads:
                self._answered(self.node.codec.decode(payload))
        if reader.status:
            payloads, reader.status = reader.status, []
            for payload in payloads:
                if self.on_records is not None:
                    self.on_records(payload)
                else:
                    self._valued(payload, now_ns)

    def _answered(self, message: Message) -> None:
        if isinstance(message, Answer) and message.id:
            self.answers[message.id] = message
        else:
            self.notices.append(message)
        if self.on_answer is not None:
            self.on_answer(self, message)

    def _valued(self, payload: bytes, now_ns: int) -> None:
        for record in decode_status(payload):
            arrival = ValueArrival(now_ns, record)
            if self.on_value is None:
                self.values.append(arrival)
            else:
                self.on_value(self, arrival)

    def repeats(self) -> list[Arrival]:
        """Events that came more than once."""
        seen: set[tuple[bytes, int]] = set()
        found = []
        for arrival in self.arrivals:
            key = (arrival.issuer, arrival.sequence)
            if key in seen:
                found.append(arrival)
            seen.add(key)
        return found

    def disorder(self) -> list[Arrival]:
        """Events that came after a later one of their publisher on the same topic."""
        newest: dict[tuple[bytes, str], int] = {}
        found = []
        for arrival in self.arrivals:
            key = (arrival.issuer, arrival.topic)
            if arrival.sequence < newest.get(key, 0):
                found.append(arrival)
            newest[key] = max(newest.get(key, 0), arrival.sequence)
        return found
