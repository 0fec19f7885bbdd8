"""The operating mode as clients know it: which one is in force, and which one is coming (GS-115)."""

from __future__ import annotations

from chappe.machine import NEVER
from chappe.wire.management import ModeState

SETTLED_NS = 5_000_000_000  # a change whose commit does not come is over for clients so long after the switch


class Modes:
    """The mode as clients see it: it changes when a change is committed, not while tables are switched.

    Each method returns what all clients must know, or None.
    """

    def __init__(self, mode: int = 0) -> None:
        self.mode = mode
        self.next = mode  # the one that is coming; the same as `mode` while no change is under way
        self._switched_ns = 0

    @property
    def changing(self) -> bool:
        return self.next != self.mode

    @property
    def state(self) -> ModeState:
        return ModeState(mode=self.mode, next=self.next)

    def inform(self, mode: int) -> ModeState | None:
        """Phase 1."""
        self._switched_ns = 0
        return self._become(self.mode, mode)

    def switched(self, mode: int, now_ns: int) -> ModeState | None:
        """Phase 4, or a router that learns the mode when it joins: nobody has been informed then."""
        if self.changing and mode == self.next:
            self._switched_ns = now_ns
            return None
        return self.commit(mode)

    def commit(self, mode: int) -> ModeState | None:
        """Phase 5."""
        self._switched_ns = 0
        return self._become(mode, mode)

    def tick(self, now_ns: int) -> ModeState | None:
        """A broker that died between phases 4 and 5 must not leave clients in between for ever."""
        if self._switched_ns and now_ns - self._switched_ns >= SETTLED_NS:
            return self.commit(self.next)
        return None

    def next_tick(self) -> int:
        """When `tick` has something to do."""
        return self._switched_ns + SETTLED_NS if self._switched_ns else NEVER

    def _become(self, mode: int, following: int) -> ModeState | None:
        if (mode, following) == (self.mode, self.next):
            return None
        self.mode, self.next = mode, following
        return self.state
