"""What was said of neighbours that were not believed: the same is not said again and again."""

from __future__ import annotations

from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import SECOND

QUIET_NS = 10 * SECOND  # the same complaint about the same neighbour is repeated after this time
MOST = 1024


class Complaints:
    """Bounded: whoever sends many different messages that cannot be believed is complained of more often."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], int] = {}

    def new(self, peer: str, reason: str, now_ns: int) -> bool:
        """Whether a complaint is to be said now; then it counts as said."""
        key = (peer, reason)
        if now_ns < self._said.get(key, -NEVER) + QUIET_NS:
            return False
        if len(self._said) >= MOST:
            self._said.clear()
        self._said[key] = now_ns
        return True
