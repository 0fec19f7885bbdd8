"""Case scale: what passes over links: the main cells that each parcel was given to, and how far it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from chappe.cells.names import cell_id, least_gap
from chappe.sim.connection import Connection
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire.frames import Kind
from chappe.wire.parcels import CellParcel, ParcelFlag

HEADER = 4  # of a frame: kind, and the length of its payload


class _Stream:
    """The frames of one direction of a connection; only parcels are kept."""

    def __init__(self, life: int) -> None:
        self.life = life
        self._kept = bytearray()
        self._skip = 0

    def parcels(self, piece: bytes) -> list[bytes]:
        """The payloads that are complete with this piece."""
        data = bytes(self._kept) + piece if self._kept else piece
        self._kept.clear()
        found, place, end = [], self._skip, len(data)
        while place + HEADER <= end:
            size = int.from_bytes(data[place + 1 : place + HEADER], "big")
            after = place + HEADER + size
            if data[place] == Kind.PARCEL:
                if after > end:
                    break
                found.append(data[place + HEADER : after])
            place = after
        self._skip = max(0, place - end)
        self._kept += data[place:]
        return found


class Trace:
    """Looks at every link of a network. `names`: of each cell, which never change here."""

    def __init__(self, network: Network, names: Mapping[str, tuple[str, ...]]) -> None:
        self._names = {cell_id(cell): own for cell, own in names.items()}
        self._streams: dict[tuple[str, str], _Stream] = {}
        self.links = 0  # passed by parcels of unicasts that carry data
        self.parcels: Counter[tuple[int, int]] = Counter()  # of unicasts: (flow, sequence), and how often a copy began
        self.decisions = 0
        self.multicast_links = 0
        self.returned = 0
        self.violations: list[str] = []
        network.watch(self._look)

    @property
    def hops(self) -> float:
        """Links that a parcel passes."""
        return self.links / max(1, sum(self.parcels.values()))

    @property
    def mains(self) -> float:
        """Main cells that decide about a parcel."""
        return self.decisions / max(1, sum(self.parcels.values()))

    def _look(self, node: Node, link: Connection, piece: bytes) -> None:
        key = (node.name, link.other(node).name)
        stream = self._streams.get(key)
        if stream is None or stream.life != link.life:
            stream = self._streams[key] = _Stream(link.life)
        for payload in stream.parcels(piece):
            self._parcel(CellParcel.decode(payload[1:]))

    def _parcel(self, parcel: CellParcel) -> None:
        if parcel.flags & ParcelFlag.RETURNED:
            self.returned += 1
            return
        count = len(parcel.hops)
        decided = parcel.position == 1 and count > 1  # by the first of the list, which has just sent it
        if decided:
            self._judge(parcel)
        if parcel.flags & ParcelFlag.MULTICAST:
            self.multicast_links += 1
        elif not parcel.flags & ParcelFlag.ACK:
            self.links += 1
            if decided:
                self.decisions += 1
                own = self._names[parcel.hops[0]]
                if parcel.source in own:
                    self.parcels[parcel.flow, parcel.sequence] += 1

    def _judge(self, parcel: CellParcel) -> None:
        before = least_gap(self._names[parcel.hops[0]], parcel.destination)
        after = least_gap(self._names[parcel.hops[-1]], parcel.destination)
        assert before is not None
        assert after is not None
        if not after < before:
            self.violations.append(f"{parcel.destination}: from {parcel.hops[0].hex()} to {parcel.hops[-1].hex()}")
