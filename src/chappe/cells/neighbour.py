"""A neighbouring cell: what is known of the link to it, and what it has advertised."""

from __future__ import annotations

from dataclasses import dataclass, field

from chappe.cells.settings import SECOND, CellSettings
from chappe.wire.celladverts import Entry


@dataclass(slots=True, eq=False)
class Neighbour:
    """The other end of a link that carries the messages of cells."""

    port: int
    name: str  # of its node
    since_ns: int
    tokens: float
    id: bytes = b""  # once it has said hello
    joins: bool = True  # False: the link is for cells alone
    wants: bool = False  # it wants the link for itself
    wanted: bool = False  # so does this end, as it was said
    heard: int = -1  # sequence of its last peer update
    resync_ns: int = -(1 << 62)  # when everything was asked for
    advert: dict[str, Entry] = field(default_factory=dict)
    filled_ns: int = 0

    @property
    def joined(self) -> bool:
        return bool(self.id)

    def admits(self, settings: CellSettings, now_ns: int) -> bool:
        """Whether it may say one more thing now: so many a second, and more at once after silence."""
        earned = settings.messages_per_s * (now_ns - self.filled_ns) / SECOND
        self.tokens, self.filled_ns = min(self.tokens + earned, settings.burst), now_ns
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
