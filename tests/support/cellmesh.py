"""Cells in the simulator: real engines and machines, clients that send parcels made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

from chappe.cells.machine import Cells as Machine
from chappe.cells.names import cell_id, least_gap
from chappe.core.sections import Cells, Config, NodeSection
from chappe.linkstate.units import Address
from chappe.sim.build import Design
from chappe.sim.client import Client
from chappe.sim.link import Quality
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.parcels import CellParcel, ParcelFlag

WHOLE = ParcelFlag.FIRST | ParcelFlag.LAST


class Sender:
    """A client with names; what it got are parcels, decoded."""

    def __init__(self, mesh: CellMesh, node: Node, names: Iterable[str]) -> None:
        self.node = node
        self.names = list(names)
        self.got: list[CellParcel] = []
        self._frames = FrameReader()
        self._mesh = mesh
        self.client = client = node.client("+".join(self.names) or "nobody")
        plain = client.take

        def take(piece: bytes) -> None:
            self._read(piece)
            plain(piece)

        client.take = take  # type: ignore[method-assign]
        self._attached(client)
        client.on_attach = self._attached

    def _attached(self, client: Client) -> None:
        self._frames = FrameReader()
        if client.attached and self.names:
            self.node.core.cells.add_names(client.port, self.names, client.name)  # type: ignore[union-attr]
            self.node.touch()

    def _read(self, piece: bytes) -> None:
        for frame in self._frames.feed(piece):
            if frame.kind is Kind.PARCEL:
                self.got.append(CellParcel.decode(frame.payload[1:]))

    def send(self, destination: str, body: bytes = b"body", flow: int | None = None) -> int:
        """One message of one parcel, by a flow of its own unless given; the flow."""
        flow = next(self._mesh.flows) if flow is None else flow
        flags = WHOLE | ParcelFlag.MULTICAST if destination.endswith("*") else WHOLE
        parcel = CellParcel(flow, 0, destination, self.names[0], body, flags)
        self.node.feed(self.client.port, encode_frame(Kind.PARCEL, b"\x02" + parcel.encode()))
        return flow

    def flows(self) -> list[int]:
        """Of the messages that it got, in order."""
        return [parcel.flow for parcel in self.got if not parcel.flags & ParcelFlag.ACK]

    def errors(self) -> list[CellParcel]:
        """What it was told about its own flows."""
        return [parcel for parcel in self.got if parcel.flags & ParcelFlag.ACK]


class CellMesh:
    """A network in which cells find each other; `reachable(a, b)`: whether `a` can connect to `b`."""

    def __init__(
        self, seed: int = 1, reachable: Callable[[str, str], bool] = lambda a, b: True,
        quality: Callable[[str, str], Quality] | None = None,
    ) -> None:  # fmt: skip
        self.network = Network(seed, reachable=reachable, quality=quality)
        self.senders: dict[str, Sender] = {}
        self.flows = itertools.count(1)

    def add(self, name: str, *names: str, section: Cells | None = None) -> Node:
        """A cell with one client that has these names, from when it starts."""
        config = Config(node=NodeSection(name=name), cells=section or Cells())
        node = self.network.add_node(Address((), name), Design(config))
        node.start()
        if names:
            self.senders[name] = Sender(self, node, names)
        return node

    def ring(self, count: int, section: Cells | None = None) -> list[str]:
        """So many cells, each of which knows the address of one before it."""
        names = [f"c{at:03}" for at in range(count)]
        for at, name in enumerate(names):
            self.add(name, f"n.{at:03}", section=section)
            if at:
                self.network.join(names[max(0, at - 1 - at % 3)], name)
        return names

    def machine(self, name: str) -> Machine:
        found = self.network.nodes[name].core.cells
        assert found is not None
        return found

    def running(self) -> list[Machine]:
        return [self.machine(node.name) for node in self.network.running()]

    def run(self, seconds: float) -> None:
        self.network.run(seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 30.0, step_s: float = 0.25) -> float:
        """Run until that is so; how long it took."""
        for step in range(round(seconds / step_s)):
            if condition():
                return step * step_s
            self.run(step_s)
        assert condition(), f"not within {seconds} s"
        return seconds

    def known_everywhere(self) -> bool:
        """Whether every cell knows the names of all others, and no others."""
        running = self.running()
        names = {name for machine in running for name in machine.names}
        return all(set(machine.trie) | set(machine.names) == names for machine in running)

    def progress(self, machine: Machine, destination: str) -> None:
        """No path of a cell to a destination ends where its parcels are not strictly nearer."""
        mine = least_gap(machine.names, destination)
        names = {cell_id(other.address): other.names for other in self.running()}
        for route in machine.parcel_routes(destination.encode()):
            theirs = least_gap(names[route.hops[-1]], destination)
            assert theirs is not None
            assert mine is None or theirs < mine, (machine.address, destination, route)


def bare(parcel: CellParcel) -> CellParcel:
    """A parcel without what changes on its way."""
    return replace(parcel, hops=(), position=0, hops_left=0)
