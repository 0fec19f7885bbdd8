"""Link updates: the links of this cell and of those within the radius, with their bandwidth (BF-10, BF-11)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from chappe.cells.adverts import WORTH_TELLING
from chappe.cells.neighbourhood import Neighbourhood
from chappe.errors import ProtocolError
from chappe.wire.cells import CellLink, CellLinks

FORGOTTEN_AFTER = 3  # updates for which a cell was too far away


@dataclass(slots=True)
class _Stated:
    sequence: int
    hops_left: int  # that it may still be passed on
    links: tuple[CellLink, ...]
    absent: int = 0  # updates for which its cell was too far away

    def following(self, origin: bytes) -> CellLinks:
        """The message that passes it on."""
        return CellLinks(origin, self.sequence, self.hops_left - 1, self.links)


class LinkUpdates:
    """Keeps the newest update of each cell, and says which are to be passed on."""

    def __init__(self, me: bytes, radius: int, neighbourhood: Neighbourhood, sequence: int) -> None:
        self._me = me
        self._radius = radius
        self._neighbourhood = neighbourhood
        self._stated: dict[bytes, _Stated] = {}
        self._sequence = sequence
        self._own: dict[bytes, float] = {}  # as last sent

    def own(self, links: Mapping[bytes, float], repeat: bool = False) -> CellLinks | None:
        """The links of this cell as they are now: the update to send, if it says something new."""
        self._neighbourhood.set_links(self._me, links)
        if not repeat and not _differs(self._own, links):
            return None
        self._own = dict(links)
        self._sequence += 1
        return CellLinks(self._me, self._sequence, self._radius - 1, tuple(sorted(links.items())))

    def receive(self, sender: bytes, message: CellLinks, latest: int) -> tuple[bool, CellLinks | None]:
        """Take an update: whether it changed anything, and what is to be passed on.

        A neighbour is believed about its own links alone at full range, what it passes on has come at least one hop.
        No sequence is beyond `latest`. ProtocolError says what no cell would send.
        """
        origin = message.origin
        if origin == self._me:
            raise ProtocolError("links of this cell itself")
        if message.sequence > latest:
            raise ProtocolError(f"a link update of the sequence {message.sequence}")
        hops_left = min(message.hops_left, self._radius - (1 if origin == sender else 2))
        if hops_left < 0:
            return False, None
        known = self._stated.get(origin)
        if known is not None and (message.sequence, hops_left) <= (known.sequence, known.hops_left):
            return False, None
        # a link to this cell of which it does not know is none
        links = {cell: bandwidth for cell, bandwidth in message.links if cell != self._me or origin in self._own}
        changed = self._neighbourhood.set_links(origin, links)
        stated = self._stated[origin] = _Stated(message.sequence, hops_left, message.links)
        return changed, stated.following(origin) if hops_left else None

    def to_pass_on(self) -> list[CellLinks]:
        """The updates of others that a new neighbour should have."""
        return [stated.following(origin) for origin, stated in self._stated.items() if stated.hops_left]

    def forget(self, origin: bytes) -> None:
        """A cell has failed."""
        self._stated.pop(origin, None)
        self._neighbourhood.forget(origin)

    def sweep(self) -> None:
        """Forget cells that have been outside of the radius for some updates."""
        hops = self._neighbourhood.hops
        for origin, stated in list(self._stated.items()):
            stated.absent = 0 if origin in hops else stated.absent + 1
            if stated.absent > FORGOTTEN_AFTER:
                self.forget(origin)


def _differs(before: Mapping[bytes, float], now: Mapping[bytes, float]) -> bool:
    """Whether others must hear of it: links came or went, or a bandwidth changed by more than 10 %."""
    if before.keys() != now.keys():
        return True
    return any(
        not math.isclose(before[cell], value, rel_tol=WORTH_TELLING)
        for cell, value in now.items()
        if not (math.isnan(value) and math.isnan(before[cell]))
    )
