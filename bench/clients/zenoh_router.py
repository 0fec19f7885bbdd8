"""eclipse-zenoh with a router session between: callbacks, and a publisher that blocks instead of dropping."""

from __future__ import annotations

import json
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import zenoh

from bench.clients.common import PING, PONG, TOPIC, Ready, Sequence, message
from bench.peers.common import Peer
from chappe.errors import ChappeError

PACKAGE = "eclipse-zenoh"
COUNT = 300_000
WAIT_S = 60.0


def session(mode: str, *, listen: int = 0, connect: int = 0) -> Any:
    """A zenoh session without scouting."""
    config = zenoh.Config()
    config.insert_json5("mode", json.dumps(mode))
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", json.dumps([f"tcp/127.0.0.1:{listen}"] if listen else []))
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/127.0.0.1:{connect}"] if connect else []))
    return zenoh.open(config)


def join(port: int) -> Any:
    """Both sides are clients of the router."""
    return session("client", connect=port)


async def publish(port: int, count: int) -> int:
    return run_publisher(join(port), count)


async def subscribe(port: int, count: int, ready: Ready) -> int:
    return run_subscriber(join(port), count, ready)


async def ping(port: int, rounds: int) -> list[int]:
    return run_ping(join(port), rounds)


async def pong(port: int, rounds: int, ready: Ready) -> None:
    run_pong(join(port), rounds, ready)


def publisher(opened: Any, key: str) -> Any:
    return opened.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)


def run_publisher(opened: Any, count: int) -> int:
    out = publisher(opened, TOPIC)
    time.sleep(0.3)  # the subscriber's interest travels to the publisher
    began_ns = time.monotonic_ns()
    for i in range(count):
        out.put(message(i))
    opened.close()
    return began_ns


def run_subscriber(opened: Any, count: int, ready: Ready) -> int:
    seen, done = Sequence(count), threading.Event()

    def received(sample: Any) -> None:
        if seen.check(sample.payload.to_bytes()):
            done.set()

    opened.declare_subscriber(TOPIC, received)
    ready()
    if not done.wait(WAIT_S):
        raise ChappeError(f"only {seen.next} of {count} messages arrived")
    ended_ns = time.monotonic_ns()
    opened.close()
    return ended_ns


def run_ping(opened: Any, rounds: int) -> list[int]:
    back = threading.Event()
    out = publisher(opened, PING)
    opened.declare_subscriber(PONG, lambda sample: back.set())
    time.sleep(0.3)
    times_ns = []
    for i in range(rounds):
        start = time.perf_counter_ns()
        out.put(message(i))
        back.wait(5)
        back.clear()
        times_ns.append(time.perf_counter_ns() - start)
    opened.close()
    return times_ns


def run_pong(opened: Any, rounds: int, ready: Ready) -> None:
    seen, done = Sequence(rounds), threading.Event()
    out = publisher(opened, PONG)

    def received(sample: Any) -> None:
        body = sample.payload.to_bytes()
        out.put(body)
        if seen.check(body):
            done.set()

    opened.declare_subscriber(PING, received)
    ready()
    done.wait(WAIT_S)
    time.sleep(0.2)  # the last pong leaves before the session closes
    opened.close()


def _command(folder: Path, port: int, tls: bool) -> list[str]:
    return [sys.executable, "-m", "bench.clients.zenoh_router", str(port)]


BROKER: Peer | None = Peer(
    name="zenoh-router",
    protocol="zenoh",
    install="pip install eclipse-zenoh",
    find=lambda: "eclipse-zenoh",
    version=lambda: metadata.version("eclipse-zenoh"),
    command=_command,
)

if __name__ == "__main__":
    with session("router", listen=int(sys.argv[1])):
        threading.Event().wait()
