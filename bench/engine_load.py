"""The engine alone, without sockets: CPU and allocator calls for each event as its tables grow."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from typing import Literal

import numpy as np

from chappe.engine._engine import Engine
from chappe.errors import ChappeError
from chappe.wire.constants import ALL_MODES

RECORD = np.dtype([("created", ">i8"), ("variable", ">u4"), ("options", ">u4"), ("value", ">i8")])
RUN = 100  # consecutive variables of one publisher in a frame
QUEUE_BYTES = 64 << 20
SUBSCRIBER_PORTS = 32
TOPICS_A_GROUP = 100


def status_engine(variables: int, layout: Literal["close", "sparse"]) -> tuple[Engine, int, int]:
    """An engine that forwards every event of that many variables from one port to another: (engine, in, out)."""
    engine = Engine(layout=layout)
    engine.clock(time.monotonic_ns(), time.time_ns())
    inward = engine.open_port(issuer=os.urandom(16))
    outward = engine.open_port(issuer=os.urandom(16), queue_bytes=QUEUE_BYTES)
    for variable in range(1, variables + 1):
        engine.status.set_variable(variable, 30, 1_000_000_000, [inward])
        engine.status.setup_path(variable, outward, variable, [0], [3], ALL_MODES)
    return engine, inward, outward


def status_buffers(variables: int, events: int, seed: int) -> list[bytes]:
    """That many events in buffers of at most 240 KB: runs of consecutive variables, the runs in random order."""
    starts = list(range(0, variables, RUN))
    chance = random.Random(seed)
    chosen: list[int] = []
    while len(chosen) * RUN < events:
        chance.shuffle(starts)
        chosen += starts
    records = np.zeros(RUN, RECORD)
    records["created"] = time.time_ns()
    step = np.arange(RUN)
    frames = []
    for i, start in enumerate(chosen[: max(1, events // RUN)]):
        records["variable"] = start + 1 + step
        records["value"] = i
        frames.append(b"\x01" + (RUN * 24).to_bytes(3, "big") + records.tobytes())
    return [b"".join(frames[at : at + 100]) for at in range(0, len(frames), 100)]


def topic_engine(subscriptions: int) -> tuple[Engine, int, list[int], int]:
    """An engine with that many subscriptions, one in a hundred a wildcard: (engine, in, out, topics).

    Each topic has one subscriber of its own and one of its group, however many subscriptions there are.
    """
    engine = Engine()
    engine.clock(time.monotonic_ns(), time.time_ns())
    inward = engine.open_port(issuer=os.urandom(16), max_topics=65536)
    outward = [engine.open_port(issuer=os.urandom(16), queue_bytes=QUEUE_BYTES) for _ in range(SUBSCRIBER_PORTS + 1)]
    topics = subscriptions * TOPICS_A_GROUP // (TOPICS_A_GROUP + 1)
    for i in range(topics):
        engine.topics.subscribe(outward[i % SUBSCRIBER_PORTS], topic(i))
    for group in range((topics + TOPICS_A_GROUP - 1) // TOPICS_A_GROUP):
        engine.topics.subscribe(outward[SUBSCRIBER_PORTS], f"plant/g{group}/#")  # a port gets one copy
    return engine, inward, outward, topics


def topic(index: int) -> str:
    return f"plant/g{index // TOPICS_A_GROUP}/n{index}"


def event_buffers(topics: int, messages: int, seed: int) -> tuple[bytes, list[bytes]]:
    """Definitions of at most 10,000 of the topics, and buffers of 64 B events over them in random order."""
    chance = random.Random(seed)
    used = chance.sample(range(topics), min(topics, 10_000))
    definitions = b"".join(
        _frame(0x12, (number + 1).to_bytes(4, "big") + b"s\x00" + topic(index).encode())
        for number, index in enumerate(used)
    )
    body = b"x" * 64
    numbers = [chance.randrange(len(used)) + 1 for _ in range(messages)]
    frames = [
        _frame(0x02, number.to_bytes(4, "big") + b"\x03\x00\x00\x00" + (i + 1).to_bytes(4, "big") + body)
        for i, number in enumerate(numbers)
    ]
    return definitions, [b"".join(frames[at : at + 1000]) for at in range(0, messages, 1000)]


def pump(engine: Engine, inward: int, outward: Iterable[int], buffers: list[bytes], expected: int) -> float:
    """CPU seconds to feed all buffers and take what comes out; ChappeError unless that is `expected` deliveries."""
    before = _deliveries(engine)
    ports = tuple(outward)
    feed, peek, consumed = engine.feed, engine.peek, engine.consumed
    start = time.process_time_ns()
    for buffer in buffers:
        feed(inward, buffer)
        for port in ports:
            while count := len(peek(port)):
                consumed(port, count)
    spent_s = (time.process_time_ns() - start) / 1e9
    if _deliveries(engine) - before != expected:
        raise ChappeError(f"the engine delivered {_deliveries(engine) - before} of {expected}: {engine.counters()}")
    return spent_s


def _deliveries(engine: Engine) -> int:
    counters = engine.counters()
    return counters["status_out"] + counters["events_out"]


def steady_allocations(layout: Literal["close", "sparse"], variables: int, events: int) -> float:
    """Allocator calls of the engine for each event, after one pass over all variables."""
    engine, inward, outward = status_engine(variables, layout)
    first = max(events, variables)
    pump(engine, inward, (outward,), status_buffers(variables, first, 1), first)
    before = engine.allocations
    pump(engine, inward, (outward,), status_buffers(variables, events, 2), events)
    return (engine.allocations - before) / events


def _frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(3, "big") + payload
