"""What cells do with parcels on their way, the obvious way: dictionaries, lists and the Python codec.

No windows: where flows begin is tested by simulation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from chappe.errors import ProtocolError
from chappe.wire.parcels import ACK_BYTES, Acknowledgement, CellParcel, ParcelFlag

EXCLUDED_NS = 30_000_000_000
ABSENT_NS = 250_000_000  # where the name was not at the end of the path
ABSENT_LONG_NS = 2_000_000_000  # from then on others are told of it
MASK = (1 << 64) - 1
HEADER = 4 + 1  # of the frame, and the version


class Route(NamedTuple):
    share: float
    hops: tuple[bytes, ...]


class Draws:
    """xorshift64*, as the engine keys it."""

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ 0x9E3779B97F4A7C15) & MASK or 1

    def uniform(self) -> float:
        state = self.state
        state ^= state >> 12
        state = (state ^ state << 25) & MASK
        self.state = state = state ^ state >> 27
        return float((state * 0x2545F4914F6CDD1D & MASK) >> 11) / 9007199254740992.0


class ModelCell:
    """A cell between others: `take` says by which port a parcel leaves, or which counter its drop has."""

    def __init__(self, me: bytes, seed: int) -> None:
        self.me, self.draws, self.now = me, Draws(seed), 0
        self.cells: dict[bytes, int] = {}
        self.owned: dict[str, int] = {}
        self.routes: dict[str, list[Route]] = {}
        self.known: dict[str, list[Route]] = {}
        self.excluded: dict[tuple[str, tuple[bytes, ...]], tuple[int, int]] = {}  # until, for how long
        self.broken: list[tuple[str, tuple[bytes, ...]]] = []

    def take(self, port: int, content: bytes) -> tuple[int, CellParcel] | str:
        try:
            parcel = CellParcel.decode(content)
        except ProtocolError:
            return "drop_bad_parcel"
        if parcel.flags & ParcelFlag.ACK and len(content) + 1 > ACK_BYTES:
            return "drop_bad_parcel"
        place = parcel.position
        if place >= len(parcel.hops) or parcel.hops[place] != self.me:
            return "drop_bad_parcel"
        if parcel.flags & ParcelFlag.RETURNED:
            return self._returned(port, parcel)
        if place == 0:
            return "drop_bad_parcel"
        if place == len(parcel.hops) - 1:
            if parcel.destination in self.owned:
                return self._deliver(parcel)
            return self._choose(port, parcel)
        if parcel.hops_left == 0:
            return "drop_hops"
        to = self.cells.get(parcel.hops[place + 1])
        if to is None:
            return self._back(parcel, ParcelFlag.RETURNED)
        if to == port:
            return "drop_bad_parcel"
        return to, replace(parcel, position=place + 1, hops_left=parcel.hops_left - 1)

    def _deliver(self, parcel: CellParcel) -> tuple[int, CellParcel] | str:
        if parcel.flags & ParcelFlag.ACK:
            try:
                Acknowledgement.decode(parcel.body)
            except ProtocolError:
                return "drop_bad_parcel"
        return self.owned[parcel.destination], replace(parcel, hops=(), position=0)

    def _back(self, parcel: CellParcel, why: ParcelFlag) -> tuple[int, CellParcel] | str:
        if parcel.hops_left == 0:
            return "drop_hops"
        to = self.cells.get(parcel.hops[parcel.position - 1]) if parcel.position else None
        if to is None:
            return "drop_no_route"
        flags, left = parcel.flags | why, parcel.hops_left - 1
        return to, replace(parcel, flags=flags, position=parcel.position - 1, hops_left=left)

    def _returned(self, port: int, parcel: CellParcel) -> tuple[int, CellParcel] | str:
        place = parcel.position
        if place + 1 == len(parcel.hops) or self.cells.get(parcel.hops[place + 1]) != port:
            return "drop_bad_parcel"
        if place:
            return self._back(parcel, ParcelFlag.RETURNED)
        if parcel.hops_left == 0:
            return "drop_hops"
        if all(route.hops != parcel.hops[1:] for route in self.known.get(parcel.destination, ())):
            return "drop_no_route"
        key = parcel.destination, parcel.hops[1:]
        until, last_ns = self.excluded.get(key, (0, 0))
        if until <= self.now:
            if self.now - until > 20 * EXCLUDED_NS:
                last_ns = 0
            if parcel.flags & ParcelFlag.ABSENT:
                again_ns = min(max(2 * last_ns, ABSENT_NS), EXCLUDED_NS)
            else:
                again_ns = min(max(2 * last_ns, EXCLUDED_NS), 20 * EXCLUDED_NS)
            self.excluded[key] = self.now + again_ns, again_ns
            if again_ns < ABSENT_LONG_NS:
                del self.known[parcel.destination]  # its routes are asked for again
            else:
                self.broken.append(key)
        return self._choose(port, parcel)

    def _choose(self, port: int, parcel: CellParcel) -> tuple[int, CellParcel] | str:
        if parcel.hops_left == 0:
            return "drop_hops"
        if parcel.destination not in self.known:
            asked = self.routes.get(parcel.destination, [])
            total = sum(route.share for route in asked)
            self.known[parcel.destination] = [Route(route.share / total, route.hops) for route in asked]
        routes = [
            route
            for route in self.known[parcel.destination]
            if self.cells.get(route.hops[0], port) != port
            and self.excluded.get((parcel.destination, route.hops), (0, 0))[0] <= self.now
        ]
        if not routes:
            if parcel.flags & ParcelFlag.RETURNED:
                return "drop_no_route"
            return self._back(parcel, ParcelFlag.RETURNED | ParcelFlag.ABSENT)
        drawn = self.draws.uniform() * sum(route.share for route in routes)
        for route in routes:
            drawn -= route.share
            if drawn < 0:
                break
        flags, left = parcel.flags & ~(ParcelFlag.RETURNED | ParcelFlag.ABSENT), parcel.hops_left - 1
        hops = (self.me, *route.hops)
        return self.cells[route.hops[0]], replace(parcel, flags=flags, hops_left=left, position=1, hops=hops)
