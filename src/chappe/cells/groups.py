"""Multicast parcels at one cell: which copies leave, and who gets one here (BF-25, BF-26, BF-28)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from chappe.cells.multicast import Seen, spans, widest_tree
from chappe.cells.names import ANY
from chappe.cells.neighbour import Neighbour
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.own_names import OwnNames
from chappe.cells.router import Router
from chappe.cells.trie import Trie
from chappe.engine._engine import Engine
from chappe.errors import ProtocolError
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.parcels import MAX_HOPS, CellParcel
from chappe.wire.payloads import PARCEL_VERSION

BULK = 3  # the class of parcels
AT_ONCE = 8  # parcels handled in one slice
WAITING = 4096  # parcels that wait to be handled; more are dropped
MOST_NAMES = 1024  # that are looked at for those who have a prefix; beyond, neighbours find each other


@dataclass(slots=True)
class GroupCounts:
    """What became of multicast parcels; delivery is not promised."""

    received: int = 0
    delivered: int = 0
    forwarded: int = 0
    repeated: int = 0
    dropped: int = 0


class GroupMessages:
    """Until a parcel has come to the prefix, its hop list is its path: `position` is where it is on it.

    Inside the prefix a full position means that the list is a set: the cells that this copy is for, joined by a tree
    that is as wide as can be (BF-40). An empty list is for whoever has the prefix: who does not know all of them, or
    no tree that joins them, sends the parcel to all neighbours that have it, and each does so once.
    """

    def __init__(
        self, me: bytes, engine: Engine, names: OwnNames, trie: Trie, neighbourhood: Neighbourhood, router: Router,
        neighbours: Mapping[int, Neighbour],
    ) -> None:  # fmt: skip
        self._me = me
        self._engine = engine
        self._names = names
        self._trie = trie
        self._neighbourhood = neighbourhood
        self._router = router
        self._neighbours = neighbours
        self._seen = Seen()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.counts = GroupCounts()

    @property
    def busy(self) -> bool:
        """Whether parcels wait."""
        return bool(self._waiting)

    def collect(self) -> None:
        """Take what has arrived."""
        arrived = self._engine.take_parcels()
        room = WAITING - len(self._waiting)
        self._waiting += arrived[:room]
        self.counts.dropped += len(arrived[room:])

    def work(self, now_ns: int) -> None:
        """Handle some of them."""
        for _ in range(min(AT_ONCE, len(self._waiting))):
            port, payload = self._waiting.popleft()
            self.counts.received += 1
            try:
                parcel = CellParcel.decode(payload[1:])
            except ProtocolError:
                self.counts.dropped += 1
                continue
            self._handle(port, parcel, now_ns)

    def _handle(self, port: int, parcel: CellParcel, now_ns: int) -> None:
        neighbour = self._neighbours.get(port)
        sender = neighbour.id if neighbour is not None else b""
        if not parcel.destination.endswith(ANY) or (neighbour is not None and not neighbour.joined):
            self.counts.dropped += 1
            return
        count, position = len(parcel.hops), parcel.position
        if not sender:
            parcel = replace(parcel, hops=(), position=0, hops_left=MAX_HOPS)
        elif position < count - 1:  # on its path
            on_it = parcel.hops[position] == self._me
            self._forward(parcel, parcel.hops[position + 1] if on_it else b"", position + 1)
            return
        prefix = parcel.destination.removesuffix(ANY)
        if any(name.startswith(prefix) for name in self._names):
            self._inside(sender, parcel, prefix)
        elif not sender or 0 < count == position + 1:
            self._toward(parcel, prefix, now_ns)
        else:
            self.counts.dropped += 1

    def _toward(self, parcel: CellParcel, prefix: str, now_ns: int) -> None:
        """As a main cell does with any parcel: one path to a cell that is nearer to the prefix."""
        path = self._router.path_toward(prefix, now_ns)
        if path:
            self._forward(replace(parcel, hops=(self._me, *path)), path[0], 1)
        else:
            self.counts.dropped += 1

    def _inside(self, sender: bytes, parcel: CellParcel, prefix: str) -> None:
        if not self._seen.add((parcel.flow, parcel.sequence)):
            self.counts.repeated += 1
            return
        self._deliver(parcel, prefix)
        others = self._others(sender, parcel, prefix)
        if others is not None and not others:
            return
        copies = self._by_tree(others) if others is not None else None
        if copies is None:
            for cell in self._flooded(prefix, sender):
                self._forward(replace(parcel, hops=()), cell, 0)
            return
        for cell, behind in copies:
            self._forward(replace(parcel, hops=behind), cell, len(behind))

    def _others(self, sender: bytes, parcel: CellParcel, prefix: str) -> set[bytes] | None:
        """The cells that a copy is for, beside this one; None: whoever has the prefix."""
        count = len(parcel.hops)
        if sender and 0 < count == parcel.position:
            return {id for id in parcel.hops if id != self._me}
        if sender and not count:
            return None  # the sender did not know all of them, so this cell need not try
        return self._with_prefix(prefix)

    def _by_tree(self, others: set[bytes]) -> list[tuple[bytes, tuple[bytes, ...]]] | None:
        """To which neighbours copies go, and for which cells each; None without a tree that joins them all."""
        if len(others) > MAX_HOPS or not others <= self._neighbourhood.hops.keys():
            return None
        tree = widest_tree(self._me, others, self._neighbourhood.arcs)
        if not spans(tree, self._me, others):
            return None
        return [(cell, tuple(_behind(tree, self._me, cell))) for cell in sorted(tree[self._me])]

    def _with_prefix(self, prefix: str) -> set[bytes] | None:
        """The other cells that have a name with it; None if there may be more than are looked at."""
        names = list(islice(self._trie.with_prefix(prefix), MOST_NAMES))
        if len(names) == MOST_NAMES:
            return None
        found = (self._trie.find(name) for name in names)
        return {known.cell for known in found if known is not None}

    def _flooded(self, prefix: str, sender: bytes) -> Iterator[bytes]:
        for neighbour in list(self._neighbours.values()):
            names = self._trie.names_of(neighbour.id) if neighbour.joined and neighbour.id != sender else ()
            if any(name.startswith(prefix) for name in names):
                yield neighbour.id

    def _deliver(self, parcel: CellParcel, prefix: str) -> None:
        frame = _frame(replace(parcel, hops=(), position=0))
        for client in sorted(self._names.ports(prefix, parcel.source)):
            if self._engine.send(client, frame, BULK):
                self.counts.delivered += 1
            else:
                self.counts.dropped += 1

    def _forward(self, parcel: CellParcel, cell: bytes, position: int) -> None:
        port = next((each.port for each in self._neighbours.values() if each.id == cell and cell), -1)
        if port < 0 or parcel.hops_left == 0 or len(parcel.hops) > MAX_HOPS:
            self.counts.dropped += 1
            return
        onward = replace(parcel, position=position, hops_left=parcel.hops_left - 1)
        if self._engine.send(port, _frame(onward), BULK):
            self.counts.forwarded += 1
        else:
            self.counts.dropped += 1


def _behind(tree: Mapping[bytes, set[bytes]], me: bytes, cell: bytes) -> list[bytes]:
    """A cell and all that are behind it."""
    found, waiting = [cell], [(me, cell)]
    while waiting:
        before, here = waiting.pop()
        for following in sorted(tree[here] - {before}):
            found.append(following)
            waiting.append((here, following))
    return found


def _frame(parcel: CellParcel) -> bytes:
    return encode_frame(Kind.PARCEL, bytes((PARCEL_VERSION,)) + parcel.encode())
