# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What the initiator does for each probe and each answer, compiled: see `initiator`, whose class this is a part of."""

from heapq import heappop, heappush, heapreplace

import numpy as np

from libc.stdint cimport int64_t

from chappe.measure._evaluation cimport Evaluation
from chappe.measure._probes cimport NEVER, Probes

cdef int64_t CLOCKS_NS = 1_000_000  # a round trip may seem so much longer than it can be: clocks are read one by one


cdef class Rounds:
    """When to probe which row, and when to look at what came back."""

    cdef readonly object settings
    cdef public bint awake
    cdef readonly Py_ssize_t refused     # echoes that no probe waited for
    cdef readonly object _rng
    cdef readonly object _links
    cdef readonly object _pace
    cdef readonly Probes _probes
    cdef Evaluation _evaluation
    cdef dict _rows                      # by link
    cdef list _link                      # by row
    cdef readonly list _heap             # (when, row); stale where `_due` says otherwise
    cdef readonly list _due              # when the next probe of a row is due, NEVER if none is
    cdef readonly list _sent             # when its last one was
    cdef readonly list _side             # on which side of the usual range its last sample was, 0 if within
    cdef public list _samples            # (row, round trip) of echoes that were not evaluated yet
    cdef public set _lost                # rows that lost a probe since
    cdef public set _told                # rows of which something else is new
    cdef public int64_t _evaluate_at
    cdef int64_t _evaluated_ns
    cdef public int64_t _batch_ns
    cdef public int64_t _now_ns
    cdef public int64_t _origin_ns       # of synchronous rounds
    cdef double _timeout_factor
    cdef int64_t _timeout_ns
    cdef int64_t _slot_ns
    cdef int64_t _hurry_ns
    cdef bint _synchronous

    def __init__(self, settings, rng, links):
        self.settings = settings
        self.awake = False
        self.refused = 0
        self._rng = rng
        self._links = links
        self._pace = links.pace
        self._probes = links.probes
        self._evaluation = links.evaluation
        self._rows, self._link = links.rows, links.link
        self._heap, self._due, self._sent, self._side, self._samples = [], [], [], [], []
        self._lost, self._told = set(), set()
        self._evaluate_at = NEVER
        self._evaluated_ns = -NEVER
        self._batch_ns = int(settings.batch * settings.base_ns)
        self._now_ns = 0
        self._origin_ns = 0
        self._timeout_factor, self._timeout_ns = settings.timeout_factor, settings.timeout_ns
        self._slot_ns, self._hurry_ns = settings.slot_ns, settings.hurry_ns
        self._synchronous = settings.synchronous

    def due(self, int64_t now_ns):
        """(link, token) of each probe to send now; a token is never 0."""
        cdef list heap = self._heap, wanted = []
        cdef tuple first
        cdef int64_t at, timeout_ns
        cdef Py_ssize_t row
        while heap:
            first = heap[0]
            at, row = first[0], first[1]
            if at > now_ns:
                break
            if <int64_t> self._due[row] != at:
                heappop(heap)
                continue
            self._now_ns = now_ns
            timeout_ns = <int64_t> (self._timeout_factor * self._evaluation.rtt_ns[row])
            wanted.append((self._link[row], self._probes.open(row, now_ns, max(timeout_ns, self._timeout_ns))))
            at = self._after(row, at, now_ns)
            self._due[row] = at
            heapreplace(heap, (at, row))
            self._sent[row] = now_ns
        return wanted

    def take(self, list echoes, int64_t now_ns):
        """Echoes as the engine has them: (link, token, when the probe left or 0, when its answer came)."""
        cdef int64_t sent_ns, arrived_ns
        for echo in echoes:
            link, token, sent_ns, arrived_ns = <tuple> echo
            if sent_ns:
                self.echoed(link, token, arrived_ns - sent_ns, now_ns)
            else:
                self.arrived(link, token, arrived_ns, now_ns)

    cpdef echoed(self, link, int64_t token, int64_t rtt_ns, int64_t now_ns):
        """A probe came back; unknown tokens and impossible times are counted (`refused`) and change nothing."""
        cdef Py_ssize_t row = self._rows.get(link, -1)
        cdef int64_t sent_ns = self._probes.sent(row, token)
        if sent_ns == NEVER or not 0 < rtt_ns <= now_ns - sent_ns + CLOCKS_NS:
            self.refused += 1
        else:
            self._take(row, token, rtt_ns, now_ns)

    cpdef arrived(self, link, int64_t token, int64_t arrived_ns, int64_t now_ns):
        """As `echoed`, of a probe that left when `due` was asked for it and came back at that time, on one clock."""
        cdef Py_ssize_t row = self._rows.get(link, -1)
        cdef int64_t sent_ns = self._probes.sent(row, token)
        if sent_ns == NEVER or not sent_ns < arrived_ns <= now_ns + CLOCKS_NS:
            self.refused += 1
        else:
            self._take(row, token, arrived_ns - sent_ns, now_ns)

    def unsent(self, link, int64_t token):
        """The probe could not be sent, or what it measured was a train of bytes: it counts neither as answered nor as
        lost."""
        if self._probes.sent(self._rows.get(link, -1), token) != NEVER:
            self._probes.close(token)

    def tick(self, int64_t now_ns):
        """Links whose metrics are new; finds probes that got no answer in time."""
        cdef Py_ssize_t row
        if not self.awake:
            return []
        if self._probes.next() <= now_ns:
            lost = self._probes.expire(now_ns)
            if lost:
                self._lost.update(lost)
                self._evaluate_by(now_ns)
        if now_ns < self._evaluate_at - (self._early() if self._probing(now_ns) else 0):
            return []
        self._now_ns = self._evaluated_ns = now_ns
        self._evaluate_at = NEVER
        readings, returned, shifted = self._evaluation.evaluate(self._samples, self._lost, self._told, now_ns)
        self._samples.clear()
        self._lost.clear()
        self._told.clear()
        for row in returned:
            self._hasten(row, <int64_t> self._evaluation.interval_ns[row])
        for row in shifted:
            self._side[row] = 0
        return readings

    cdef bint _probing(self, int64_t now_ns) except -1:
        """Whether this is a moment in which a probe is to be sent."""
        return bool(self._heap) and <int64_t> (<tuple> self._heap[0])[0] <= now_ns

    cdef int64_t _early(self) noexcept:
        """So much before its time an evaluation is made with the next probes, as all that it needs is at hand then."""
        return self._batch_ns // 5

    cpdef int64_t next_ns(self) except -1:
        """When `due` or `tick` has something to do at the latest; a time far off if nothing is awaited."""
        cdef int64_t at = self._evaluate_at
        if not self.awake:
            return NEVER
        if self._heap:
            at = min(at, <int64_t> (<tuple> self._heap[0])[0])
        return min(at, self._probes.next())

    cdef int _take(self, Py_ssize_t row, int64_t token, int64_t rtt_ns, int64_t now_ns) except -1:
        """A sample waits to be evaluated with others, unless it is the first of its row or the second that deviates to
        the same side. After a first that does, another probe soon says what it meant."""
        cdef int side, before
        if self._probes.close(token):
            self._told.add(row)
        self._samples.append((row, rtt_ns))
        side, before = self._evaluation.windows.side(row, rtt_ns / 2e6), self._side[row]
        self._side[row] = side
        if side and side != before:
            least_ns = float(self._pace.least_ns(np.array([row]))[0])
            self._hasten(row, int(least_ns * self.settings.confirm), from_ns=now_ns)
        elif side or self._evaluation.windows.count[row] == 0:
            self._evaluate_by(now_ns)
        if self._evaluate_at == NEVER:
            self._evaluate_at = now_ns + self._batch_ns
        return 0

    cdef int64_t _after(self, Py_ssize_t row, int64_t at_ns, int64_t now_ns) except -1:
        """When the next probe of a row is due, if one that was due then is sent now."""
        cdef int64_t interval_ns = <int64_t> self._evaluation.interval_ns[row]
        if self._synchronous:
            return self._origin_ns + ((now_ns - self._origin_ns) // interval_ns + 1) * interval_ns
        if <int64_t> self._sent[row] == NEVER:  # links that came together part here
            return self._together(now_ns + int((0.5 + self._rng.random()) * interval_ns), interval_ns)
        return self._together((now_ns if at_ns + interval_ns <= now_ns else at_ns) + interval_ns, interval_ns)

    cdef int64_t _together(self, int64_t at_ns, int64_t interval_ns) noexcept:
        """The multiple of a slot that is nearest to that time, so that probes of many links leave in one go: each time
        the node wakes up, and each time answers wake it, costs more than a probe."""
        if interval_ns < 10 * self._slot_ns:
            return at_ns
        return (at_ns + self._slot_ns // 2) // self._slot_ns * self._slot_ns

    cdef int _evaluate_by(self, int64_t at_ns) except -1:
        """Evaluations that cannot wait are still some time apart, so that many links cannot make many of them."""
        self._evaluate_at = min(self._evaluate_at, max(at_ns, self._evaluated_ns + self._hurry_ns))
        return 0

    def _plan(self, row, at_ns):
        self._due[row] = at_ns
        heappush(self._heap, (at_ns, row))

    cpdef _hasten(self, Py_ssize_t row, int64_t wait_ns, from_ns=None):
        """The next probe comes so long after the last, if that is earlier than planned."""
        cdef int64_t at_ns = max(<int64_t> (self._sent[row] if from_ns is None else from_ns) + wait_ns, self._now_ns)
        cdef int64_t due_ns = self._due[row]
        if due_ns != NEVER and at_ns < due_ns:
            self._plan(row, at_ns)
