"""The links of a node as rows of arrays: what is switched on, what is known, and one evaluation for all that is new."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chappe.measure import metrics
from chappe.measure._windows import absorb
from chappe.measure.cost import Metrics, cost
from chappe.measure.metrics import Floats, Mask
from chappe.measure.pace import Pace
from chappe.measure.probes import Probes
from chappe.measure.readings import FACTORS, HISTORY, Reading, Settings
from chappe.measure.windows import Absorbed, Rows, Windows

_LATENCY, _DEVIATION, _JITTER, _LOSS, _BANDWIDTH = range(len(FACTORS))
_PROBED = (_LATENCY, _DEVIATION, _JITTER, _LOSS)


@dataclass(frozen=True, slots=True)
class Changes:
    """What an evaluation found."""

    readings: list[Reading]
    returned: list[int]  # rows that went back to their base interval
    shifted: list[int]  # rows whose level changed


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
        self._refused: list[bool] = []  # the other end does not want to be probed
        self._counted: list[bool] = []  # among the links that are probed
        self._free: list[int] = []
        self._past: NDArray[np.void] = np.zeros((0, 0), dtype=HISTORY)  # a ring a row, all as long as the longest
        self._past_count: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # entries ever written to each

    # --- rows

    def add(self, link: int, kind: str, lossy: bool) -> int:
        """The row of a new link."""
        if link in self.rows:
            raise ValueError(f"link {link} is measured already; remove it first")
        if not self._free:
            self._grow(max(8, 2 * len(self.link)))
        self.rows[link] = row = self._free.pop()
        self.link[row] = link
        wanted = self._settings.factors.get(kind)
        for at, name in enumerate(FACTORS):
            self._on[row, at] = (name != "loss" or lossy) if wanted is None else name in wanted
        self._switched[row], self._refused[row] = True, False
        self.bandwidth[row] = np.nan
        self._past_count[row] = 0
        for part in (self.windows, self.pace, self.probes):
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
        self._free = list(range(rows - 1, old - 1, -1))

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
        """The other end does not want to be probed, or does again."""
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

    # --- evaluation

    def evaluate(self, samples: list[tuple[int, int]], lost: set[int], told: set[int], now_ns: int) -> Changes:
        """Take new samples (row, round trip) into their windows and say what is new of these rows, and of those that
        lost probes or have other news."""
        disturbed, shifted = set(lost), set[int]()
        layers = list(_layers(samples))
        for rows, rtt_ns in layers:
            self.pace.travelled(rows, rtt_ns)
            absorbed = Absorbed(*absorb(self.windows, rows, metrics.latency_ms(rtt_ns)))
            if absorbed.deviates.any():
                disturbed.update(rows[absorbed.deviates].tolist())
                shifted.update(rows[absorbed.shifted].tolist())
        round_of = _joined(layers[0][0] if layers else _NONE, lost)  # the first layer has all rows with a sample
        fresh = _joined(round_of, told)
        if not len(fresh):
            return Changes([], [], [])
        seen = self._seen(fresh)
        costs = np.atleast_1d(
            cost(self._settings.profile, seen["latency_ms"], seen["jitter"], seen["loss"], seen["bandwidth"])
        )
        self.pace.look(self.windows.latency_ms, now_ns)
        moved = np.fromiter((row in disturbed for row in round_of.tolist()), dtype=np.bool_, count=len(round_of))
        returned = self.pace.rounds(round_of, costs[: len(round_of)], self.windows.latency_ms[round_of], moved)
        self.pace.refresh(fresh)
        known = self._known(fresh, seen)
        if not known.all():  # nothing came back of these yet
            fresh, costs, seen = fresh[known], costs[known], {name: values[known] for name, values in seen.items()}
        self._remember(fresh, seen, costs, now_ns)
        return Changes(self._readings(fresh, seen, shifted), round_of[returned].tolist(), list(shifted))

    def reading(self, row: int) -> Reading | None:
        """What is known of a row, None if nothing is."""
        rows = np.array([row], dtype=np.intp)
        seen = self._seen(rows)
        return self._readings(rows, seen, set())[0] if self._known(rows, seen)[0] else None

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
        sequence = self.probes.sequence
        sent = [min(sequence[row], metrics.LOSS_WINDOW) for row in rows.tolist()]
        return np.where(on, metrics.loss(sent, self.probes.lost[rows]), np.nan)

    def _readings(self, rows: Rows, seen: dict[str, Floats], shifted: set[int]) -> list[Reading]:
        numbers = rows.tolist()
        link = self.link
        columns = (
            [link[row] for row in numbers],
            self.windows.count[rows].tolist(),
            self.windows.outliers[rows].tolist(),
            map(Metrics._make, zip(*(values.tolist() for values in seen.values()), strict=True)),
            self.pace.interval_ns[rows].astype(np.int64).tolist(),
            [row in shifted for row in numbers],
        )
        return list(map(Reading._make, zip(*columns, strict=True)))

    def _remember(self, rows: Rows, seen: dict[str, Floats], costs: Floats, now_ns: int) -> None:
        if not len(rows):
            return
        counts, size, width = self._past_count[rows], self._settings.history, self._past.shape[1]
        if width < size and int(counts.max()) >= width:
            more = min(max(8, 2 * width), size) - width
            self._past = np.concatenate((self._past, np.zeros((len(self._past), more), dtype=HISTORY)), axis=1)
        entries = np.empty(len(rows), dtype=HISTORY)
        entries["now_ns"], entries["cost"] = now_ns, costs
        for name in ("latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss"):
            entries[name] = seen[name]
        self._past[rows, counts % size] = entries
        self._past_count[rows] = counts + 1


_NONE: Rows = np.zeros(0, dtype=np.intp)


def _joined(rows: Rows, others: set[int]) -> Rows:
    """These rows, and those of the others that are not among them."""
    more = others.difference(rows.tolist()) if others else others
    return np.concatenate((rows, np.array(sorted(more), dtype=np.intp))) if more else rows


def _layers(samples: list[tuple[int, int]]) -> Iterable[tuple[Rows, Floats]]:
    """Samples in their order, cut into layers in which no row is twice."""
    while samples:
        layer: dict[int, int] = {}
        later: list[tuple[int, int]] = []
        for row, rtt_ns in samples:
            if row in layer:
                later.append((row, rtt_ns))
            else:
                layer[row] = rtt_ns
        yield np.fromiter(layer, np.intp, len(layer)), np.fromiter(layer.values(), np.float64, len(layer))
        samples = later
