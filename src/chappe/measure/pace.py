"""How often each link is measured: seldom if it is steady, at once if it is not (MR-068 to MR-071)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chappe.measure.metrics import Floats
from chappe.measure.readings import SECOND, Settings
from chappe.measure.windows import Rows

EXTREMES_MINIMUM = 20  # links before 5 % of them are at least one
EXTREMES_NS = 10 * SECOND  # between two looks at which links are extreme, unless many more are known


class Pace:
    """The interval of each row, from its round trip, the number of links, who asked, and how steady it is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._steps: Floats = np.array(settings.steps)
        self.base_ns = settings.base_ns
        self.links = 0  # how many take part
        self.interval_ns: Floats = np.zeros(0)  # of each row as it is now
        self.rtt_ns: Floats = np.zeros(0)  # smoothed, 0 before the first echo
        self.exact_ns: Floats = np.zeros(0)  # wanted for this link alone, 0 = none
        self.asked_ns: Floats = np.zeros(0)  # at least this, says the other end
        self.capacity: Floats = np.zeros(0)  # bytes/s, infinite if not known
        self.slowest: Floats = np.zeros(0)  # multiple of the base interval that the row never goes beyond
        self._step: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._steady: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._reference: Floats = np.zeros(0)  # the cost that rounds are compared with
        self.low_ms = -np.inf
        self.high_ms = np.inf
        self.given = False
        self.look_ns = 0  # when to look again
        self.looked_at = 0  # how many links were known at the last look

    def grow(self, rows: int) -> None:
        """Room for more rows."""
        more = rows - len(self.rtt_ns)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name != "_steps":
                setattr(self, name, np.concatenate((value, np.zeros(more, dtype=value.dtype))))

    def clear(self, row: int) -> None:
        """The row belongs to another link from now on."""
        self.rtt_ns[row] = self.exact_ns[row] = self.asked_ns[row] = 0
        self.capacity[row] = self.slowest[row] = np.inf
        self._reference[row] = np.nan
        self.reset(row)

    def reset(self, row: int) -> None:
        """Back to the base interval, whatever that is by now."""
        self._step[row] = self._steady[row] = 0
        self.refresh(np.array([row]))

    def carry(self, row: int, traffic: bool) -> bool:
        """The row carries traffic, or does not; False if that is no news."""
        slowest = self._settings.carrying if traffic else np.inf
        if self.slowest[row] == slowest:
            return False
        self.slowest[row] = slowest
        self.refresh(np.array([row]))
        return True

    def central_ns(self) -> int:
        """The interval of a link that is near and fast: the base, or more if the node has very many links."""
        settings = self._settings
        return min(max(self.base_ns, self.links * settings.per_link_ns), settings.longest_ns)

    def least_ns(self, rows: Rows) -> Floats:
        """The interval of each of these rows while nothing is steady about it."""
        settings = self._settings
        exact = self.exact_ns[rows]
        usual = np.minimum(np.maximum(settings.rtt_factor * self.rtt_ns[rows], self.central_ns()), settings.longest_ns)
        allowed = settings.probe_bytes * SECOND / settings.share / self.capacity[rows]
        wanted: Floats = np.maximum(np.where(exact > 0, exact, usual), np.maximum(self.asked_ns[rows], allowed))
        return wanted

    def refresh(self, rows: Rows) -> None:
        """Compute the interval of these rows anew."""
        least = self.least_ns(rows)
        multiple = np.minimum(self._steps[self._step[rows]], self.slowest[rows])
        self.interval_ns[rows] = np.maximum(least, np.minimum(least * multiple, self._settings.longest_ns))

    def extremes(self, low_ms: float, high_ms: float) -> None:
        """Mean latencies below and above which a link of this realm is extreme, from now on instead of what the own
        links say."""
        self.low_ms, self.high_ms, self.given = low_ms, high_ms, True

    def look(self, latency_ms: Floats, now_ns: int) -> None:
        """Find out which of the own links are extreme; NaN is not measured."""
        known = latency_ms[np.isfinite(latency_ms)]
        self.look_ns, self.looked_at = now_ns + EXTREMES_NS, len(known)
        self.low_ms, self.high_ms = -np.inf, np.inf
        share = self._settings.extreme_share
        if share > 0 and len(known) >= EXTREMES_MINIMUM:
            low, high = np.quantile(known, [share, 1 - share])
            if low < high:
                self.low_ms, self.high_ms = float(low), float(high)
