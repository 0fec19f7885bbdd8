"""Statistics of many links over minutes, hours, days and weeks at once, and an audit of outliers; NumPy only.

The sums of each period are taken in one go over all samples that lie side by side (`reduceat`); the numbers are those
of `chappe.measure.metrics` for the same samples, which a property test shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from chappe.measure import metrics
from chappe.measure.metrics import Floats, Mask
from chappe.pipeline import periods

# The jitter forgets: what was so many samples ago counts less than 1e-19 of it.
REMEMBERED = 700
SIZES = (8, 16, 32, 64)  # of windows that are tried
TRIED = (16, 256)  # windows of each size, spread over the samples of a link: at least and at most
SPARSE = 128  # samples for each that is tried
CLOSE = 1.02  # a window is as good as the best if its error is at most so many times as large

Whole = NDArray[np.int64]
Places = NDArray[np.intp]
Number = TypeVar("Number", np.int64, np.float64)


class Samples(NamedTuple):
    """Rounds of some links: by link, then by time. What was not measured is NaN."""

    link: Places  # numbers from 0 on, rising
    created_ns: Whole
    latency_ms: Floats
    loss: Floats
    bandwidth: Floats


class Statistics(NamedTuple):
    """One entry a link and period."""

    link: Places
    start_ns: Whole
    rounds: Whole
    samples: Whole  # rounds with a latency
    latency_ms: Floats
    deviation_ms: Floats
    least_ms: Floats
    most_ms: Floats
    jitter_ms: Floats  # as in RTP
    jitter: Floats  # as a share of the mean
    loss: Floats
    bandwidth: Floats
    outliers: Whole


class Spikes(NamedTuple):
    """Samples that are outliers of their window and outside of the usual range of the others in it."""

    link: Places
    created_ns: Whole
    latency_ms: Floats
    usual_ms: Floats
    deviation_ms: Floats


class Advice(NamedTuple):
    """How well the mean of a window of each size foretells the next sample; one entry a link and size."""

    link: Places
    size: Whole
    tried: Whole
    error_ms: Floats
    outliers: Floats  # share of samples
    advised: Mask


def ordered(samples: Samples) -> Samples:
    """By link and time, whatever order they came in."""
    link, at = samples.link, samples.created_ns
    if len(link) < 2 or bool(np.all((link[1:] > link[:-1]) | ((link[1:] == link[:-1]) & (at[1:] >= at[:-1])))):
        return samples
    # Short numbers are sorted by counting; pieces that are in order of time stay so.
    small = link.astype(np.uint16) if link.max() < 1 << 16 else link
    order = np.argsort(small, kind="stable")
    at = at[order]
    if np.any((np.diff(link[order]) == 0) & (np.diff(at) < 0)):
        order = np.lexsort((samples.created_ns, link))
    return Samples(
        link[order], samples.created_ns[order], samples.latency_ms[order], samples.loss[order], samples.bandwidth[order]
    )


def statistics(samples: Samples, length_ns: int, flags: Mask) -> Statistics:
    """Of samples in order, over periods of that length; flags: which of them are outliers."""
    number = periods.number(samples.created_ns, length_ns)
    begin = _begins((samples.link, number))
    rounds = np.diff(np.append(begin, len(number)))
    known = np.isfinite(samples.latency_ms)
    count = _sums(known.astype(np.int64), begin)
    latency, deviation, least, most, jitter, relative = _latencies(samples.latency_ms, known, begin, rounds, count)
    return Statistics(
        samples.link[begin], periods.start_ns(number[begin], length_ns), rounds, count, latency, deviation, least, most,
        jitter, relative, _mean(samples.loss, begin), _mean(samples.bandwidth, begin),
        _sums(flags.astype(np.int64), begin),
    )  # fmt: skip


def outliers(samples: Samples, size: int = metrics.WINDOW, z: float = metrics.Z) -> tuple[Mask, Spikes]:
    """Which samples are outliers of the `size` successive ones that they are among, as a node tests, and the spikes."""
    flags = np.zeros(len(samples.link), dtype=np.bool_)
    parts = []
    for places, valid in _windows(samples, size):
        values = samples.latency_ms[places]
        found = metrics.outliers(values, valid, z)
        _, middle, spread, _ = metrics.summary(values, valid, z)
        left = valid.sum(axis=-1) - found.sum(axis=-1)
        within = metrics.usual_range_ms(middle, spread, left)
        out = found & (metrics.deviates(values, middle[:, None], within[:, None], left[:, None]) != 0)
        flags[places[found]] = True
        row, column = np.nonzero(out)
        at = places[row, column]
        parts.append((samples.link[at], samples.created_ns[at], values[row, column], middle[row], spread[row]))
    none = Spikes(np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))
    return flags, Spikes(*map(np.concatenate, zip(*parts, strict=True))) if parts else none


def advice(samples: Samples, sizes: tuple[int, ...] = SIZES, z: float = metrics.Z) -> Advice:
    """For each link with enough samples: what windows of some sizes are worth. The smallest that is close to the best
    is advised: it follows a change soonest."""
    known = np.flatnonzero(np.isfinite(samples.latency_ms))
    link, values = samples.link[known], samples.latency_ms[known]
    begin = _begins((link,))
    count = np.diff(np.append(begin, len(link)))
    longest = max(sizes)
    begin, count = begin[count > longest], count[count > longest]
    tries = np.minimum(np.clip(count // SPARSE, *TRIED), count - longest)
    share = _within(tries) / np.repeat(np.maximum(tries - 1, 1), tries)
    ends = np.repeat(begin + longest, tries) + (share * np.repeat(count - 1 - longest, tries)).astype(np.intp)
    first = np.cumsum(tries) - tries
    errors, shares = np.empty((len(begin), len(sizes))), np.empty((len(begin), len(sizes)))
    for at, size in enumerate(sizes):
        out, middle, _, _ = metrics.summary(values[ends[:, None] - np.arange(size, 0, -1)], None, z)
        errors[:, at] = _sums(np.abs(middle - values[ends]), first) / tries
        shares[:, at] = _sums(out.astype(np.float64), first) / tries / size
    close = errors <= errors.min(axis=1, keepdims=True) * CLOSE
    advised = np.cumsum(close, axis=1) == 1
    many = len(sizes)
    return Advice(
        np.repeat(link[begin], many), np.tile(np.array(sizes, dtype=np.int64), len(begin)), np.repeat(tries, many),
        errors.ravel(), shares.ravel(), (advised & close).ravel(),
    )  # fmt: skip


def _latencies(values: Floats, known: Mask, begin: Places, rounds: Whole, count: Whole) -> tuple[Floats, ...]:
    """Mean, deviation, least, most and jitter in both forms; of periods that may have none."""
    some = np.where(count > 0, count, np.nan)
    filled = values if known.all() else np.where(known, values, 0.0)
    middle = _sums(filled, begin) / some
    apart = np.where(known, values - np.repeat(middle, rounds), 0.0)
    deviation = np.sqrt(_sums(apart * apart, begin) / some)
    relative = _sums(np.abs(apart), begin) / some / np.where(middle == 0, 1.0, middle)
    least, most = np.full(len(begin), np.nan), np.full(len(begin), np.nan)
    inside = np.flatnonzero(count)
    first = (np.cumsum(count) - count)[inside]  # of the values that are known
    if len(first):
        least[inside], most[inside] = (of.reduceat(values[known], first) for of in (np.minimum, np.maximum))
    return middle, deviation, least, most, _jitter(values[known], count), relative


def _sums(values: NDArray[Number], begin: Places) -> NDArray[Number]:
    """Of what begins there and ends where the next begins."""
    if not len(begin):
        return np.zeros(0, dtype=values.dtype)
    found: NDArray[Number] = np.add.reduceat(values, begin)
    return found


def _jitter(values: Floats, count: Whole) -> Floats:
    """RTP jitter at the end of each of these series that lie one after the other; NaN for an empty one."""
    found = np.full(len(count), np.nan)
    end = np.cumsum(count)
    length = np.minimum(count, REMEMBERED)
    for size, rows in _classes(length):
        # Each is filled up in front with its first value, which changes nothing: the jitter of what stays is 0.
        back = np.minimum(np.arange(size, 0, -1), length[rows, None])
        found[rows] = metrics.rtp_jitter(values[end[rows, None] - back])
    return found


def _classes(length: Whole) -> Iterator[tuple[int, Places]]:
    """Series by their length, those of about the same together."""
    magnitude = np.frexp(length.astype(np.float64))[1]
    for each in np.unique(magnitude[length > 0]).tolist():
        rows = np.flatnonzero((magnitude == each) & (length > 0))
        yield int(length[rows].max()), rows


def _windows(samples: Samples, size: int) -> Iterator[tuple[Places, Mask]]:
    """Places of successive samples, `size` of one link a row; the last row of a link may have fewer."""
    known = np.flatnonzero(np.isfinite(samples.latency_ms))
    if not len(known):
        return
    link = samples.link[known]
    begin = _begins((link,))
    count = np.diff(np.append(begin, len(link)))
    rows = -(-count // size)
    first = np.repeat(begin, rows) + _within(rows) * size
    left = np.minimum(np.repeat(begin + count, rows) - first, size)
    for part in range(0, len(first), 1 << 14):
        here = slice(part, part + (1 << 14))
        valid = np.arange(size) < left[here, None]
        yield known[np.where(valid, first[here, None] + np.arange(size), 0)], valid


def _within(rows: Whole) -> Whole:
    """0, 1, … for each of so many rows."""
    end = np.cumsum(rows)
    return np.arange(end[-1] if len(end) else 0) - np.repeat(end - rows, rows)


def _begins(keys: tuple[NDArray[np.signedinteger], ...]) -> Places:
    """Where one of the keys is another than before."""
    if not len(keys[0]):
        return np.zeros(0, dtype=np.intp)
    differs = np.zeros(len(keys[0]), dtype=np.bool_)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(differs)


def _mean(values: Floats, begin: Places) -> Floats:
    known = np.isfinite(values)
    if not known.any():
        return np.full(len(begin), np.nan)
    count = _sums(known.astype(np.int64), begin)
    found: Floats = _sums(np.where(known, values, 0.0), begin) / np.where(count > 0, count, np.nan)
    return found
