"""nats-py: a callback a subscription, limits wide open, a flush every few thousand messages."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import nats

from bench.clients.common import PING, PONG, TOPIC, Ready, Sequence, message
from bench.peers import nats as server

PACKAGE = "nats-py"
COUNT = 100_000
BROKER = server.PEER
LIMITS = {"pending_msgs_limit": 1 << 30, "pending_bytes_limit": 1 << 40}


async def _connect(port: int) -> Any:
    return await nats.connect(f"nats://127.0.0.1:{port}", pending_size=64 << 20)


def _subject(topic: str) -> str:
    return topic.replace("/", ".")


async def publish(port: int, count: int) -> int:
    connection = await _connect(port)
    subject = _subject(TOPIC)
    began_ns = time.monotonic_ns()
    for i in range(count):
        await connection.publish(subject, message(i))
        if i % 4096 == 4095:
            await connection.flush()
    await connection.flush()
    await connection.close()
    return began_ns


async def subscribe(port: int, count: int, ready: Ready) -> int:
    connection = await _connect(port)
    seen, done = Sequence(count), asyncio.Event()

    async def received(arrived: Any) -> None:
        if seen.check(arrived.data):
            done.set()

    await connection.subscribe(_subject(TOPIC), cb=received, **LIMITS)
    await connection.flush()
    ready()
    await done.wait()
    ended_ns = time.monotonic_ns()
    await connection.close()
    return ended_ns


async def ping(port: int, rounds: int) -> list[int]:
    connection = await _connect(port)
    back = await connection.subscribe(_subject(PONG), **LIMITS)
    await connection.flush()
    times_ns = []
    for i in range(rounds):
        start = time.perf_counter_ns()
        await connection.publish(_subject(PING), message(i))
        await back.next_msg(timeout=5)
        times_ns.append(time.perf_counter_ns() - start)
    await connection.close()
    return times_ns


async def pong(port: int, rounds: int, ready: Ready) -> None:
    connection = await _connect(port)
    seen, done = Sequence(rounds), asyncio.Event()

    async def received(arrived: Any) -> None:
        await connection.publish(_subject(PONG), arrived.data)
        if seen.check(arrived.data):
            done.set()

    await connection.subscribe(_subject(PING), cb=received, **LIMITS)
    await connection.flush()
    ready()
    await done.wait()
    await connection.flush()
    await connection.close()
