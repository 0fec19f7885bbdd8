"""Topics as a client names them: text in levels, integers, longs, addresses; and which patterns they match."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.errors import ProtocolError
from chappe.wire.addresses import KIND, Address, check_address
from chappe.wire.events import TOPIC_LIMIT, TopicName, check_topic
from chappe.wire.topics import pattern_problem

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Long:
    """A topic that is a number of 64 bits; a plain int is a topic of 32 bits."""

    value: int

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise TypeError(f"a long topic is an int, not {type(self.value).__name__}")
        if not -(1 << 63) <= self.value < 1 << 63:
            raise ValueError(f"long topic {self.value} does not fit into 64 bits")


Topic = str | int | Long | Address


@dataclass(frozen=True, slots=True)
class Advertisement:
    """What a client advertises to publish; `Client.withdraw` takes it back."""

    kind: str
    pattern: str


def topic_name(topic: Topic) -> TopicName:
    """The topic in wire terms; TypeError or ValueError says why nobody may publish to it."""
    match topic:
        case bool():
            raise TypeError("a topic is a str, an int, a chappe.Long or a chappe.Address, not bool")
        case str():
            try:
                check_topic(topic)
            except ProtocolError as error:
                raise ValueError(str(error)) from None
            return TopicName(topic)
        case int():
            if not INT_MIN <= topic <= INT_MAX:
                raise ValueError(f"integer topic {topic} does not fit into 32 bits: use chappe.Long({topic})")
            return TopicName(topic, "i")
        case Long():
            return TopicName(topic.value, "l")
        case Address():
            try:
                check_address(topic.text)
            except ProtocolError as error:
                raise ValueError(str(error)) from None
            return TopicName(topic.text, KIND)
    raise TypeError(f"a topic is a str, an int, a chappe.Long or a chappe.Address, not {type(topic).__name__}")


def encode_topic(topic: Topic) -> bytes:
    """The topic as in a TOPIC frame, without its number."""
    return topic_name(topic).encode()


def public_topic(name: TopicName) -> Topic:
    """A topic of the wire as a client sees it."""
    if isinstance(name.name, str):
        return Address(name.name) if name.kind == KIND else name.name
    return Long(name.name) if name.kind == "l" else name.name


def pattern_text(pattern: Topic) -> tuple[str, str]:
    """Kind and text of a subscription pattern; ValueError says what is wrong with it."""
    if not isinstance(pattern, str):
        name = topic_name(pattern)
        return name.kind, str(name.name)
    size = len(pattern.encode())
    if not 1 <= size <= TOPIC_LIMIT:
        raise ValueError(f"a topic pattern has 1 to {TOPIC_LIMIT} bytes, not {size}")
    problem = pattern_problem(pattern)
    if problem:
        raise ValueError(f"pattern {pattern!r}: {problem}")
    return "s", pattern
