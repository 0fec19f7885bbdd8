"""What each client module offers, and the messages they all send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bench.peers.common import Peer
from chappe.errors import ChappeError

SIZE = 64
PAD = b"x" * (SIZE - 8)
TOPIC, PING, PONG = "bench/stream", "bench/ping", "bench/pong"
Ready = Callable[[], None]


class Client(Protocol):
    """A client module. `ready` is called when the subscription is in place; each message is checked on arrival."""

    PACKAGE: str  # distribution whose version is shown
    COUNT: int  # messages that take about a second
    BROKER: Peer | None  # what runs between the two processes

    async def publish(self, port: int, count: int) -> int: ...  # when it began, monotonic ns

    async def subscribe(self, port: int, count: int, ready: Ready) -> int: ...  # when the last one arrived

    async def ping(self, port: int, rounds: int) -> list[int]: ...

    async def pong(self, port: int, rounds: int, ready: Ready) -> None: ...


def message(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big") + PAD


class Sequence:
    """Counts messages and raises at the first that is missing, repeated or out of order."""

    def __init__(self, count: int) -> None:
        self.next = 0
        self.count = count

    def check(self, body: bytes | memoryview) -> bool:
        """True when the last one has arrived."""
        got = int.from_bytes(body[:8], "big")
        if got != self.next:
            raise ChappeError(f"message {got} arrived where {self.next} was due")
        self.next = got + 1
        return self.next == self.count
