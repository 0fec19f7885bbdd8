"""Members of a mesh in the simulator, as tests of one member look at them: its ports, effects and readings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chappe.engine._engine import Engine
from chappe.events.member import Member
from chappe.events.member_links import Link
from chappe.events.member_settings import MemberSettings
from chappe.events.reporting import Measured
from chappe.linkstate.units import Address
from chappe.machine import Close, Effect, Log, Publish
from chappe.measure.cost import Metrics
from chappe.sim.build import Design, plain_config
from chappe.sim.client import Client
from chappe.sim.connection import Connection
from chappe.sim.link import Quality
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire.events import Event
from chappe.wire.frames import FrameReader, Kind

SECOND = 1_000_000_000


class Recorder:
    """Keeps the readings of a member; `weigh` may be replaced."""

    def __init__(self) -> None:
        self.readings: list[Measured] = []
        self.weigh: Callable[[Link, Metrics | None], Metrics | None] = lambda link, own: own

    def report(self, readings: Sequence[Measured], now_ns: int, wall_ns: int) -> list[Effect]:
        self.readings += readings
        return []

    def lost(self, link: Link, now_ns: int) -> None:
        """Readings of it are kept."""


@dataclass(slots=True)
class Place:
    """A node, and what its machines asked for."""

    node: Node
    reporter: Recorder
    published: list[Publish] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    refusals: list[Close] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.node.engine

    @property
    def member(self) -> Member:
        member = self.node.core.member
        assert member is not None
        return member

    @property
    def ports(self) -> dict[str, int]:
        return self.node.ports

    def record(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                self.published.append(effect)
            elif isinstance(effect, Log):
                self.logs.append(effect)
            elif isinstance(effect, Close):
                self.refusals.append(effect)


@dataclass(slots=True)
class Wire:
    """A link whose delay tests change."""

    link: Connection

    @property
    def delay_ns(self) -> int:
        return round(self.link.pipes[0].quality.delay_ms * 1e6)

    @delay_ns.setter
    def delay_ns(self, delay_ns: int) -> None:
        self.link.change(Quality(delay_ms=delay_ns / 1e6))


class Reader(Client):
    """A client: what it subscribed to arrives in `bodies`."""

    def __init__(self, node: Node, name: str) -> None:
        super().__init__(node, name, name.encode().ljust(16, b"."))
        self.bodies: list[bytes] = []
        self._frames = FrameReader(1 << 24)

    def take(self, piece: bytes) -> None:
        for frame in self._frames.feed(piece):
            if frame.kind is Kind.EVENT:
                self.bodies.append(Event.decode(frame.payload).body)
        super().take(piece)


class Members:
    """A mesh; `run` lets time pass."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.network = Network(seed)
        self.places: dict[str, Place] = {}
        self.wires: dict[frozenset[str], Wire] = {}
        self._settings = settings
        self._readers = 0

    @property
    def now_ns(self) -> int:
        return self.network.clock.now_ns

    def node(self, name: str, unit: str = "", **settings: Any) -> Place:
        chosen = {**self._settings, **settings}
        reports, recorder = chosen.pop("readings", False), Recorder()
        address = Address.parse(unit, name)
        design = Design(plain_config(address, True), MemberSettings(**chosen), reporter=recorder if reports else None)
        node = self.network.add_node(address, design)
        place = self.places[name] = Place(node, recorder)
        node.on_effects = place.record
        node.start()
        return place

    def link(self, a: str, b: str, delay_ms: float = 0.0) -> Wire:
        """Connect two nodes, for the first time or again."""
        ends = frozenset((a, b))
        known, quality = self.wires.get(ends), Quality(delay_ms=delay_ms)
        if known is None:
            known = self.wires[ends] = Wire(self.network.join(a, b, quality))
        else:
            known.link.change(quality)
            known.link.intact = True
            known.link.dial(at_once=True)
        return known

    def cut(self, a: str, b: str) -> None:
        """The connection is lost, with all that was on it; both ends know at once."""
        self.wires[frozenset((a, b))].link.end()
        self.run(0)

    def kill(self, name: str) -> None:
        """The process is gone: its neighbours lose their links to it."""
        self.network.crash(name)

    def restart(self, name: str) -> Place:
        """The node is back with empty tables; its clients and links are not."""
        place = self.places[name]
        place.node.clients.clear()
        place.node.start()
        return place

    def reader(self, name: str) -> Reader:
        self._readers += 1
        reader = Reader(self.places[name].node, f"reader-{self._readers}")
        self.places[name].node.clients.append(reader)
        reader.attach()
        return reader

    def run(self, seconds: float = 1.0) -> None:
        """Let that much time pass; tests may have fed an engine or asked a member meanwhile."""
        for place in self.places.values():
            place.node.touch()
        self.network.run(seconds)
