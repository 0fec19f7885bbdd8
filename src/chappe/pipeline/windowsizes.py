"""How many samples a link's window should have: windows of some sizes tried on its series; NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chappe.measure import metrics
from chappe.measure.metrics import Floats, Mask

SIZES = (8, 16, 32, 64)
TRIED = (16, 256)  # windows of each size, spread over the samples of a link: at least and at most
SPARSE = 128  # samples for each that is tried
CLOSE = 1.02  # a window is as good as the best if its error is at most so many times as large

Whole = NDArray[np.int64]
Places = NDArray[np.intp]


class Samples(NamedTuple):
    """Latencies of some links: by link, then by time."""

    link: Places  # numbers from 0 on, rising
    created_ns: Whole
    latency_ms: Floats


class Advice(NamedTuple):
    """How well the mean of a window of each size foretells the next sample; one entry a link and size."""

    link: Places
    size: Whole
    tried: Whole
    error_ms: Floats
    outliers: Floats  # share of samples that the Z-test leaves out
    advised: Mask


def ordered(link: Places, created_ns: Whole, latency_ms: Floats) -> Samples:
    """By link and time, whatever order they came in; without those that are no number."""
    known = np.isfinite(latency_ms)
    link, created_ns, latency_ms = link[known], created_ns[known], latency_ms[known]
    order = np.lexsort((created_ns, link))
    return Samples(link[order], created_ns[order], latency_ms[order])


def advice(samples: Samples, sizes: tuple[int, ...] = SIZES, z: float = metrics.Z) -> Advice:
    """For each link with enough samples: what windows of some sizes are worth. The smallest that is close to the best
    is advised: it follows a change soonest."""
    values, longest, many = samples.latency_ms, max(sizes), len(sizes)
    begin = np.flatnonzero(np.diff(samples.link, prepend=-1))
    count = np.diff(np.append(begin, len(values)))
    begin, count = begin[count > longest], count[count > longest]
    tries = np.minimum(np.clip(count // SPARSE, *TRIED), count - longest)
    first = np.cumsum(tries) - tries
    share = (np.arange(tries.sum()) - np.repeat(first, tries)) / np.repeat(np.maximum(tries - 1, 1), tries)
    ends = np.repeat(begin + longest, tries) + (share * np.repeat(count - 1 - longest, tries)).astype(np.intp)
    errors, shares = np.empty((len(begin), many)), np.empty((len(begin), many))
    for at, size in enumerate(sizes if len(begin) else ()):
        out, middle, _, _ = metrics.summary(values[ends[:, None] - np.arange(size, 0, -1)], None, z)
        errors[:, at] = np.add.reduceat(np.abs(middle - values[ends]), first) / tries
        shares[:, at] = np.add.reduceat(out, first) / tries / size
    close = errors <= errors.min(axis=1, keepdims=True) * CLOSE
    return Advice(
        np.repeat(samples.link[begin], many), np.tile(np.array(sizes, dtype=np.int64), len(begin)),
        np.repeat(tries, many), errors.ravel(), shares.ravel(), (close & (np.cumsum(close, axis=1) == 1)).ravel(),
    )  # fmt: skip
