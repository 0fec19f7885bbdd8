# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What new samples mean for their links, compiled: one pass over the rows that have any.

A node with few links wakes up once an interval for it, with all its code gone from the caches of the processor: what
counts is how little is run then. So a link whose cost stays where it was advertised makes no reading at all.
"""

from libc.math cimport INFINITY, NAN, fabs, isfinite, isnan, sqrt
from libc.stdint cimport int64_t

import numpy as np

from chappe.measure.cost import MEGABYTE_MS as _MEGABYTE_MS
from chappe.measure.cost import PROFILES, UNKNOWN_BANDWIDTH as _UNKNOWN_BANDWIDTH, Metrics, Profile, cost as cost_of
from chappe.measure.metrics import LOSS_MINIMUM as _LOSS_MINIMUM, LOSS_WINDOW as _LOSS_WINDOW
from chappe.measure.readings import SECOND, Reading

from chappe.measure._windows cimport DEVIATES, SHIFTED, Table

cdef double MEGABYTE_MS = _MEGABYTE_MS
cdef double UNKNOWN_BANDWIDTH = _UNKNOWN_BANDWIDTH
cdef int64_t LOSS_MINIMUM = _LOSS_MINIMUM
cdef int64_t LOSS_WINDOW = _LOSS_WINDOW

cdef enum:  # factors in the order of `readings.FACTORS`
    ON_LATENCY, ON_DEVIATION, ON_JITTER, ON_LOSS, ON_BANDWIDTH

cdef enum:  # figures in the order of `cost.Metrics`
    LATENCY_MS, DEVIATION_MS, JITTER_MS, JITTER, LOSS, BANDWIDTH

cdef enum:  # what is known of a row in this evaluation, beside DEVIATES and SHIFTED
    ROUND = 4
    LISTED = 8

cdef packed struct Entry:  # `readings.HISTORY`
    int64_t now_ns
    float latency_ms
    float deviation_ms
    float jitter_ms
    float jitter
    float loss
    float cost


cdef class Evaluation:
    """The arrays of `Links` and of what belongs to it; `bind` again whenever these have grown."""

    def __init__(self, links, settings):
        self._links = links
        self._settings = settings
        self._pace = links.pace
        self._adaptive = settings.adaptive
        self._threshold = settings.threshold
        self._floor_ms = settings.floor_ms
        self._certainty = settings.certainty
        self._rtt_factor = settings.rtt_factor
        self._longest_ns = settings.longest_ns
        self._probe_ns = settings.probe_bytes * SECOND / settings.share
        self._steady_rounds = settings.steady_rounds
        self._history = settings.history
        self._plain = isinstance(PROFILES.get(settings.profile), Profile)
        if self._plain:
            self._own = _coefficients(PROFILES[settings.profile])
        formulas = [PROFILES.get(profile) for profile in settings.advertised]
        self._profiles = 0
        if len(formulas) <= MOST_PROFILES and all(isinstance(formula, Profile) for formula in formulas):
            for formula in formulas:
                self._formulas[self._profiles] = _coefficients(formula)
                self._profiles += 1
        self._bands = np.zeros((0, BAND * max(self._profiles, 1)))
        self.bind()

    def bind(self):
        """Take the arrays as they are now."""
        links, pace = self._links, self._pace
        rows = len(links.link)
        self.windows = Table(links.windows)
        self.interval_ns, self.rtt_ns = pace.interval_ns, pace.rtt_ns
        self._exact_ns, self._asked_ns, self._capacity = pace.exact_ns, pace.asked_ns, pace.capacity
        self._slowest, self._reference, self._steps = pace.slowest, pace._reference, pace._steps
        self._step, self._steady = pace._step, pace._steady
        self._on = links._on.view(np.uint8)
        self._bandwidth = links.bandwidth
        self._sequence, self._lost = links.probes.sequence, links.probes.lost
        self._past, self._past_count = links._past.view(np.uint8), links._past_count
        more = rows - len(self._bands)
        if more:
            quiet = np.zeros(rows, dtype=np.uint8)
            if rows > more:
                quiet[: rows - more] = self._quiet
            self._quiet = quiet
            self._bands = np.concatenate((self._bands, np.zeros((more, self._bands.shape[1]))))
            self._marks = np.zeros(rows, dtype=np.uint8)
            self._fresh = np.zeros(rows, dtype=np.intp)
            self._figures = np.zeros((rows, FIGURES))
            self._seen = self._figures
            self._costs = np.zeros(rows)
        elif not rows:
            self._quiet = np.zeros(0, dtype=np.uint8)
        self._band = self._bands

    def clear(self, Py_ssize_t row):
        """Whatever is found out about the row is news."""
        self._quiet[row] = False

    def quiet(self, Py_ssize_t row, advertised, metrics):
        """No reading of the row while its cost by each profile of `settings.advertised` is no further from the first
        number than the second says, or than samples vary by. The costs were made of these metrics."""
        cdef Py_ssize_t at
        if self._profiles == 0 or len(advertised) != self._profiles:
            return
        for at, (value, range) in enumerate(advertised):
            self._band[row, BAND * at], self._band[row, BAND * at + 1] = value, range
            self._band[row, BAND * at + 2] = value - _sampled(&self._formulas[at], metrics.latency_ms, metrics.jitter)
        self._quiet[row] = True

    def evaluate(self, list samples, set lost, set news, int64_t now_ns):
        """Take new samples (row, round trip) into their windows: readings of these rows, of those that lost probes and
        of those that have other news, the rows that went back to their base interval, and those whose level changed."""
        cdef Py_ssize_t row, i, rounds, fresh = 0
        cdef double rtt_ns, central_ns, low_ms = -INFINITY, high_ms = INFINITY
        cdef int what
        for sample in samples:
            row, rtt_ns = (<tuple> sample)[0], (<tuple> sample)[1]
            if self.rtt_ns[row] > 0:  # smoothed as TCP does
                self.rtt_ns[row] += (rtt_ns - self.rtt_ns[row]) / 8
            else:
                self.rtt_ns[row] = rtt_ns
            if not self._marks[row]:
                self._fresh[fresh] = row
                fresh += 1
            self._marks[row] |= ROUND | LISTED | self.windows.take(row, rtt_ns / 2e6)
        for row in sorted(lost) if lost else ():
            if not self._marks[row]:
                self._fresh[fresh] = row
                fresh += 1
            self._marks[row] |= ROUND | LISTED | DEVIATES
        rounds = fresh
        for row in sorted(news) if news else ():
            if not self._marks[row]:
                self._fresh[fresh] = row
                fresh += 1
                self._marks[row] = LISTED
        readings, returned, shifted = [], [], []
        if not fresh:
            return readings, returned, shifted
        for i in range(fresh):
            self._look(self._fresh[i], &self._seen[i, 0])
        self._price(fresh)
        if self._adaptive:
            low_ms, high_ms = self._extremes(now_ns)
        central_ns = self._pace.central_ns()
        for i in range(fresh):
            row = self._fresh[i]
            what = self._marks[row]
            self._marks[row] = 0
            if i < rounds and self._round(row, self._costs[i], what & DEVIATES != 0, low_ms, high_ms):
                returned.append(row)
            if what & SHIFTED:
                shifted.append(row)
            self._pace_of(row, central_ns)
            if self.windows.count[row] == 0 and isnan(self._seen[i, LOSS]) and isnan(self._seen[i, BANDWIDTH]):
                continue  # nothing came back of it yet
            if self._past_count[row] * sizeof(Entry) >= <size_t> self._past.shape[1] and (
                    self._past.shape[1] < <Py_ssize_t> (self._history * sizeof(Entry))):
                self._links.widen()
            self._remember(row, &self._seen[i, 0], self._costs[i], now_ns)
            if not self._quiet[row] or what & SHIFTED or self._news(row, &self._seen[i, 0]):
                readings.append(Reading(
                    self._links.link[row], self.windows.count[row], self.windows.outliers[row],
                    Metrics(*[self._seen[i, at] for at in range(FIGURES)]), <int64_t> self.interval_ns[row],
                    what & SHIFTED != 0))
        return readings, returned, shifted

    cdef void _look(self, Py_ssize_t row, double* seen) noexcept:
        """Figures by the factors that are on."""
        cdef Table windows = self.windows
        cdef int64_t sent
        seen[LATENCY_MS] = windows.mean[row] if self._on[row, ON_LATENCY] else NAN
        seen[DEVIATION_MS] = windows.deviation[row] if self._on[row, ON_DEVIATION] else NAN
        seen[JITTER_MS] = windows.jitter_ms[row] if self._on[row, ON_JITTER] else NAN
        seen[JITTER] = windows.jitter[row] if self._on[row, ON_JITTER] and not isnan(windows.jitter[row]) else 0.0
        seen[LOSS] = NAN
        if self._on[row, ON_LOSS]:
            sent = min(self._sequence[row], LOSS_WINDOW)
            if sent >= LOSS_MINIMUM:
                seen[LOSS] = <double> self._lost[row] / <double> sent
        seen[BANDWIDTH] = self._bandwidth[row] if self._on[row, ON_BANDWIDTH] else NAN

    def _price(self, Py_ssize_t count):
        """What the first rows with news cost by the profile of the settings."""
        cdef Py_ssize_t i
        if self._plain:
            for i in range(count):
                self._costs[i] = _cost(&self._own, &self._seen[i, 0])
            return
        seen = self._figures[:count]
        found = cost_of(self._settings.profile, *(seen[:, at] for at in (LATENCY_MS, JITTER, LOSS, BANDWIDTH)))
        for i in range(count):
            self._costs[i] = found[i]

    def _extremes(self, int64_t now_ns):
        """Latencies below and above which a link is extreme."""
        cdef Py_ssize_t row, known = 0
        pace = self._pace
        if not pace.given:
            for row in range(self.windows.mean.shape[0]):
                known += isfinite(self.windows.mean[row]) != 0
            if now_ns >= pace.look_ns or known >= 1.1 * pace.looked_at:
                pace.look(self._links.windows.latency_ms, now_ns)
        return pace.low_ms, pace.high_ms

    cdef bint _round(self, Py_ssize_t row, double cost, bint disturbed, double low_ms, double high_ms) noexcept:
        """One more round of a row; whether it is back at its base interval.

        A row whose cost stayed within the threshold for ten rounds goes one step slower, to the last step if it is
        extreme; one that was disturbed, by a deviation or a loss, or whose cost changed, goes back to the first.
        """
        cdef Py_ssize_t before = self._step[row], last = self._steps.shape[0] - 1
        cdef double then = self._reference[row], mean = self.windows.mean[row]
        if not self._adaptive:
            return before > 0
        if (disturbed or fabs(cost - then) > max(self._threshold * fabs(then), self._floor_ms)
                or (isnan(then) and not isnan(cost))):
            self._step[row] = self._steady[row] = 0
            self._reference[row] = cost
            return before > 0
        self._steady[row] += 1
        if self._steady[row] >= self._steady_rounds:
            self._steady[row] = 0
            self._step[row] = last if mean <= low_ms or mean >= high_ms else min(before + 1, last)
        return False

    cdef void _pace_of(self, Py_ssize_t row, double central_ns) noexcept:
        """As `Pace.refresh`."""
        cdef double least = self._exact_ns[row]
        if not least > 0:
            least = min(max(self._rtt_factor * self.rtt_ns[row], central_ns), self._longest_ns)
        least = max(least, max(self._asked_ns[row], self._probe_ns / self._capacity[row]))
        self.interval_ns[row] = max(
            least, min(least * min(self._steps[self._step[row]], self._slowest[row]), self._longest_ns))

    cdef bint _news(self, Py_ssize_t row, const double* seen) noexcept:
        """Whether a cost is further than it may be from the one that was advertised: as `OwnLink.moved`."""
        cdef Py_ssize_t at, samples = self.windows.count[row] - self.windows.outliers[row]
        cdef double now, then, allowed, others
        for at in range(self._profiles):
            now, then = _cost(&self._formulas[at], seen), self._band[row, BAND * at]
            allowed = self._band[row, BAND * at + 1]
            if isnan(then) and not isnan(now):
                return True
            if fabs(now - then) > allowed:
                if fabs(now - then) > self._certainty * _error(&self._formulas[at], seen, samples):
                    return True
                others = now - _sampled(&self._formulas[at], seen[LATENCY_MS], seen[JITTER])
                if fabs(others - self._band[row, BAND * at + 2]) > allowed:  # loss and bandwidth
                    return True
        return False

    cdef void _remember(self, Py_ssize_t row, const double* seen, double cost, int64_t now_ns) noexcept:
        cdef Entry* entry = <Entry*> &self._past[row, self._past_count[row] % self._history * sizeof(Entry)]
        entry.now_ns = now_ns
        entry.latency_ms = <float> seen[LATENCY_MS]
        entry.deviation_ms = <float> seen[DEVIATION_MS]
        entry.jitter_ms = <float> seen[JITTER_MS]
        entry.jitter = <float> seen[JITTER]
        entry.loss = <float> seen[LOSS]
        entry.cost = <float> cost
        self._past_count[row] += 1


cdef Coefficients _coefficients(profile):
    cdef Coefficients found
    found.overall, found.latency, found.loss = profile.overall, profile.latency, profile.loss
    found.jitter, found.bandwidth = profile.jitter, profile.bandwidth
    return found


cdef double _cost(const Coefficients* by, const double* seen) noexcept:
    """As `cost.cost`, of one link."""
    cdef double loss = 0.0 if isnan(seen[LOSS]) else seen[LOSS], total
    total = by.overall + by.latency * seen[LATENCY_MS] + by.loss * loss + by.jitter * seen[JITTER]
    if by.bandwidth:
        total += by.bandwidth * MEGABYTE_MS / (seen[BANDWIDTH] if seen[BANDWIDTH] > 0 else UNKNOWN_BANDWIDTH)
    if not isfinite(total) or not isfinite(seen[LATENCY_MS]):
        return NAN
    return max(total, 0.0)


cdef double _sampled(const Coefficients* by, double latency_ms, double jitter) noexcept:
    """What of a cost is made of samples."""
    return by.latency * latency_ms + by.jitter * jitter


cdef double _error(const Coefficients* by, const double* seen, Py_ssize_t samples) noexcept:
    """As `cost.error`, of one link."""
    cdef double mean = seen[LATENCY_MS], apart = seen[DEVIATION_MS], jitter = seen[JITTER], total
    if samples < 1 or isnan(apart) or isnan(mean):
        return 0.0
    total = by.latency * apart
    if mean > 0 and not isnan(seen[JITTER_MS]):
        total += by.jitter * (sqrt(max(apart * apart - jitter * mean * jitter * mean, 0.0)) + jitter * apart) / mean
    return total * (1 + 4.0 / samples) / sqrt(<double> samples)
