"""A simulated client of a node: it publishes, subscribes, and remembers what it got."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chappe.sim._pump import Reader
from chappe.wire.addresses import KIND, inbox_address
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import Kind, encode_frame

if TYPE_CHECKING:
    from chappe.sim.node import Node

SEQUENCE = 12  # place of the sequence in the frame of an event without extension


class Arrival(NamedTuple):
    """An event that a client got."""

    when_ns: int
    issuer: bytes  # of the client that published it
    sequence: int
    topic: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client subscribed to, and since when."""

    pattern: str
    kind: str
    group: str
    since_ns: int


class Client:
    """A program that stays with one node: while the node is down it waits, then it attaches and subscribes again."""

    def __init__(self, node: Node, name: str, issuer: bytes) -> None:
        self.node = node
        self.name = name
        self.issuer = issuer
        self.port = -1
        self.wishes: list[Wish] = []
        self.arrivals: list[Arrival] = []
        self.on_arrival: Callable[[Client, Arrival], None] | None = None  # instead of the list
        self.published = 0  # sequence of the last event
        self.received = 0
        self._topics: dict[tuple[str, str], int] = {}
        self._reader = Reader()

    @property
    def attached(self) -> bool:
        return self.port >= 0

    def attach(self) -> None:
        """The node runs: connect, and subscribe to what was wanted before."""
        self.port = self.node.open_client(self)
        self._topics = {}
        self._reader = Reader()
        wishes, self.wishes = self.wishes, []
        for wish in wishes:
            self.subscribe(wish.pattern, wish.kind, wish.group)

    def detach(self) -> None:
        """The node is gone."""
        self.port = -1

    def subscribe(self, pattern: str, kind: str = "s", group: str = "") -> None:
        """Want what is published to matching topics; while the node is down, as soon as it is back."""
        self.wishes.append(Wish(pattern, kind, group, self.node.clock.now_ns))
        if self.attached:
            self.node.subscribe(self.port, pattern, kind, group)

    def unsubscribe(self, pattern: str, kind: str = "s", group: str = "") -> None:
        """Want it no more."""
        self.wishes = [wish for wish in self.wishes if (wish.pattern, wish.kind, wish.group) != (pattern, kind, group)]
        if self.attached:
            self.node.unsubscribe(self.port, pattern, kind, group)

    def open_inbox(self, id: bytes) -> str:
        """An inbox at the node, as long as it runs and again when it is back; its address."""
        address = inbox_address(str(self.node.address), id)
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

    def take(self, piece: bytes) -> None:
        """Bytes that the node sent."""
        now_ns = self.node.clock.now_ns
        for issuer, sequence, topic, _ in self._reader.events(piece):
            arrival = Arrival(now_ns, issuer or b"", sequence, (topic or b"").decode())
            self.received += 1
            if self.on_arrival is None:
                self.arrivals.append(arrival)
            else:
                self.on_arrival(self, arrival)

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
