"""An engine under attack: hostile ports, an honest pair that must not notice, and streams to start from."""

from __future__ import annotations

import random
import struct
from typing import Any, Literal

from chappe.engine._engine import Engine, ForwardingDecision
from chappe.errors import ProtocolError

KINDS = {1, 2, 3, 4, 5, 0x12, 0x22, 0x32, 0x14, 0x24, 0x34, 0x15, 0x25, 0x35}


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(3, "big") + payload


class Mesh:
    """One engine with hostile ports (0-1 clients, 2-3 peers, 4 datagrams) and an honest pair."""

    def __init__(self, layout: Literal["close", "sparse"]) -> None:
        self.engine = engine = Engine(
            layout=layout,
            max_topics=64,
            max_routed_topics=16,
            plan_route=self.plan_route,
            forward_route=self.forward_route,
        )
        self.questions = 0
        self.opened = 0
        self.inputs = 0
        self.parked = False
        self.sequence = 0
        self.half: dict[int, bytes] = {}
        self.sender, self.listener = engine.open_port(issuer=b"8" * 16), engine.open_port(issuer=b"9" * 16)
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
        issuer = self.opened.to_bytes(16, "big")
        shapes: list[dict[str, Any]] = [
            {"issuer": issuer, "queue_bytes": 2000, "credit": 500},
            {"issuer": issuer, "queue_bytes": 2000, "conflate": True},
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

    def plan_route(self, kind: str, topic: bytes) -> ForwardingDecision:
        """Another answer each time; now and then none."""
        self.questions += 1
        if topic == b"honest":
            return ForwardingDecision(True)
        if self.questions % 7 == 0:
            raise ValueError("no route")
        ports = self.ports[2 : 2 + self.questions % 3]
        next_hops = [(port, b"%d" % self.questions) for port in ports]
        return ForwardingDecision(self.questions % 2 == 0, next_hops, self.questions % 2)

    def forward_route(self, port: int, source_route: bytes, kind: str, topic: bytes) -> ForwardingDecision:
        planned = self.plan_route(kind, topic)
        next_hops = [(self.ports[source_route[0] % 5], source_route + source_route), *planned.next_hops]
        groups = None if source_route[0] & 1 else ("g",)
        return ForwardingDecision(planned.deliver_here, next_hops, groups=groups)

    def wrote(self, port: int, data: bytes) -> None:
        """Follow what a connection got: only the start of one frame may be left."""
        rest = self.half.get(port, b"") + data
        while len(rest) >= 4 and len(rest) >= 4 + int.from_bytes(rest[1:4], "big"):
            assert rest[0] in KINDS, "torn frame"
            rest = rest[4 + int.from_bytes(rest[1:4], "big") :]
        self.half[port] = rest

    def drain(self, port: int) -> bytes:
        """Everything a port writes; then no frame is left half written."""
        out = b""
        while shown := bytes(self.engine.peek(port)):
            out += shown
            self.engine.consumed(port, len(shown))
        self.wrote(port, out)
        assert self.half[port] == b"", "half a frame at the end"
        return out

    def replace(self, which: int) -> None:
        """A bad frame ends a connection; the next one comes in its place."""
        self.engine.close_port(self.ports[which])
        while not self.engine.free_port(self.ports[which], 3):
            pass
        self.half.pop(self.ports[which], None)
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
                port = ports[length % 4]
                shown = bytes(engine.peek(port))
                shown = shown[: len(shown) * (length % 7) // 6]
                engine.consumed(port, len(shown))
                self.wrote(port, shown)
            elif which == 6:
                (engine.resume_port if self.parked else engine.park_port)(ports[2])
                self.half.pop(ports[2], None)
                self.parked = not self.parked
            else:
                engine.clock(length * 10**8, 1_000_000_000)
                engine.release_held()
                if length % 5 == 1:
                    engine.topics.forwarding_changed()
                elif length % 5 == 2 and not self.parked:
                    engine.send_train(ports[2], length, 40 + 100 * length)
                elif length % 5 == 3 and self.parked:
                    for event in engine.take_unconfirmed(ports[2], 3):
                        next_hops = [(ports[3], event.source_route), (ports[length % 5], b"new")]
                        engine.reroute(event, next_hops)
        return fed

    def check(self) -> None:
        """The honest pair noticed nothing, and what the others write is whole frames."""
        self.sequence += 1
        event = frame(0x02, struct.pack(">III", 1, 3 << 24, self.sequence) + b"news")
        record = frame(0x01, struct.pack(">qIB3xd", 1000 + self.sequence, 77, 0, 1.0))
        before = self.engine.port_counters(self.listener)
        self.engine.feed(self.sender, frame(0x12, struct.pack(">IBB", 1, ord("s"), 0) + b"honest") + event + record)
        heard = self.drain(self.listener)
        counts = self.engine.port_counters(self.listener)
        assert counts["events_out"] == before["events_out"] + 1, "an honest event is missing"
        assert b"news" in heard
        assert counts["status_out"] == before["status_out"] + 1, "an honest record is missing"
        assert heard.endswith(record)
        for port in self.ports[:2]:
            self.drain(port)
        self.engine.take_control()
        self.engine.take_echoes()
        self.engine.take_trained()


def event(number: int, sequence: int, body: bytes, flags: int = 3) -> bytes:
    return frame(0x02, struct.pack(">III", number, flags << 24, sequence) + body)


def good_stream(pick: random.Random) -> bytes:
    """Frames that an honest port might send."""
    record = struct.pack(">qIB3xd", pick.randrange(-9, 99) * 33_333_333, pick.randrange(1, 5), 1, 2.5) + b"o" * 24
    expires = struct.pack(">HBHq", 11, 2, 8, pick.choice([0, 1 << 62]))
    frames = [
        frame(0x12, struct.pack(">IBB", pick.randrange(3), ord("s"), 0) + pick.choice([b"a/b", b"a", b"a/b/c"])),
        frame(0x12, struct.pack(">IBB", 4, ord("i"), 0) + b"\0\0\0\7"),
        frame(0x22, struct.pack(">II", 0, 1) + bytes([pick.randrange(4)]) * 16),
        event(pick.randrange(3), pick.randrange(1, 99), b"body" * pick.randrange(9), pick.randrange(7)),
        event(pick.randrange(3), pick.randrange(1, 99), expires + b"x", 3 | 8),
        frame(0x01, record + record[:24][:12] + b"\0" * 12),
        frame(0x04, struct.pack(">QQ", pick.randrange(3), 5)),
        frame(0x14, struct.pack(">QQ", pick.randrange(3) << 61 | 1 << 63 | pick.randrange(9), 5)),
        frame(0x05, b"\x81\xa1k\xa4List"),
        frame(0x03, bytes(30)),
        frame(0x32, struct.pack(">IBBH", pick.randrange(3), ord("s"), 0, 2) + pick.choice([b"ab", b"cd"]) + b"a/b"),
        event(pick.randrange(3), pick.randrange(1, 99), b"way", 3 | 0x20),
        frame(0x24, struct.pack(">QII", 5, 60, pick.choice([0, 30])) + bytes(10)),
        frame(0x34, bytes(40)),
    ]
    pick.shuffle(frames)
    return b"".join(frames[: pick.randrange(1, 8)])


def pieces(pick: random.Random, stream: bytes) -> bytes:
    """A stream for one port, cut anywhere, in the form `Mesh.play` takes."""
    out, which = b"", pick.randrange(4)
    while stream:
        size = pick.randrange(1, 200)
        out += bytes([which, min(size, len(stream))]) + stream[:size]
        stream = stream[size:]
        if pick.random() < 0.2:
            out += bytes([pick.randrange(4, 8), size := pick.randrange(9)]) + bytes(size)
    return out


def mutated(pick: random.Random, data: bytes) -> bytes:
    """Some bytes changed, dropped, doubled or swapped."""
    changed = bytearray(data)
    for _ in range(pick.randrange(4)):
        place = pick.randrange(len(changed))
        action = pick.randrange(4)
        if action == 0:
            changed[place] = pick.choice([0, 1, 2, 0x12, 0x7F, 0x80, 0xFF, pick.randrange(256)])
        elif action == 1:
            del changed[place : place + pick.randrange(1, 9)]
        elif action == 2:
            changed[place:place] = changed[place : place + pick.randrange(1, 30)]
        else:
            changed[place] ^= 1 << pick.randrange(8)
        if not changed:
            return b"\0"
    return bytes(changed)
