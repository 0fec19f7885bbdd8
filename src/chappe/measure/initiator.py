"""The measurement initiator of a node: when to probe which link, and what the echoes say (MR-059).

It has no socket and no clock: `due` says which probes to send, `echoed` takes their answers, `tick` gives what is new.
Only the sender's clock is used, so clocks need not agree (MR-058). What is done for each probe is compiled (`_rounds`)
and is a few dictionary and heap operations; formulas run over all links with new samples at once (`_evaluation`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chappe.measure._rounds import Rounds
from chappe.measure.cost import Metrics
from chappe.measure.links import Links
from chappe.measure.probes import NEVER
from chappe.measure.readings import FACTORS, TYPES, Factor, Reading, Settings

__all__ = ["FACTORS", "NEVER", "Factor", "Initiator", "Reading", "Settings"]


class Initiator(Rounds):
    """Measures any number of links of one node; asleep until `wake`.

    Links are added and removed as transports make and lose them (MR-061). Times are of one monotonic clock.
    """

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        super().__init__(settings, rng, Links(settings, rng.getrandbits(62) | 1))

    # --- links

    def add(self, link: int, lossy: bool, now_ns: int) -> None:
        """A link that can be measured; loss is measured on lossy transports only, unless it is switched on."""
        row = self._links.add(link, lossy)
        while len(self._due) <= row:
            self._due.append(NEVER)
            self._sent.append(NEVER)
            self._side.append(0)
        self._sent[row], self._side[row] = NEVER, 0
        self._now_ns = max(self._now_ns, now_ns)
        if self.awake:
            self._plan_first(row, now_ns, 0.1)

    def remove(self, link: int) -> None:
        """The link is gone; nothing is kept of it."""
        row = self._links.remove(link)
        self._due[row] = NEVER
        self._samples = [sample for sample in self._samples if sample[0] != row]
        self._lost.discard(row)
        self._told.discard(row)

    def __contains__(self, link: int) -> bool:
        return link in self._links.rows

    def links(self) -> list[int]:
        """All links, measured or not."""
        return list(self._links.rows)

    # --- switches

    def wake(self, now_ns: int) -> None:
        """Start to measure; the first probes are spread over one interval, or all sent at once if synchronous."""
        if self.awake:
            return
        self.awake = True
        self._now_ns = self._origin_ns = now_ns
        for row in self._links.rows.values():
            self._plan_first(row, now_ns, 1.0)

    def sleep(self) -> None:
        """Stop to measure; what is known stays."""
        self.awake = False
        self._heap.clear()
        self._samples.clear()
        self._lost.clear()
        self._told.clear()
        self._evaluate_at = NEVER
        for row in self._links.rows.values():
            self._due[row] = NEVER
            self._probes.abandon(row)

    def switch(self, link: int, on: bool) -> None:
        """Measure this link, or not (MR-051); what is known of it stays."""
        row = self._links.row(link)
        self._links.switch(row, on)
        self._restart(row)

    def switch_factor(self, link: int, factor: str, on: bool) -> None:
        """Measure one factor of this link, or not (MR-052)."""
        row = self._links.row(link)
        self._links.switch_factor(row, factor, on)
        self._restart(row)

    def interval(self, interval_ns: int, link: int | None = None) -> None:
        """The base interval of the node; or the interval of one link, whatever its round trip is, 0 for the usual one
        again (MR-068)."""
        settings = self.settings
        usual = link is not None and interval_ns == 0
        if not usual and not settings.shortest_ns <= interval_ns <= settings.longest_ns:
            raise ValueError(
                f"an interval of {interval_ns / 1e6:g} ms; choose one from {settings.shortest_ns / 1e6:g} "
                f"to {settings.longest_ns / 1e6:g} ms"
            )
        if link is not None:
            row = self._links.row(link)
            self._pace.exact_ns[row] = interval_ns
            if not usual:
                self._batch_ns = min(self._batch_ns, int(settings.batch * interval_ns))
            self._restart(row)
            return
        self._pace.base_ns = interval_ns
        self._batch_ns = int(settings.batch * interval_ns)
        for row in self._links.rows.values():
            self._restart(row)

    def limit_pace(self, link: int, interval_ns: int | None) -> None:
        """The other end asks to be probed no more often than this; 0 = not at all, None = as we like (MR-072)."""
        row = self._links.row(link)
        self._links.refuse(row, interval_ns == 0)
        self._pace.asked_ns[row] = min(max(interval_ns or 0, 0), 60 * self.settings.longest_ns)
        self._restart(row)

    def now(self, link: int, now_ns: int) -> bool:
        """Probe the link at once, whatever its interval; False if it is not measured, here or by its other end."""
        row = self._links.row(link)
        if not self.awake or not self._links.probed(row):
            return False
        self._now_ns = max(self._now_ns, now_ns)
        self._plan(row, now_ns)
        return True

    def carries(self, link: int, traffic: bool) -> None:
        """Whether the link carries traffic: then it is never measured less often than every second base interval."""
        row = self._links.row(link)
        if self._pace.carry(row, traffic) and self.awake:
            self._hasten(row, self._interval_ns(row))

    def quiet(self, link: int, advertised: Sequence[tuple[float, float]], metrics: Metrics) -> None:
        """These costs were advertised, made of these metrics, one for each profile of `settings.advertised`, each with
        how far from it is no news: `tick` has a reading of the link again when one of its costs is further away, and by
        more than samples would make it by chance, or when its level has changed."""
        self._links.evaluation.quiet(self._links.row(link), advertised, metrics)

    def bandwidth(self, link: int, bytes_per_s: float) -> None:
        """The available bandwidth of the link, as its estimator says; NaN = not known any more."""
        row = self._links.row(link)
        self._links.bandwidth[row] = bytes_per_s
        self._pace.capacity[row] = bytes_per_s if bytes_per_s > 0 else np.inf
        if self.awake:
            self._told.add(row)
            self._evaluate_at = min(self._evaluate_at, self._now_ns + self._batch_ns)

    def extremes(self, low_ms: float, high_ms: float) -> None:
        """Latencies that few links of this realm are below or above, instead of what the own links say (MR-070)."""
        self._pace.extremes(low_ms, high_ms)

    # --- what is known

    def reading(self, link: int) -> Reading | None:
        """What is known of the link; None before its first echo or loss rate."""
        return self._links.reading(self._links.row(link))

    def factors(self, link: int) -> list[Factor]:
        """All that is known of the link by factors that are on, NaN where nothing is (MR-053)."""
        reading = self.reading(link)
        return [
            Factor(type, getattr(reading.metrics, type) if reading else np.nan, description)
            for name in self.enabled(link)
            for type, description in TYPES[name].items()
        ]

    def factor(self, link: int, type: str) -> Factor:
        """One of them (MR-053)."""
        found = {factor.type: factor for factor in self.factors(link)}
        if type not in found:
            raise ValueError(f"link {link} measures no {type!r}; it measures {', '.join(found) or 'nothing'}")
        return found[type]

    def enabled(self, link: int) -> list[str]:
        """Names of the factors that are on (MR-054); none if the link is switched off."""
        return self._links.enabled(self._links.row(link))

    def measures(self, link: int, factor: str) -> bool:
        """Whether this node measures that factor of the link now."""
        return self.awake and factor in self.enabled(link)

    def interval_ns(self, link: int | None = None) -> int:
        """How often the link is measured now; without a link how often one is that is near, fast and not steady."""
        return self._pace.central_ns() if link is None else self._interval_ns(self._links.row(link))

    def rtt_ns(self, link: int) -> int:
        """The smoothed round trip of the link; 0 before its first echo was evaluated."""
        return int(self._pace.rtt_ns[self._links.row(link)])

    def history(self, link: int) -> NDArray[np.void]:
        """The last readings of the link, oldest first, as HISTORY entries (MR-131)."""
        return self._links.history(self._links.row(link))

    # --- planning

    def _interval_ns(self, row: int) -> int:
        return int(self._pace.interval_ns.item(row))

    def _plan_first(self, row: int, now_ns: int, part: float) -> None:
        """The first probe comes within that part of the interval, at a random moment."""
        self._due[row] = NEVER
        if self._links.probed(row):
            spread = 0 if self.settings.synchronous else int(self._rng.random() * part * self._interval_ns(row))
            self._plan(row, now_ns + spread)

    def _restart(self, row: int) -> None:
        """Somebody changed how the row is measured: back to its base interval, counted from the last probe."""
        self._pace.reset(row)
        if not self.awake:
            return
        if not self._links.probed(row):
            self._due[row] = NEVER
            self._probes.abandon(row)
        elif self._sent[row] == NEVER or self._due[row] == NEVER:
            self._plan_first(row, self._now_ns, 0.1)
        else:
            next_ns = self._sent[row] + self._interval_ns(row)
            if next_ns <= self._now_ns:
                self._plan_first(row, self._now_ns, 0.1)
            else:
                self._plan(row, next_ns)
