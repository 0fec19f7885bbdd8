"""Members of a mesh with real engines in one test, in virtual time: bytes are carried by hand, at once or later."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from chappe.engine._engine import Engine
from chappe.events.member import Log, Measured, Member, MemberSettings, Output, Publish, Refuse, Send
from chappe.links.link import control_frame
from chappe.linkstate.units import Address
from chappe.wire.control import decode
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import FrameReader, Kind, encode_frame

SECOND = 1_000_000_000
STEP_NS = 2_000_000
START_NS = 1_000 * SECOND


@dataclass(slots=True)
class Wire:
    """A link between two nodes; each way takes `delay_ns`."""

    ends: tuple[str, str]
    delay_ns: int = 0
    up: bool = False
    flying: deque[tuple[int, str, bytes]] = field(default_factory=deque)


@dataclass(slots=True)
class Place:
    """A node: its engine, its member, its ports, and what came out."""

    name: str
    engine: Engine
    member: Member
    ports: dict[str, int] = field(default_factory=dict)
    published: list[Publish] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    readings: list[Measured] = field(default_factory=list)
    refusals: list[Refuse] = field(default_factory=list)
    running: bool = True


class Reader:
    """A client without a connection: what it subscribed to arrives in `bodies`."""

    def __init__(self, place: Place, issuer: bytes) -> None:
        self.place = place
        self.port = place.engine.open_port(issuer=issuer, loss=False)
        self.bodies: list[bytes] = []
        self._frames = FrameReader(1 << 24)
        self._topics: dict[str, int] = {}
        self._sequence = 0

    def subscribe(self, pattern: str, group: str = "") -> None:
        self.place.engine.topics.subscribe(self.port, pattern, "s", group)
        self.place.member.subscribed("s", pattern, group)

    def unsubscribe(self, pattern: str, group: str = "") -> None:
        self.place.engine.topics.unsubscribe(self.port, pattern, "s", group)
        self.place.member.unsubscribed("s", pattern, group)

    def publish(self, topic: str, body: bytes) -> None:
        frames = b""
        if topic not in self._topics:
            self._topics[topic] = len(self._topics) + 1
            frames = encode_frame(Kind.TOPIC, Topic(self._topics[topic], TopicName(topic)).encode())
        self._sequence += 1
        event = Event(self._topics[topic], self._sequence, body)
        self.place.engine.feed(self.port, frames + encode_frame(Kind.EVENT, event.encode()))

    def take(self) -> None:
        engine = self.place.engine
        while piece := bytes(engine.peek(self.port)):
            engine.consumed(self.port, len(piece))
            for frame in self._frames.feed(piece):
                if frame.kind is Kind.EVENT:
                    self.bodies.append(Event.decode(frame.payload).body)


class Members:
    """A mesh; `run` lets time pass."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.now_ns = START_NS
        self.places: dict[str, Place] = {}
        self.wires: dict[frozenset[str], Wire] = {}
        self.readers: list[Reader] = []
        self._rng = random.Random(seed)
        self._settings = settings

    def node(self, name: str, unit: str = "", **settings: Any) -> Place:
        place: Place

        def publish_way(kind: str, topic: bytes) -> Any:
            return place.member.publish_way(kind, topic)

        def forward_way(port: int, source_route: bytes, kind: str, topic: bytes) -> Any:
            return place.member.forward_way(port, source_route, kind, topic)

        engine = Engine(publish_way=publish_way, forward_way=forward_way)
        engine.clock(self.now_ns, self.now_ns)
        chosen = MemberSettings(**{**self._settings, **settings})
        member = Member(Address.parse(unit, name), engine, chosen, random.Random(self._rng.random()))
        place = self.places[name] = Place(name, engine, member)
        return place

    def link(self, a: str, b: str, delay_ms: float = 0.0) -> Wire:
        """Connect two nodes, for the first time or again."""
        wire = self.wires.setdefault(frozenset((a, b)), Wire((a, b)))
        wire.delay_ns = round(delay_ms * 1e6)
        wire.up = True
        for me, other in ((a, b), (b, a)):
            place = self.places[me]
            place.engine.clock(self.now_ns, self.now_ns)
            if other not in place.ports:
                place.ports[other] = place.engine.open_port(
                    peer=True, retain=True, max_frame=0xFF_FFFF, loss=False, max_topics=1 << 24
                )
            else:
                place.engine.resume_port(place.ports[other])
            self._obey(place, place.member.up(place.ports[other], other, self.now_ns))
        return wire

    def cut(self, a: str, b: str) -> None:
        """The connection is lost, with all that was on it."""
        wire = self.wires[frozenset((a, b))]
        wire.up = False
        wire.flying.clear()
        for me, other in ((a, b), (b, a)):
            place = self.places[me]
            if place.running:
                place.engine.clock(self.now_ns, self.now_ns)
                place.engine.park_port(place.ports[other])
                self._obey(place, place.member.down(place.ports[other], self.now_ns))

    def kill(self, name: str) -> None:
        """The process is gone: its neighbours lose their links to it."""
        self.places[name].running = False
        for wire in self.wires.values():
            if name in wire.ends and wire.up:
                self.cut(*wire.ends)

    def reader(self, name: str) -> Reader:
        reader = Reader(self.places[name], self._rng.randbytes(16))
        self.readers.append(reader)
        return reader

    def run(self, seconds: float = 1.0) -> None:
        """Let that much time pass."""
        until_ns = self.now_ns + round(seconds * SECOND)
        while self.now_ns < until_ns:
            self.now_ns += STEP_NS
            self.step()

    def step(self) -> None:
        """One instant: deliver what has arrived, let members act, collect what they sent."""
        for wire in self.wires.values():
            while wire.flying and wire.flying[0][0] <= self.now_ns:
                _, to, piece = wire.flying.popleft()
                place = self.places[to]
                other = next(end for end in wire.ends if end != to)
                if place.running:
                    place.engine.clock(self.now_ns, self.now_ns)
                    place.engine.feed(place.ports[other], piece)
        for place in self.places.values():
            if place.running:
                self._act(place)
        for reader in self.readers:
            if reader.place.running:
                reader.take()
        for wire in self.wires.values():
            if wire.up:
                self._collect(wire)

    def _act(self, place: Place) -> None:
        place.engine.clock(self.now_ns, self.now_ns)
        for port, payload in place.engine.take_control():
            self._obey(place, place.member.receive(port, decode(payload), self.now_ns))
        self._obey(place, place.member.arrived(self.now_ns))
        self._obey(place, place.member.tick(self.now_ns))
        place.member.probe(self.now_ns)
        if place.engine.held_ns() == 0:
            place.engine.release_held()

    def _collect(self, wire: Wire) -> None:
        for me, other in (wire.ends, wire.ends[::-1]):
            place = self.places[me]
            if not place.running:
                continue
            port = place.ports[other]
            while piece := bytes(place.engine.peek(port)):
                place.engine.consumed(port, len(piece))
                wire.flying.append((self.now_ns + wire.delay_ns, other, piece))

    def _obey(self, place: Place, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(port, message):
                    assert place.engine.send(port, control_frame(message), 0)
                case Publish():
                    place.published.append(output)
                case Log():
                    place.logs.append(output)
                case Measured():
                    place.readings.append(output)
                case Refuse():
                    place.refusals.append(output)
