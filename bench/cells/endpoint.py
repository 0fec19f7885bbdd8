"""One end of a flow, as a process: `send` or `receive` messages by name, or `pour` and `drain` a plain TCP stream.

It prints lines of JSON: what has come or gone after how many seconds, and a last one with `"done": true`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import signal
import socket
import threading
import time
from collections.abc import Coroutine
from typing import Any

import uvloop

import chappe

EVERY_S = 0.25
KNOWN_S = 30.0
UNDER_WAY = 512  # messages that are sent at once


def uvloop_run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def _report(began: float, count: dict[str, int]) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        say(seconds=time.monotonic() - began, **count)


async def send(
    url: str, name: str, to: str, messages: int, size: int, seconds: float, settle: float, seed: int
) -> None:  # fmt: skip
    """Messages that can be told apart, until all are confirmed; `seconds` ends it earlier.

    `settle`: it begins so long after the name is known, when lines have been measured.
    """
    body = random.Random(seed).randbytes(size)
    count = {"messages": 0, "bytes": 0}
    async with chappe.connect(url, name=f"{name}-client") as client, client.cell(name) as cell:
        async with asyncio.timeout(KNOWN_S):
            while not any(row["name"] == to for row in await cell.names(to)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(settle)
        began = time.monotonic()
        reporting = asyncio.create_task(_report(began, count))
        slots = asyncio.Semaphore(UNDER_WAY)
        digest = hashlib.sha256()

        async def one(message: bytes) -> None:
            try:
                await cell.send(to, message)
                count["messages"] += 1
                count["bytes"] += size
            finally:
                slots.release()

        async with asyncio.TaskGroup() as tasks:
            for number in range(messages):
                if seconds and time.monotonic() - began > seconds:
                    break
                await slots.acquire()
                message = number.to_bytes(8, "big") + body[8:]
                digest.update(message)
                tasks.create_task(one(message))
        reporting.cancel()
        took_s = time.monotonic() - began
        say(done=True, seconds=took_s, **count, digest=digest.hexdigest(), routes=await cell.routes(to))


async def receive(url: str, name: str) -> None:
    """Everything that comes, until it is terminated."""
    count = {"messages": 0, "bytes": 0, "doubled": 0, "disordered": 0}
    digest, last, seen = hashlib.sha256(), -1, set[int]()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with chappe.connect(url, name=f"{name}-client") as client, client.cell(name) as cell:

        async def take() -> None:
            nonlocal last
            async for message in cell:
                number = int.from_bytes(message.body[:8], "big")
                count["messages"] += 1
                count["bytes"] += len(message.body)
                count["doubled"] += number in seen
                count["disordered"] += number < last
                seen.add(number)
                last = max(last, number)
                digest.update(message.body)

        say(ready=True)
        taking = asyncio.create_task(take())
        reporting = asyncio.create_task(_report(time.monotonic(), count))
        await asyncio.wait({taking, asyncio.create_task(ended.wait())}, return_when=asyncio.FIRST_COMPLETED)
        reporting.cancel()
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await taking
        say(done=True, **count, digest=digest.hexdigest())


def pour(address: str, port: int, streams: int, seconds: float) -> None:
    """Bytes over so many TCP connections at once, until the time is over and the other end has them all."""
    block = bytes(1 << 16)
    count = [0] * streams
    began = time.monotonic()

    def one(at: int) -> None:
        with socket.create_connection((address, port)) as stream:
            while time.monotonic() - began < seconds:
                stream.sendall(block)
                count[at] += len(block)
            stream.shutdown(socket.SHUT_WR)
            stream.recv(1)

    threads = [threading.Thread(target=one, args=(at,)) for at in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(done=True, bytes=sum(count), seconds=time.monotonic() - began)


def drain(address: str, port: int) -> None:
    """Read every connection to its end, until it is terminated."""

    def one(stream: socket.socket) -> None:
        room = bytearray(1 << 18)
        with stream, contextlib.suppress(OSError):
            while stream.recv_into(room):
                pass

    server = socket.create_server((address, port))

    say(ready=True)
    while True:
        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


async def write(port: int, messages: int, size: int) -> None:
    """Messages behind their length over one plain stream."""
    _, stream = await asyncio.open_connection("127.0.0.1", port)
    body = random.Random(1).randbytes(size)
    for number in range(messages):
        stream.write(size.to_bytes(4, "big") + number.to_bytes(8, "big") + body[8:])
        await stream.drain()
    stream.close()
    await stream.wait_closed()
    say(done=True)


async def read(port: int) -> None:
    """Each message of such a stream, to its end; time counts from the first."""
    stream, _ = await asyncio.open_connection("127.0.0.1", port)
    say(ready=True)
    count, began = 0, 0.0
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            size = int.from_bytes(await stream.readexactly(4), "big")
            began = began or time.monotonic()
            count += len(await stream.readexactly(size))
    say(done=True, bytes=count, seconds=time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    sender = verbs.add_parser("send")
    for word in ("url", "name", "to"):
        sender.add_argument(word)
    sender.add_argument("--messages", type=int, default=10_000)
    sender.add_argument("--size", type=int, default=25_000)
    sender.add_argument("--seconds", type=float, default=0.0)
    sender.add_argument("--settle", type=float, default=0.0)
    sender.add_argument("--seed", type=int, default=1)
    receiver = verbs.add_parser("receive")
    receiver.add_argument("url")
    receiver.add_argument("name")
    pourer, drainer = verbs.add_parser("pour"), verbs.add_parser("drain")
    for each in (pourer, drainer):
        each.add_argument("address")
        each.add_argument("port", type=int)
    pourer.add_argument("--streams", type=int, default=1)
    pourer.add_argument("--seconds", type=float, default=10.0)
    writer, reader = verbs.add_parser("write"), verbs.add_parser("read")
    for each in (writer, reader):
        each.add_argument("port", type=int)
    writer.add_argument("messages", type=int)
    writer.add_argument("size", type=int)
    asked = parser.parse_args()
    match asked.verb:
        case "send":
            uvloop_run(send(
                asked.url, asked.name, asked.to, asked.messages, asked.size, asked.seconds, asked.settle, asked.seed
            ))  # fmt: skip
        case "receive":
            uvloop_run(receive(asked.url, asked.name))
        case "write":
            uvloop_run(write(asked.port, asked.messages, asked.size))
        case "read":
            uvloop_run(read(asked.port))
        case "pour":
            pour(asked.address, asked.port, asked.streams, asked.seconds)
        case "drain":
            drain(asked.address, asked.port)


if __name__ == "__main__":
    main()
