"""aiomqtt with QoS 0 through Mosquitto."""

from __future__ import annotations

import time

import aiomqtt

from bench.clients.common import PING, PONG, TOPIC, Ready, Sequence, message
from bench.peers import mosquitto

PACKAGE = "aiomqtt"
COUNT = 10_000
BROKER = mosquitto.PEER


def _client(port: int) -> aiomqtt.Client:
    client = aiomqtt.Client("127.0.0.1", port)
    client.pending_calls_threshold = 1 << 30  # a warning, not a limit
    return client


async def publish(port: int, count: int) -> int:
    async with _client(port) as client:
        began_ns = time.monotonic_ns()
        for i in range(count):
            await client.publish(TOPIC, message(i), qos=0)
        return began_ns


async def subscribe(port: int, count: int, ready: Ready) -> int:
    async with _client(port) as client:
        await client.subscribe(TOPIC, qos=0)
        ready()
        seen = Sequence(count)
        async for arrived in client.messages:
            if seen.check(_body(arrived)):
                break
        return time.monotonic_ns()


async def ping(port: int, rounds: int) -> list[int]:
    times_ns = []
    async with _client(port) as client:
        await client.subscribe(PONG, qos=0)
        back = client.messages.__aiter__()
        for i in range(rounds):
            start = time.perf_counter_ns()
            await client.publish(PING, message(i), qos=0)
            await anext(back)
            times_ns.append(time.perf_counter_ns() - start)
    return times_ns


async def pong(port: int, rounds: int, ready: Ready) -> None:
    async with _client(port) as client:
        await client.subscribe(PING, qos=0)
        ready()
        seen = Sequence(rounds)
        async for arrived in client.messages:
            await client.publish(PONG, _body(arrived), qos=0)
            if seen.check(_body(arrived)):
                return


def _body(arrived: aiomqtt.Message) -> bytes:
    assert isinstance(arrived.payload, bytes)
    return arrived.payload
