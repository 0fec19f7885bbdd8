"""The measurement initiator of a node: when to probe which link, and what the echoes say (MR-059).

It has no socket and no clock: `due` says which probes to send, `echoed` takes their answers, `tick` tells what is new.
Only the sender's clock is used, so clocks need not agree (MR-058). What is done for each probe is a few dictionary and
heap operations; formulas run over all links with new samples at once.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from chappe.measure import metrics
from chappe.measure.links import Links
from chappe.measure.pace import Pace
from chappe.measure.probes import NEVER
from chappe.measure.readings import FACTORS, TYPES, Factor, Reading, Settings

__all__ = ["FACTORS", "NEVER", "Factor", "Initiator", "Reading", "Settings"]

_CLOCKS_NS = 1_000_000  # a round trip may seem so much longer than it can be, as clocks are read at different moments


class Initiator:
    """Measures any number of links of one node; asleep until `wake`.

    Links are added and removed as transports make and lose them (MR-061). Times are of one monotonic clock.
    """

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self.awake = False
        self.refused = 0  # echoes that no probe waited for
        self._rng = rng
        self._links = Links(settings, rng.getrandbits(62) | 1)
        self._pace: Pace = self._links.pace
        self._probes = self._links.probes
        self._heap: list[tuple[int, int]] = []  # (when, row); stale where `_due` says otherwise
        self._due: list[int] = []  # when the next probe of a row is due, NEVER if none is
        self._sent: list[int] = []  # when its last one was
        self._side: list[int] = []  # on which side of the usual range its last sample was, 0 if within
        self._samples: list[tuple[int, int]] = []  # (row, round trip) of echoes that were not evaluated yet
        self._lost: set[int] = set()  # rows that lost a probe since
        self._told: set[int] = set()  # rows of which something else is new
        self._evaluate_at = NEVER
        self._evaluated_ns = -NEVER
        self._batch_ns = int(settings.batch * settings.base_ns)
        self._now_ns = 0
        self._origin_ns = 0  # of synchronous rounds

    # --- links

    def add(self, link: int, kind: str, lossy: bool, now_ns: int) -> None:
        """A link that can be measured; loss is measured on lossy transports only, unless the settings say otherwise."""
        row = self._links.add(link, kind, lossy)
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

    def asked(self, link: int, interval_ns: int | None) -> None:
        """The other end wants to be probed no more often than this; 0 = not at all, None = as we like (MR-072)."""
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

    # --- rounds

    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """(link, token) of each probe to send now; a token is never 0."""
        heap, wanted = self._heap, list[tuple[int, int]]()
        if not heap or heap[0][0] > now_ns:
            return wanted
        self._now_ns = now_ns
        due, link, send, timeout_ns = self._due, self._links.link, self._probes.send, self._pace.timeout_ns
        while heap and heap[0][0] <= now_ns:
            at, row = heap[0]
            if due[row] != at:
                heappop(heap)
                continue
            wanted.append((link[row], send(row, now_ns, timeout_ns(row))))
            due[row] = at = self._after(row, at, now_ns)
            heapreplace(heap, (at, row))
            self._sent[row] = now_ns
        return wanted

    def echoed(self, link: int, token: int, rtt_ns: int, now_ns: int) -> None:
        """A probe came back; unknown tokens and impossible times are counted (`refused`) and change nothing."""
        row = self._links.rows.get(link, -1)
        sent_ns = self._probes.sent_ns(row, token)
        if sent_ns is None or not 0 < rtt_ns <= now_ns - sent_ns + _CLOCKS_NS:
            self.refused += 1
        else:
            self._take(row, token, rtt_ns, now_ns)

    def arrived(self, link: int, token: int, arrived_ns: int, now_ns: int) -> None:
        """As `echoed`, of a probe that left when `due` was asked for it and came back at that time, on one clock."""
        row = self._links.rows.get(link, -1)
        sent_ns = self._probes.sent_ns(row, token)
        if sent_ns is None or not sent_ns < arrived_ns <= now_ns + _CLOCKS_NS:
            self.refused += 1
        else:
            self._take(row, token, arrived_ns - sent_ns, now_ns)

    def unsent(self, link: int, token: int) -> None:
        """The probe could not be sent, or what it measured was a train of bytes: it counts neither as answered nor as
        lost."""
        if self._probes.sent_ns(self._links.rows.get(link, -1), token) is not None:
            self._probes.answered(token)

    def tick(self, now_ns: int) -> list[Reading]:
        """Links whose metrics are new; finds probes that got no answer in time."""
        if not self.awake:
            return []
        if self._probes.next_ns() <= now_ns:
            lost = self._probes.expire(now_ns)
            if lost:
                self._lost.update(lost)
                self._evaluate_by(now_ns)
        if now_ns < self._evaluate_at:
            return []
        self._now_ns = self._evaluated_ns = now_ns
        self._evaluate_at = NEVER
        samples, self._samples = self._samples, []
        lost_rows, self._lost = self._lost, set()
        told, self._told = self._told, set()
        changes = self._links.evaluate(samples, lost_rows, told, now_ns)
        for row in changes.returned:
            self._hasten(row, self._interval_ns(row))
        for row in changes.shifted:
            self._side[row] = 0
        return changes.readings

    def next_ns(self) -> int:
        """When `due` or `tick` has something to do at the latest; a time far off if nothing is awaited."""
        if not self.awake:
            return NEVER
        return min(self._heap[0][0] if self._heap else NEVER, self._probes.next_ns(), self._evaluate_at)

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

    def _take(self, row: int, token: int, rtt_ns: int, now_ns: int) -> None:
        """A sample waits to be evaluated with others, unless it is the first of its row or the second that deviates to
        the same side. After a first that does, another probe soon says what it meant."""
        if self._probes.answered(token):
            self._told.add(row)
        self._samples.append((row, rtt_ns))
        windows = self._links.windows
        side, before = windows.side(row, metrics.latency_ms(rtt_ns)), self._side[row]
        self._side[row] = side
        if side and side != before:
            least_ns = float(self._pace.least_ns(np.array([row]))[0])
            self._hasten(row, int(least_ns * self.settings.confirm), from_ns=now_ns)
        elif side or windows.count.item(row) == 0:
            self._evaluate_by(now_ns)
        if self._evaluate_at == NEVER:
            self._evaluate_at = now_ns + self._batch_ns

    def _after(self, row: int, at_ns: int, now_ns: int) -> int:
        """When the next probe of a row is due, if one that was due then is sent now."""
        interval_ns = self._interval_ns(row)
        if self.settings.synchronous:
            return self._origin_ns + ((now_ns - self._origin_ns) // interval_ns + 1) * interval_ns
        if self._sent[row] == NEVER:  # links that came together part here
            return self._together(now_ns + int((0.5 + self._rng.random()) * interval_ns), interval_ns)
        late = at_ns + interval_ns <= now_ns
        return self._together((now_ns if late else at_ns) + interval_ns, interval_ns)

    def _together(self, at_ns: int, interval_ns: int) -> int:
        """The multiple of a slot that is nearest to that time, so that probes of many links leave in one go: each time
        the node wakes up, and each time answers wake it, costs more than a probe."""
        slot_ns = self.settings.slot_ns
        if interval_ns < 10 * slot_ns:
            return at_ns
        return (at_ns + slot_ns // 2) // slot_ns * slot_ns

    def _evaluate_by(self, at_ns: int) -> None:
        """Evaluations that cannot wait are still some time apart, so that many links cannot make many of them."""
        self._evaluate_at = min(self._evaluate_at, max(at_ns, self._evaluated_ns + self.settings.hurry_ns))

    def _plan(self, row: int, at_ns: int) -> None:
        self._due[row] = at_ns
        heappush(self._heap, (at_ns, row))

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

    def _hasten(self, row: int, wait_ns: int, from_ns: int | None = None) -> None:
        """The next probe comes so long after the last, if that is earlier than planned."""
        at_ns = max((self._sent[row] if from_ns is None else from_ns) + wait_ns, self._now_ns)
        if self._due[row] != NEVER and at_ns < self._due[row]:
            self._plan(row, at_ns)
