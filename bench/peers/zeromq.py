"""ZeroMQ: libzmq's own XSUB/XPUB proxy in a process of its own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from bench.peers.common import Peer


def find() -> str | None:
    return "pyzmq" if importlib.util.find_spec("zmq") else None


def version() -> str:
    import zmq

    return f"{zmq.zmq_version()} (pyzmq {zmq.__version__})"


def command(folder: Path, port: int, tls: bool) -> list[str]:
    return [sys.executable, "-m", "bench.peers.zeromq", str(port)]


def proxy(port: int) -> None:
    """Forward between publishers on that port and subscribers on the next, until the process ends."""
    import zmq

    context = zmq.Context()
    inward, outward = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    for sock in (inward, outward):
        sock.set_hwm(0)
    outward.bind(f"tcp://127.0.0.1:{port + 1}")
    inward.bind(f"tcp://127.0.0.1:{port}")
    zmq.proxy(inward, outward)


PEER = Peer(
    name="zeromq",
    protocol="zmtp",
    install="pip install pyzmq",
    find=find,
    version=version,
    command=command,
    settings=(
        "HWM 0 on both sockets: nothing is dropped",
        "one frame a message, the topic as its prefix: the fastest form of publish/subscribe that ZeroMQ has",
    ),
)

if __name__ == "__main__":
    proxy(int(sys.argv[1]))
