"""Chappe's own client: `publish` until the queue is full, then `drain`; one message at a time on arrival."""

from __future__ import annotations

import time

import chappe
from bench.clients.common import PING, PONG, TOPIC, Ready, Sequence, message
from bench.peers import chappe as node

PACKAGE = "chappe"
COUNT = 1_000_000
BROKER = node.PEER


def _address(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


async def publish(port: int, count: int) -> int:
    async with chappe.connect(_address(port)) as connection:
        send = connection.publish
        began_ns = time.monotonic_ns()
        for i in range(count):
            body = message(i)
            while not send(TOPIC, body):
                await connection.drain()
        await connection.flush()
    return began_ns


async def subscribe(port: int, count: int, ready: Ready) -> int:
    async with chappe.connect(_address(port)) as connection:
        stream = await connection.subscribe(TOPIC, backpressure=True)
        ready()
        seen = Sequence(count)
        async for arrived in stream:
            if seen.check(arrived.body):
                break
        return time.monotonic_ns()


async def ping(port: int, rounds: int) -> list[int]:
    times_ns = []
    async with chappe.connect(_address(port)) as connection:
        back = (await connection.subscribe(PONG)).__aiter__()
        for i in range(rounds):
            start = time.perf_counter_ns()
            connection.publish(PING, message(i))
            await anext(back)
            times_ns.append(time.perf_counter_ns() - start)
    return times_ns


async def pong(port: int, rounds: int, ready: Ready) -> None:
    async with chappe.connect(_address(port)) as connection:
        stream = await connection.subscribe(PING)
        ready()
        seen = Sequence(rounds)
        async for arrived in stream:
            connection.publish(PONG, arrived.body)
            if seen.check(arrived.body):
                break
        await connection.flush()
