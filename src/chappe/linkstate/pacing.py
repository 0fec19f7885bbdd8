"""How often a map that keeps changing is computed: soon after the first change, then at growing intervals."""

from __future__ import annotations

from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import Settings


class Pacing:
    """Changes of the own links and of the cluster are computed at once; what is far may wait while more keeps coming.

    A route that was planned over an older map of far units still arrives: whoever enters a unit plans its inside anew.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._computed_ns = -NEVER
        self._far_ns = -NEVER  # the last time for what is far alone
        self._hold_ns = 0  # from there to the next time

    def due_ns(self, changed_ns: int, level: int) -> int:
        """When a map is computed that changed at that time, at that level or above."""
        settings = self.settings
        soonest_ns = max(self.ready_ns(changed_ns, level), self._computed_ns + settings.recompute_ns)
        return max(changed_ns + (settings.gather_ns << (2 * level)), soonest_ns)

    def ready_ns(self, changed_ns: int, level: int) -> int:
        """When it may be computed at the earliest, if somebody asks; at once after a pause."""
        paused = changed_ns - self._far_ns >= self.settings.recompute_most_ns
        return self._computed_ns if paused or not level else self._computed_ns + self._hold_ns

    def done(self, now_ns: int, changed_ns: int, level: int) -> None:
        """It is computed; the next time for far changes alone is twice as far away unless there was a pause."""
        settings = self.settings
        if level:
            paused = changed_ns - self._far_ns >= settings.recompute_most_ns
            self._hold_ns = settings.recompute_ns if paused else min(2 * self._hold_ns, settings.recompute_most_ns)
            self._far_ns = now_ns
        self._computed_ns = now_ns
