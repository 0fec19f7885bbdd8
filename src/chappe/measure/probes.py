"""Probes under way, and which of the last ones of each link got no answer (MR-066)."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from chappe.measure.metrics import LOSS_WINDOW

NEVER = 1 << 62
_ANSWERED, _LOST = 0, 1


class Probes:
    """Tokens of probes that wait for an answer, and an outcome for each of the last 100 a row.

    A probe without an answer in time counts as lost; if the answer comes after all, it counts as answered.
    """

    def __init__(self, first_token: int, late_ns: int) -> None:
        self._token = first_token
        self._late_ns = late_ns
        self._open: dict[int, tuple[int, int, int, int, bool]] = {}  # token: row, life of it, sequence, sent_ns, lost
        self._times: list[tuple[int, int]] = []  # heap of (when to look at it, token)
        self._life: list[int] = []
        self._outcomes: list[bytearray] = []
        self.sequence: list[int] = []  # of the last probe of each row
        self.lost: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # among the last 100

    def grow(self, rows: int) -> None:
        """Room for more rows."""
        more = rows - len(self._life)
        self._life += [0] * more
        self.sequence += [0] * more
        self._outcomes += [bytearray(LOSS_WINDOW) for _ in range(more)]
        self.lost = np.concatenate((self.lost, np.zeros(more, dtype=np.int64)))

    def clear(self, row: int) -> None:
        """The row belongs to another link from now on."""
        self.abandon(row)
        self.sequence[row] = 0
        self.lost[row] = 0
        self._outcomes[row] = bytearray(LOSS_WINDOW)

    def abandon(self, row: int) -> None:
        """Answers to probes that are under way do not count any more, nor does it count if there are none."""
        self._life[row] += 1

    def send(self, row: int, now_ns: int, timeout_ns: int) -> int:
        """The token of a new probe."""
        token = self._token
        self._token = token + 1 if token < (1 << 63) - 1 else 1
        self.sequence[row] = sequence = self.sequence[row] + 1
        outcomes = self._outcomes[row]
        place = sequence % LOSS_WINDOW
        if outcomes[place] == _LOST:
            self.lost[row] -= 1
            outcomes[place] = _ANSWERED
        self._open[token] = (row, self._life[row], sequence, now_ns, False)
        heappush(self._times, (now_ns + timeout_ns, token))
        return token

    def sent_ns(self, row: int, token: int) -> int | None:
        """When a probe of this row that waits for its answer was sent; None if there is no such probe."""
        probe = self._open.get(token)
        return probe[3] if probe is not None and probe[0] == row and probe[1] == self._life[row] else None

    def answered(self, token: int) -> bool:
        """The probe got its answer; True if it had been taken for lost."""
        row, _, sequence, _, lost = self._open.pop(token)
        if lost and self.sequence[row] - sequence < LOSS_WINDOW:
            self._outcomes[row][sequence % LOSS_WINDOW] = _ANSWERED
            self.lost[row] -= 1
        return lost

    def expire(self, now_ns: int) -> list[int]:
        """Rows with a probe whose time is up, once for each such probe."""
        rows: list[int] = []
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
            if self.sequence[row] - sequence < LOSS_WINDOW:
                self._outcomes[row][sequence % LOSS_WINDOW] = _LOST
                self.lost[row] += 1
            self._open[token] = (row, life, sequence, sent_ns, True)
            heappush(times, (at + self._late_ns, token))
            rows.append(row)
        return rows

    def next_ns(self) -> int:
        """When `expire` may find something."""
        return self._times[0][0] if self._times else NEVER
