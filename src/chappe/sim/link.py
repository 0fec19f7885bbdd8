"""A modelled link: what happens to bytes between two nodes.

Each direction is a `Pipe`: a queue in front of a line of some rate, then the way with its delay, jitter and loss. A
stream keeps its order and loses nothing while the line is up: a lost packet is sent again and what is behind it waits,
as in TCP. Datagrams are lost, and overtake each other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from chappe.errors import ConfigError
from chappe.sim.clock import Clock

PACKET = 1448  # bytes of a TCP segment on Ethernet
JITTERS = ("exponential", "normal", "uniform")


@dataclass(frozen=True, slots=True)
class Quality:
    """What one direction of a link is like at a time."""

    delay_ms: float = 1.0  # of a packet that meets no queue: the least
    jitter_ms: float = 0.0  # mean of what is added to it
    jitter: str = "exponential"  # or `normal` (its absolute value), `uniform` (from 0 to twice the mean)
    loss: float = 0.0  # share of packets
    rate: float = math.inf  # bytes a second
    queue_bytes: int = 1 << 20  # in front of the line

    def __post_init__(self) -> None:
        if not 0 <= self.delay_ms < math.inf or not 0 <= self.jitter_ms < math.inf:
            raise ConfigError(
                f"a delay of {self.delay_ms} ms with {self.jitter_ms} ms of jitter: both are finite, 0 or more"
            )
        if self.jitter not in JITTERS:
            raise ConfigError(f"jitter {self.jitter!r} is unknown, use one of {', '.join(JITTERS)}")
        if not 0 <= self.loss < 0.5:
            raise ConfigError(
                f"a loss of {self.loss}: a share from 0 to below 0.5, above that a stream makes no progress"
            )
        if not self.rate > 0 or self.queue_bytes < PACKET:
            raise ConfigError(
                f"a line of {self.rate} bytes/s with a queue of {self.queue_bytes}: at least one packet of {PACKET}"
            )


class Pipe:
    """One direction of a link. Every byte put in is delivered, lost, dropped, or on its way; `balance` is always 0.

    Arrivals are put off to the next whole `grain_ns`: what arrives at one instant costs a node one pass.
    """

    def __init__(
        self, clock: Clock, rng: random.Random, quality: Quality, deliver: Callable[[bytes], None], grain_ns: int = 1
    ) -> None:
        self.quality = quality
        self.sent = self.delivered = self.lost = self.dropped = 0  # bytes
        self.packets = self.resent = self.overflows = 0
        self._clock = clock
        self._rng = rng
        self._deliver = deliver
        self._grain_ns = grain_ns
        self._busy_ns = 0  # when the line is free again
        self._last_ns = 0  # when the last byte of the stream arrives
        self._flying = 0
        self._cuts = 0

    @property
    def in_flight(self) -> int:
        """Bytes in the queue and on the way."""
        return self._flying

    @property
    def balance(self) -> int:
        """Bytes that nobody can account for."""
        return self.sent - self.delivered - self.lost - self.dropped - self._flying

    def queued(self) -> int:
        """Bytes in front of the line."""
        if self.quality.rate == math.inf:
            return 0
        return max(0, math.ceil((self._busy_ns - self._clock.now_ns) * self.quality.rate / 1e9))

    def room(self) -> int:
        """Bytes that the queue takes now."""
        return max(0, self.quality.queue_bytes - self.queued())

    def room_ns(self) -> int:
        """When the queue is half empty."""
        drained = self.quality.queue_bytes / 2 / self.quality.rate * 1e9
        return max(self._clock.now_ns + 1, math.ceil(self._busy_ns - drained))

    def push(self, piece: bytes) -> None:
        """Bytes of a stream; the caller looks at `room` first, what is too much for the queue is a fault of its own."""
        quality = self.quality
        if quality.rate == math.inf:
            self._push(piece, quality)
            return
        for start in range(0, len(piece), PACKET):
            self._push(piece[start : start + PACKET], quality)

    def _push(self, piece: bytes, quality: Quality) -> None:
        arrival_ns = self._leaves_ns(len(piece), quality) + self._travel_ns(quality)
        if quality.loss:
            arrival_ns += self._resend_ns(-(-len(piece) // PACKET), quality)
        self._last_ns = max(self._last_ns, arrival_ns)
        self._fly(piece, self._last_ns)

    def push_datagram(self, datagram: bytes) -> bool:
        """One datagram; False if the queue had no room. It may be lost all the same."""
        quality = self.quality
        if len(datagram) > self.room():
            self.sent += len(datagram)
            self.dropped += len(datagram)
            self.overflows += 1
            return False
        leaves_ns = self._leaves_ns(len(datagram), quality)
        if quality.loss and self._rng.random() < quality.loss:
            self.sent += len(datagram)
            self.packets += 1
            self.lost += len(datagram)
            return True
        self._fly(datagram, leaves_ns + self._travel_ns(quality))
        return True

    def cut(self) -> None:
        """What is queued and on its way is lost."""
        self._cuts += 1
        self.lost += self._flying
        self._flying = 0
        self._busy_ns = self._last_ns = 0

    def waste(self, size: int) -> None:
        """Bytes that were sent when nobody was there any more."""
        self.sent += size
        self.lost += size

    def after_last(self, call: Callable[..., None], *arguments: object) -> None:
        """Call it behind the last byte of the stream, as the end of a connection arrives."""
        arrival_ns = max(self._last_ns, self._clock.now_ns + round(self.quality.delay_ms * 1e6))
        self._clock.at(arrival_ns, call, *arguments)

    def _leaves_ns(self, size: int, quality: Quality) -> int:
        now_ns = self._clock.now_ns
        if quality.rate == math.inf:
            return now_ns
        self._busy_ns = max(self._busy_ns, now_ns) + math.ceil(size / quality.rate * 1e9)
        return self._busy_ns

    def _travel_ns(self, quality: Quality) -> int:
        extra_ms = 0.0
        if quality.jitter_ms:
            if quality.jitter == "exponential":
                extra_ms = self._rng.expovariate(1 / quality.jitter_ms)
            elif quality.jitter == "uniform":
                extra_ms = self._rng.uniform(0, 2 * quality.jitter_ms)
            else:
                extra_ms = abs(self._rng.gauss(0, quality.jitter_ms * math.sqrt(math.pi / 2)))
        return round((quality.delay_ms + extra_ms) * 1e6)

    def _resend_ns(self, packets: int, quality: Quality) -> int:
        """A round trip for a packet lost once, twice as long for each further time: the worst packet counts."""
        worst = 0.0
        for _ in range(packets):
            wait = 2 * quality.delay_ms * 1e6
            late = 0.0
            while self._rng.random() < quality.loss:
                self.resent += 1
                late += wait
                wait *= 2
            worst = max(worst, late)
        return round(worst)

    def _fly(self, piece: bytes, arrival_ns: int) -> None:
        self.sent += len(piece)
        self.packets += 1
        self._flying += len(piece)
        grain_ns = self._grain_ns
        self._clock.at(-(-arrival_ns // grain_ns) * grain_ns, self._land, piece, self._cuts)

    def _land(self, piece: bytes, cuts: int) -> None:
        if cuts != self._cuts:
            return
        self._flying -= len(piece)
        self.delivered += len(piece)
        self._deliver(piece)
