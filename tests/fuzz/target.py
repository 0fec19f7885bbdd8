"""What libFuzzer calls with each input: hostile ports feed it, an honest pair must not notice.

    python tests/fuzz/target.py -runs=1000000 -max_len=4096
"""

from __future__ import annotations

import atexit
import os
import struct
import sys

sys.setdlopenflags(os.RTLD_GLOBAL | os.RTLD_NOW)  # the engine's coverage reports to the driver

import _libfuzzer  # noqa: E402

from chappe.engine._engine import Engine  # noqa: E402
from chappe.errors import ProtocolError  # noqa: E402


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(3, "big") + payload


def drain(engine: Engine, port: int) -> bytes:
    """Everything a port writes; it must be whole frames."""
    out = b""
    while shown := bytes(engine.peek(port)):
        out += shown
        engine.consumed(port, len(shown))
    place = 0
    while place < len(out):
        place += 4 + int.from_bytes(out[place + 1 : place + 4], "big")
    assert place == len(out), "torn frame"
    return out


class Mesh:
    """One engine with hostile ports (0-1 clients, 2-3 peers, 4 datagrams) and an honest pair."""

    def __init__(self, layout: str) -> None:
        self.engine = engine = Engine(layout=layout, max_topics=64)
        self.opened = 0
        self.inputs = 0
        self.parked = False
        self.sequence = 0
        self.sender, self.listener = engine.open_port(session=b"8" * 16), engine.open_port(session=b"9" * 16)
        engine.topics.subscribe(self.listener, "honest")
        engine.status.set_variable(77, 1, 10, [self.sender])
        engine.status.setup_path(77, self.listener, 1, [0], [3], 0xFFFF)
        for variable in (1, 2, 3):
            engine.status.set_variable(variable, 3, 100_000_000, [])
        engine.status.set_flooding(3, 1, 0xFFFF)
        self.ports = [self.open(which) for which in range(4)]
        self.ports.append(engine.open_port(peer=True, datagram=True, partner=self.ports[3]))

    def open(self, which: int) -> int:
        self.opened += 1
        session = self.opened.to_bytes(16, "big")
        shapes = [
            {"session": session, "queue_bytes": 2000, "credit": 500},
            {"session": session, "queue_bytes": 2000, "conflate": True},
            {"peer": True, "retain": True, "queue_bytes": 4000, "level": 1},
            {"peer": True, "max_frame": 3000, "level": 2},
        ]
        port = self.engine.open_port(**shapes[which])
        self.engine.topics.subscribe(port, "#", backpressure=which == 0)
        self.engine.topics.subscribe(port, "a/+", group="g")
        for variable in (1, 2, 3):
            self.engine.status.add_input(variable, port)
            self.engine.status.setup_path(variable, port, which, [which * 33_333_333], [which * 2], 0xFFFF)
        return port

    def replace(self, which: int) -> None:
        """A bad frame ends a connection; the next one comes in its place."""
        self.engine.close_port(self.ports[which])
        while not self.engine.free_port(self.ports[which], 3):
            pass
        self.ports[which] = self.open(which)
        if which == 3:
            self.engine.free_port(self.ports[4])
            self.ports[4] = self.engine.open_port(peer=True, datagram=True, partner=self.ports[3])

    def play(self, data: bytes) -> int:
        """Pieces `what, length, bytes`; how many buffers were fed."""
        engine, ports = self.engine, self.ports
        place, fed = 0, 0
        while place + 2 <= len(data):
            which, length = data[place] % 8, data[place + 1]
            piece = data[place + 2 : place + 2 + length]
            place += 2 + length
            if which < 4:
                fed += 1
                if which == 2 and self.parked:
                    continue
                try:
                    engine.feed(ports[which], piece)
                except ProtocolError:
                    self.replace(which)
            elif which == 4:
                fed += 1
                engine.feed_datagram(ports[4], piece)
            elif which == 5:
                shown = len(engine.peek(ports[length % 4]))
                engine.consumed(ports[length % 4], shown * (length % 7) // 6)
            elif which == 6:
                (engine.resume_port if self.parked else engine.park_port)(ports[2])
                self.parked = not self.parked
            else:
                engine.clock(length * 10**8, 1_000_000_000)
        return fed

    def check(self) -> None:
        """The honest pair noticed nothing, and what the others write is whole frames."""
        self.sequence += 1
        event = frame(0x02, struct.pack(">III", 1, 3 << 24, self.sequence) + b"news")
        record = frame(0x01, struct.pack(">qIB3xd", 1000 + self.sequence, 77, 0, 1.0))
        before = self.engine.port_counters(self.listener)
        self.engine.feed(self.sender, frame(0x12, struct.pack(">IBB", 1, ord("s"), 0) + b"honest") + event + record)
        heard = drain(self.engine, self.listener)
        counts = self.engine.port_counters(self.listener)
        assert counts["events_out"] == before["events_out"] + 1 and b"news" in heard, "an honest event is missing"
        assert counts["status_out"] == before["status_out"] + 1 and heard.endswith(record), "a record is missing"
        for port in self.ports[:2]:
            drain(self.engine, port)
        self.engine.take_control()
        self.engine.take_parcels()
        self.engine.take_echoes()


MESHES: dict[str, Mesh] = {}
BUFFERS = 0


def one_input(data: bytes) -> None:
    global BUFFERS
    layout = "close" if data[:1] and data[0] & 1 else "sparse"
    mesh = MESHES.get(layout)
    if mesh is None or mesh.inputs >= 200:
        mesh = MESHES[layout] = Mesh(layout)
    mesh.inputs += 1
    BUFFERS += mesh.play(data[1:])
    mesh.check()


if __name__ == "__main__":
    atexit.register(lambda: print(f"{BUFFERS} buffers fed", flush=True))
    _libfuzzer.run([argument.encode() for argument in sys.argv], one_input)
