"""The links of a node as rows of arrays: what is switched on, and what is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chappe.measure import metrics
from chappe.measure._evaluation import Evaluation
from chappe.measure.cost import Metrics
from chappe.measure.metrics import Floats, Mask
from chappe.measure.pace import Pace
from chappe.measure.probes import Probes
from chappe.measure.readings import FACTORS, HISTORY, Reading, Settings
from chappe.measure.windows import Rows, Windows

_LATENCY, _DEVIATION, _JITTER, _LOSS, _BANDWIDTH = range(len(FACTORS))
_PROBED = (_LATENCY, _DEVIATION, _JITTER, _LOSS)
FIRST_PAST = 8  # entries of history that there is room for at first


class Links:
    """Rows by link, reused when a link is gone; arrays grow by doubling."""

    def __init__(self, settings: Settings, first_token: int) -> None:
        self._settings = settings
        self.rows: dict[int, int] = {}
        self.link: list[int] = []
        self.pace = Pace(settings)
        self.probes = Probes(first_token, settings.late_ns)
        self.windows = Windows(settings.window, settings.z, settings.threshold, settings.floor_ms, rows=0)
        self.bandwidth: Floats = np.zeros(0)
        self._on: Mask = np.zeros((0, len(FACTORS)), dtype=np.bool_)
        self._switched: list[bool] = []
        self._refused: list[bool] = []  # the other end asked not to be probed
        self._counted: list[bool] = []  # among the links that are probed
        self._free: list[int] = []
        width = min(FIRST_PAST, settings.history)
        self._past: NDArray[np.void] = np.zeros((0, width), dtype=HISTORY)  # a ring a row, all as long as the longest
        self._past_count: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # entries ever written to each
        self.evaluation = Evaluation(self, settings)

    # --- rows

    def add(self, link: int, lossy: bool) -> int:
        """The row of a new link."""
        if link in self.rows:
            raise ValueError(f"link {link} is measured already; remove it first")
        if not self._free:
            self._grow(max(8, 2 * len(self.link)))
        self.rows[link] = row = self._free.pop()
        self.link[row] = link
        for at, name in enumerate(FACTORS):
            self._on[row, at] = name != "loss" or lossy
        self._switched[row], self._refused[row] = True, False
        self.bandwidth[row] = np.nan
        self._past_count[row] = 0
        for part in (self.windows, self.pace, self.probes, self.evaluation):
            part.clear(row)
        self._count(row, self.probed(row))
        return row

    def remove(self, link: int) -> int:
        """The row that the link had."""
        row = self.row(link)
        del self.rows[link]
        self._free.append(row)
        self.windows.clear(row)
        self.probes.clear(row)
        self._count(row, False)
        return row

    def row(self, link: int) -> int:
        """The row of a link; ValueError if it was never added."""
        row = self.rows.get(link)
        if row is None:
            raise ValueError(f"no link {link} is measured here; add it first")
        return row

    def _grow(self, rows: int) -> None:
        old, more = len(self.link), rows - len(self.link)
        self.link += [0] * more
        self._switched += [False] * more
        self._refused += [False] * more
        self._counted += [False] * more
        self._past = np.concatenate((self._past, np.zeros((more, self._past.shape[1]), dtype=HISTORY)))
        self._past_count = np.concatenate((self._past_count, np.zeros(more, dtype=np.intp)))
        self._on = np.concatenate((self._on, np.zeros((more, len(FACTORS)), dtype=np.bool_)))
        self.bandwidth = np.concatenate((self.bandwidth, np.full(more, np.nan)))
        for part in (self.windows, self.pace, self.probes):
            part.grow(rows)
        self.evaluation.bind()
        self._free = list(range(rows - 1, old - 1, -1))

    def widen(self) -> None:
        """Room for more of the past of each row."""
        width = self._past.shape[1]
        more = min(2 * width, self._settings.history) - width
        self._past = np.concatenate((self._past, np.zeros((len(self._past), more), dtype=HISTORY)), axis=1)
        self.evaluation.bind()

    def _count(self, row: int, probed: bool) -> None:
        """Keep the number of links that are probed."""
        self.pace.links += probed - self._counted[row]
        self._counted[row] = probed

    # --- switches

    def switch(self, row: int, on: bool) -> None:
        """Measure the row, or not."""
        self._switched[row] = on
        self._count(row, self.probed(row))

    def refuse(self, row: int, refused: bool) -> None:
        """The other end asks not to be probed, or to be probed again."""
        self._refused[row] = refused
        self._count(row, self.probed(row))

    def switch_factor(self, row: int, factor: str, on: bool) -> None:
        """Measure one factor of the row, or not."""
        if factor not in FACTORS:
            raise ValueError(f"no factor {factor!r}; there are {', '.join(FACTORS)}")
        self._on[row, FACTORS.index(factor)] = on
        self._count(row, self.probed(row))

    def enabled(self, row: int) -> list[str]:
        """Names of the factors that are measured."""
        if not self._switched[row] or self._refused[row]:
            return []
        return [name for name, on in zip(FACTORS, self._on[row].tolist(), strict=True) if on]

    def probed(self, row: int) -> bool:
        """Whether probes are sent: for bandwidth alone none is."""
        return self._switched[row] and not self._refused[row] and bool(self._on[row, _PROBED].any())

    # --- what is known

    def reading(self, row: int) -> Reading | None:
        """What is known of a row, None if nothing is."""
        rows = np.array([row], dtype=np.intp)
        seen = self._seen(rows)
        return self._reading(row, seen) if self._known(rows, seen)[0] else None

    def history(self, row: int) -> NDArray[np.void]:
        """Entries of the row's ring, oldest first."""
        count, past = int(self._past_count[row]), self._past[row]
        return past[:count].copy() if count <= len(past) else np.roll(past, -(count % len(past)))

    def _known(self, rows: Rows, seen: dict[str, Floats]) -> Mask:
        """Of which rows anything is known."""
        known: Mask = (self.windows.count[rows] > 0) | ~(np.isnan(seen["loss"]) & np.isnan(seen["bandwidth"]))
        return known

    def _seen(self, rows: Rows) -> dict[str, Floats]:
        """Metrics by the factors that are on."""
        on, windows = self._on[rows], self.windows
        jitter = np.where(on[:, _JITTER], windows.jitter[rows], 0.0)
        return {
            "latency_ms": np.where(on[:, _LATENCY], windows.latency_ms[rows], np.nan),
            "deviation_ms": np.where(on[:, _DEVIATION], windows.deviation_ms[rows], np.nan),
            "jitter_ms": np.where(on[:, _JITTER], windows.jitter_ms[rows], np.nan),
            "jitter": np.where(np.isnan(jitter), 0.0, jitter),
            "loss": self._loss(rows, on[:, _LOSS]),
            "bandwidth": np.where(on[:, _BANDWIDTH], self.bandwidth[rows], np.nan),
        }

    def _loss(self, rows: Rows, on: Mask) -> Floats:
        if not on.any():
            return np.full(len(rows), np.nan)
        sent = np.minimum(self.probes.sequence[rows], metrics.LOSS_WINDOW)
        return np.where(on, metrics.loss(sent, self.probes.lost[rows]), np.nan)

    def _reading(self, row: int, seen: dict[str, Floats]) -> Reading:
        return Reading(
            self.link[row],
            self.windows.count.item(row),
            self.windows.outliers.item(row),
            Metrics(*(values.item(0) for values in seen.values())),
            int(self.pace.interval_ns.item(row)),
        )
