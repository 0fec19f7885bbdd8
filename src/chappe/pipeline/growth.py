"""Counters over time: what they grew between two instants, whatever happened to the process that counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def labels_of(text: str) -> dict[str, str]:
    """Labels as Prometheus writes them, by name."""
    return {
        name: re.sub(r'\\[\\"n]', lambda found: _ESCAPED[found.group()], value) for name, value in _LABEL.findall(text)
    }


class Series(NamedTuple):
    """A counter as it would stand had it never begun anew; times in ns, ascending and distinct."""

    times_ns: NDArray[np.int64]
    total: Numbers


def series(times_ns: ArrayLike, values: ArrayLike) -> Series:
    """Readings in any order, some perhaps twice or no numbers, as one growing line."""
    times, read = np.asarray(times_ns, dtype=np.int64), np.asarray(values, dtype=np.float64)
    sound = np.isfinite(read)
    times, places = np.unique(times[sound], return_index=True)
    read = read[sound][places]
    if not len(read):
        return Series(times, read)
    steps = np.diff(read)
    steps = np.where(steps < 0, read[1:], steps)  # it began anew: what it counts is new
    return Series(times, np.concatenate([[0.0], np.cumsum(steps)]))


class Grown(NamedTuple):
    """What a counter grew in a part of a window that readings cover."""

    window: int
    amount: float
    seconds: float
    step_s: float  # the longest time between two readings


def by_window(counted: Series, window_ns: int) -> Iterator[Grown]:
    """The growth in each window; between two readings a counter is taken to grow evenly."""
    times, total = counted
    if len(times) < 2:
        return
    for window in range(int(times[0]) // window_ns, (int(times[-1]) - 1) // window_ns + 1):
        low, high = max(window * window_ns, int(times[0])), min((window + 1) * window_ns, int(times[-1]))
        origin = int(times[0])  # differences are exact as floating-point numbers, stamps are not
        ends = np.interp([low - origin, high - origin], (times - origin).astype(np.float64), total)
        inside = times[(times > low) & (times < high)]
        steps = np.diff(np.concatenate([[low], inside, [high]]))
        yield Grown(window, float(ends[1] - ends[0]), (high - low) / 1e9, float(steps.max()) / 1e9)


class Burst(NamedTuple):
    """How uneven a load is, by the rates between readings."""

    mean: float  # a second
    peak: float
    peak_to_mean: float
    dispersion: float  # variance of the counts of equal intervals through their mean: 1 for Poisson, 0 for a clock
    samples: int
    step_s: float  # the interval whose counts are compared: the median between readings


def burst(counted: Series) -> Burst | None:
    """Burstiness over all readings; None for fewer than three."""
    times, total = counted
    if len(times) < 3:
        return None
    gaps = np.diff(times) / 1e9
    grown = np.diff(total)
    step = float(np.median(gaps))
    edges = np.arange(0.0, (times[-1] - times[0]) / 1e9 + step / 1000, step)
    counts = np.diff(np.interp(edges, (times - times[0]) / 1e9, total))
    mean = float(total[-1] / gaps.sum())
    peak = float((grown / gaps).max())
    average = float(counts.mean()) if len(counts) else 0.0
    dispersion = float(counts.var() / average) if average > 0 else 0.0
    return Burst(mean, peak, peak / mean if mean > 0 else 1.0, dispersion, len(times), step)


class Arrivals(NamedTuple):
    """How evenly values of a variable come, by their creation."""

    values: int
    mean_s: float  # between two
    cv: float  # deviation through mean: 0 for a clock, 1 for Poisson
    p99_s: float
    longest_s: float
    dispersion: float  # of the counts in windows of ten mean gaps


def arrivals(created_ns: ArrayLike) -> Arrivals | None:
    """Inter-arrival times; None for fewer than three values."""
    stamps = np.unique(np.asarray(created_ns, dtype=np.int64))
    if len(stamps) < 3:
        return None
    gaps = np.diff(stamps) / 1e9
    mean = float(gaps.mean())
    windows = ((stamps - stamps[0]) / (10e9 * mean)).astype(np.int64)
    counts = np.bincount(windows)[:-1] if windows[-1] else np.bincount(windows)
    dispersion = float(counts.var() / counts.mean()) if counts.mean() > 0 else 0.0
    return Arrivals(
        len(stamps), mean, float(gaps.std() / mean), float(np.percentile(gaps, 99)), float(gaps.max()), dispersion
    )
