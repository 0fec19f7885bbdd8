# cython: language_level=3
"""Probes under way, and which of the last ones of each link got no answer (MR-066)."""

from heapq import heappop, heappush

import numpy as np

from chappe.measure.metrics import LOSS_WINDOW as _LOSS_WINDOW

cdef int64_t NEVER = <int64_t> 1 << 62
cdef int64_t LAST_TOKEN = ~(<int64_t> 1 << 63)
cdef int64_t LOSS_WINDOW = _LOSS_WINDOW
cdef enum:
    ANSWERED = 0
    LOST = 1


cdef class Probes:
    """Tokens of probes that wait for an answer, and an outcome for each of the last 100 a row.

    A probe without an answer in time counts as lost; if the answer comes after all, it counts as answered.
    """

    def __init__(self, first_token, late_ns):
        self._token = first_token
        self._late_ns = late_ns
        self._open = {}
        self._times = []
        self._life = []
        self._outcomes = []
        self.sequence = self.sequences = np.zeros(0, dtype=np.int64)
        self.lost = self.losses = np.zeros(0, dtype=np.int64)

    def grow(self, rows):
        """Room for more rows."""
        more = rows - len(self._life)
        self._life += [0] * more
        self._outcomes += [bytearray(_LOSS_WINDOW) for _ in range(more)]
        self.sequence = self.sequences = np.concatenate((self.sequence, np.zeros(more, dtype=np.int64)))
        self.lost = self.losses = np.concatenate((self.lost, np.zeros(more, dtype=np.int64)))

    def clear(self, Py_ssize_t row):
        """The row belongs to another link from now on."""
        self.abandon(row)
        self.sequences[row] = self.losses[row] = 0
        self._outcomes[row] = bytearray(_LOSS_WINDOW)

    def abandon(self, Py_ssize_t row):
        """Answers to probes that are under way do not count any more, nor does it count if there are none."""
        self._life[row] += 1

    def send(self, row, now_ns, timeout_ns):
        """The token of a new probe."""
        return self.open(row, now_ns, timeout_ns)

    cdef int64_t open(self, Py_ssize_t row, int64_t now_ns, int64_t timeout_ns) except -1:
        cdef int64_t token = self._token, sequence
        cdef bytearray outcomes = self._outcomes[row]
        self._token = token + 1 if token < LAST_TOKEN else 1
        self.sequences[row] += 1
        sequence = self.sequences[row]
        if outcomes[sequence % LOSS_WINDOW] == LOST:
            self.losses[row] -= 1
            outcomes[sequence % LOSS_WINDOW] = ANSWERED
        self._open[token] = (row, self._life[row], sequence, now_ns, False)
        heappush(self._times, (now_ns + timeout_ns, token))
        return token

    def sent_ns(self, row, token):
        """When a probe of this row that waits for its answer was sent; None if there is no such probe."""
        sent_ns = self.sent(row, token)
        return None if sent_ns == NEVER else sent_ns

    cdef int64_t sent(self, Py_ssize_t row, int64_t token) except -1:
        """The same, NEVER if there is none."""
        probe = self._open.get(token)
        if probe is None or <Py_ssize_t> (<tuple> probe)[0] != row or (<tuple> probe)[1] != self._life[row]:
            return NEVER
        return (<tuple> probe)[3]

    def answered(self, token):
        """The probe got its answer; True if it had been taken for lost."""
        return self.close(token)

    cdef bint close(self, int64_t token) except -1:
        cdef tuple probe = self._open.pop(token)
        cdef Py_ssize_t row
        cdef int64_t sequence
        if not <bint> probe[4]:
            return False
        row, sequence = probe[0], probe[2]
        if self.sequences[row] - sequence < LOSS_WINDOW:
            (<bytearray> self._outcomes[row])[sequence % LOSS_WINDOW] = ANSWERED
            self.losses[row] -= 1
        return True

    def expire(self, int64_t now_ns):
        """Rows with a probe whose time is up, once for each such probe."""
        cdef Py_ssize_t row
        cdef int64_t sequence
        rows = []
        times = self._times
        while times and times[0][0] <= now_ns:
            at, token = heappop(times)
            probe = self._open.get(token)
            if probe is None:
                continue
            row, life, sequence, sent_ns, lost = probe
            if lost or life != self._life[row]:
                del self._open[token]
                continue
            if self.sequences[row] - sequence < LOSS_WINDOW:
                (<bytearray> self._outcomes[row])[sequence % LOSS_WINDOW] = LOST
                self.losses[row] += 1
            self._open[token] = (row, life, sequence, sent_ns, True)
            heappush(times, (at + self._late_ns, token))
            rows.append(row)
        return rows

    def next_ns(self):
        """When `expire` may find something."""
        return self.next()

    cdef int64_t next(self) except -1:
        """The same; times of probes that were answered are forgotten here, so that nobody wakes up for them."""
        cdef list times = self._times
        while times:
            if (<tuple> times[0])[1] in self._open:
                return (<tuple> times[0])[0]
            heappop(times)
        return NEVER
