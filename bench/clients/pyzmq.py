"""pyzmq: asyncio sockets through libzmq's XSUB/XPUB proxy."""

from __future__ import annotations

import asyncio
import time

import zmq
import zmq.asyncio

from bench.clients.common import PING, PONG, TOPIC, Ready, Sequence, message
from bench.peers import zeromq

PACKAGE = "pyzmq"
COUNT = 100_000
BROKER = zeromq.PEER
JOIN_S = 0.5  # ZeroMQ does not say when a subscription is in place


def _open(kind: int, port: int) -> zmq.asyncio.Socket:
    sock = zmq.asyncio.Context.instance().socket(kind)
    sock.set_hwm(0)
    sock.connect(f"tcp://127.0.0.1:{port + (1 if kind == zmq.SUB else 0)}")
    return sock


def _prefix(topic: str) -> bytes:
    return topic.encode() + b"\0"


async def publish(port: int, count: int) -> int:
    sock = _open(zmq.PUB, port)
    await asyncio.sleep(JOIN_S)
    prefix = _prefix(TOPIC)
    began_ns = time.monotonic_ns()
    for i in range(count):
        await sock.send(prefix + message(i))
    sock.close(linger=-1)
    zmq.asyncio.Context.instance().term()
    return began_ns


async def subscribe(port: int, count: int, ready: Ready) -> int:
    sock = _open(zmq.SUB, port)
    prefix = _prefix(TOPIC)
    sock.subscribe(prefix)
    await asyncio.sleep(JOIN_S)
    ready()
    seen, skip = Sequence(count), len(prefix)
    while not seen.check((await sock.recv())[skip:]):
        pass
    ended_ns = time.monotonic_ns()
    sock.close()
    return ended_ns


async def ping(port: int, rounds: int) -> list[int]:
    out, back = _open(zmq.PUB, port), _open(zmq.SUB, port)
    back.subscribe(_prefix(PONG))
    await asyncio.sleep(JOIN_S)
    times_ns = []
    for i in range(rounds):
        start = time.perf_counter_ns()
        await out.send(_prefix(PING) + message(i))
        async with asyncio.timeout(5):
            await back.recv()
        times_ns.append(time.perf_counter_ns() - start)
    out.close()
    back.close()
    return times_ns


async def pong(port: int, rounds: int, ready: Ready) -> None:
    out, back = _open(zmq.PUB, port), _open(zmq.SUB, port)
    back.subscribe(_prefix(PING))
    await asyncio.sleep(JOIN_S)
    ready()
    seen, skip = Sequence(rounds), len(_prefix(PING))
    last = False
    while not last:
        body = (await back.recv())[skip:]
        await out.send(_prefix(PONG) + body)
        last = seen.check(body)
    out.close(linger=1000)
    back.close()
