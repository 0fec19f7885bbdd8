"""Every formula of measurement, once: NumPy only, over one series or over all links due in a tick.

A window is an array whose last axis runs over the samples of one link; `valid` has its shape and says which of them
count (all, if it is left out). Results lose the last axis: an array with one value a link, a scalar for one series.
Where nothing counts the result is NaN. Importing this module loads nothing compiled of this package, so that it can be
sent to executors of a pipeline as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

WINDOW = 16  # samples a link (D2)
SMOOTHING = 16  # of the RTP jitter
Z = 2.0  # an outlier is more standard deviations than this from the mean
OUTLIER_MINIMUM = 6  # of n samples none can be more than sqrt(n - 1) deviations away: below 6 there are no outliers
LOSS_WINDOW = 100  # probes that the loss rate looks back at
LOSS_MINIMUM = 10  # probes sent before there is a loss rate
SHIFT_Z = 3.0  # a sample deviates if it is more standard deviations than this from the mean: queues have long tails
SHIFT_MINIMUM = 2  # samples before one can deviate from them
SHARE = 0.10  # what is less than this share away is no change
FLOOR_MS = 0.5  # and neither is what is less than this away
CERTAINTY = 3.0  # nor what is fewer standard errors than this away


def latency_ms(rtt_ns: Any) -> Any:
    """Half of the round trip, in milliseconds (MR-063): the way there and back is taken as equal."""
    return rtt_ns / 2e6


def filled(counts: ArrayLike, size: int) -> Mask:
    """Which places of windows of that size are filled, if the first `counts` of each are."""
    return np.arange(size) < np.asarray(counts)[..., None]


def mean(window: ArrayLike, valid: ArrayLike | None = None) -> Any:
    """The mean of each window."""
    return _centred(*_masked(window, valid))[1]


def deviation(window: ArrayLike, valid: ArrayLike | None = None) -> Any:
    """The population standard deviation of each window (MR-064)."""
    count, _, apart = _centred(*_masked(window, valid))
    return _deviation(apart, count)


def relative_jitter(window: ArrayLike, valid: ArrayLike | None = None) -> Any:
    """Mean absolute deviation from the mean, as a share of the mean: no unit, what the cost of a link takes.

    0 where the mean is 0, since then all samples are.
    """
    return _relative_jitter(*_centred(*_masked(window, valid)))


def rtp_jitter_step(jitter: ArrayLike, previous: ArrayLike, latest: ArrayLike) -> Any:
    """RTP jitter after one more latency: `J + (|latest - previous| - J) / 16` (MR-065)."""
    before = np.asarray(jitter, dtype=np.float64)[()]
    apart = np.abs(np.asarray(latest, dtype=np.float64) - np.asarray(previous, dtype=np.float64))[()]
    return before + (apart - before) / SMOOTHING


def rtp_jitter(series: ArrayLike, jitter: ArrayLike = 0.0) -> Any:
    """RTP jitter at the end of each series of successive latencies, if it was `jitter` at its first."""
    latencies = np.asarray(series, dtype=np.float64)
    value: Any = np.broadcast_to(np.asarray(jitter, dtype=np.float64), latencies.shape[:-1])[()]
    for at in range(1, latencies.shape[-1]):
        value = rtp_jitter_step(value, latencies[..., at - 1], latencies[..., at])
    return value


def loss(sent: ArrayLike, timed_out: ArrayLike) -> Any:
    """Share of probes that got no answer in time, of those last sent (at most 100); NaN until 10 were sent (MR-066)."""
    count = np.asarray(sent, dtype=np.float64)
    known = count >= LOSS_MINIMUM
    return np.divide(timed_out, count, out=np.full(np.broadcast(count, timed_out).shape, np.nan), where=known)[()]


def outliers(window: ArrayLike, valid: ArrayLike | None = None, z: float = Z) -> Mask:
    """Which samples are outliers of their window by the Z-test, in a single pass (MR-067).

    None is in a window of fewer than 6 samples, where the test cannot succeed, or whose deviation is 0.
    """
    samples, weight = _masked(window, valid)
    return _outliers(samples, weight, z)


def summary(window: ArrayLike, valid: ArrayLike | None = None, z: float = Z) -> tuple[Any, Any, Any, Any]:
    """Number of outliers, and mean, deviation and relative jitter without them, of each window."""
    samples, weight = _masked(window, valid)
    out = _outliers(samples, weight, z)
    count, middle, apart = _centred(samples, weight & ~out)
    return np.add.reduce(out, axis=-1), middle, _deviation(apart, count), _relative_jitter(count, middle, apart)


def usual_range_ms(mean: ArrayLike, deviation: ArrayLike, count: ArrayLike, z: float = SHIFT_Z, share: float = SHARE,
                   floor_ms: float = FLOOR_MS) -> Any:  # fmt: skip
    """How far from the mean of `count` samples another may be before it deviates: three standard deviations, a tenth of
    the mean, half a millisecond, whichever is most.
    """
    return np.maximum(np.maximum(z * wider(count) * np.asarray(deviation), np.multiply(share, mean)), floor_ms)


def wider(count: ArrayLike) -> Any:
    """Few samples say little about their deviation: it counts three times as much for 2 and a quarter more for 16."""
    return 1 + 4 / np.maximum(count, 1)


def standard_errors(mean: ArrayLike, deviation: ArrayLike, jitter: ArrayLike, count: ArrayLike) -> tuple[Any, Any]:
    """How far the mean and the relative jitter of `count` samples are likely to be from those of the link itself.

    The jitter is a mean, too, of what samples are away from their mean, whose squares are the variance: that gives its
    own variance. What the mean is wrong by, the jitter is wrong by as well, as a share of it.
    """
    middle, apart = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    each = wider(count) / np.sqrt(np.maximum(count, 1))
    around = np.sqrt(np.maximum(apart * apart - np.square(np.multiply(jitter, middle)), 0.0))
    share = np.where(middle > 0, middle, np.inf)
    return (each * apart)[()], (each * (around + np.multiply(jitter, apart)) / share)[()]


def deviates(latest: ArrayLike, mean: ArrayLike, range_ms: ArrayLike, count: ArrayLike) -> Any:
    """1 if the latest sample is above the usual range around the mean of `count` earlier ones, -1 if below, else 0."""
    apart = np.subtract(latest, mean)
    outside = (np.abs(apart) > range_ms) & (np.asarray(count) >= SHIFT_MINIMUM)
    return np.where(outside, np.sign(apart), 0.0).astype(np.int8)[()]


def level_shift(previous: ArrayLike, latest: ArrayLike) -> Any:
    """Whether two consecutive deviations (as by `deviates`) have one sign: the level of the link changed, and the
    window restarts with these two samples. One alone is an outlier."""
    return np.multiply(previous, latest) > 0


def _masked(window: ArrayLike, valid: ArrayLike | None) -> tuple[Floats, Mask]:
    samples = np.asarray(window, dtype=np.float64)
    if valid is None:
        return samples, np.ones(samples.shape, dtype=np.bool_)
    return samples, np.asarray(valid, dtype=np.bool_)


def _centred(samples: Floats, weight: Mask) -> tuple[Any, Any, Floats]:
    """How many of each window count (NaN if none does), their mean, and how far each is from it (0 if it does not)."""
    count: Any = np.add.reduce(weight, axis=-1, dtype=np.float64)
    count = np.where(count, count, np.nan)[()]
    middle = np.add.reduce(np.where(weight, samples, 0.0), axis=-1) / count
    return count, middle, np.where(weight, samples - middle[..., None], 0.0)


def _deviation(apart: Floats, count: Any) -> Any:
    return np.sqrt(np.add.reduce(apart * apart, axis=-1) / count)


def _relative_jitter(count: Any, middle: Any, apart: Floats) -> Any:
    return np.add.reduce(np.abs(apart), axis=-1) / count / np.where(np.equal(middle, 0), 1.0, middle)


def _outliers(samples: Floats, weight: Mask, z: float) -> Mask:
    count, _, apart = _centred(samples, weight)
    spread = _deviation(apart, count)
    limit = np.where((count >= OUTLIER_MINIMUM) & (spread > 0), z * spread, np.inf)
    found: Mask = np.abs(apart) > limit[..., None]
    return found
