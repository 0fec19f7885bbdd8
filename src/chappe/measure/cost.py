"""What a link costs: four coefficients, named profiles, a user's own formulas, and when a change is worth advertising.

NumPy only. A cost reads as milliseconds: by default it is the latency plus what loss and jitter are worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chappe.measure import metrics as formulas
from chappe.measure.formula import NAMES, parse

SHARE = 0.10  # a cost that differs by less than this from the one last advertised is not advertised (MR-112)
FLOOR = 0.5  # nor one that differs by less than this many milliseconds
UNKNOWN_BANDWIDTH = 12.5e6  # bytes/s: a link whose bandwidth was not measured counts like one of 100 Mbit/s
MEGABYTE_MS = 1e9  # milliseconds for a megabyte at one byte a second

Formula = Callable[[Any, Any, Any, Any], Any]
"""latency_ms, jitter, loss, bandwidth -> cost; over arrays as well as over numbers."""


class Metrics(NamedTuple):
    """What is known of a link; NaN means not measured. A tuple, since one is made for every round of every link."""

    latency_ms: float = nan
    deviation_ms: float = nan
    jitter_ms: float = nan  # RTP form
    jitter: float = 0.0  # relative form, for the cost
    loss: float = nan  # 0 … 1
    bandwidth: float = nan  # bytes/s


@dataclass(frozen=True, slots=True)
class Profile:
    """Coefficients of a cost (MR-107): what each of the five is multiplied with, bandwidth as ms to send a megabyte."""

    name: str
    overall: float = 0.0
    latency: float = 1.0
    loss: float = 100.0
    jitter: float = 10.0
    bandwidth: float = 0.0

    def __post_init__(self) -> None:
        for field in ("overall", "latency", "loss", "jitter", "bandwidth"):
            value = getattr(self, field)
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"profile {self.name!r}: {field} is {value}; coefficients are numbers from 0 up")

    def __call__(self, latency_ms: Any, jitter: Any, loss: Any, bandwidth: Any) -> Any:
        total = self.overall + self.latency * latency_ms + self.loss * loss + self.jitter * jitter
        return total + self.bandwidth * MEGABYTE_MS / bandwidth if self.bandwidth else total


PROFILES: dict[str, Formula] = {
    profile.name: profile
    for profile in (
        Profile("default"),
        Profile("interactive", loss=50.0, jitter=5.0),
        Profile("media", jitter=50.0),
        Profile("bulk", loss=500.0, jitter=0.0, bandwidth=1.0),
    )
}
"""Formulas by name; `register` adds to them."""

_TRIALS = np.array([(0.05, 0.0, 0.0, 1e9), (1.0, 0.1, 0.0, 1e8), (40.0, 0.5, 0.01, 1e6), (900.0, 3.0, 1.0, 1e4)]).T


def register(name: str, formula: Formula | str) -> None:
    """Make a formula selectable by name (MR-109): a callable, or text like `latency_ms + 20 * jitter`.

    ValueError if the name is taken or the formula gives a cost that is negative or no number, which no route can be
    computed with.
    """
    if name in PROFILES:
        raise ValueError(f"a cost profile {name!r} exists already; choose another name")
    wanted = parse(formula) if isinstance(formula, str) else formula
    try:
        with np.errstate(all="ignore"):
            tried = np.asarray(wanted(*_TRIALS), dtype=np.float64)
    except Exception as error:
        raise ValueError(f"cost formula {name!r} does not work on arrays: {error}") from error
    if tried.shape not in ((), _TRIALS[0].shape):
        raise ValueError(f"cost formula {name!r} gives {tried.shape} costs for {_TRIALS[0].shape} links")
    for result, link in zip(np.broadcast_to(tried, _TRIALS[0].shape).tolist(), _TRIALS.T.tolist(), strict=True):
        if not (np.isfinite(result) and result >= 0):
            example = ", ".join(f"{given}={value:g}" for given, value in zip(NAMES, link, strict=True))
            raise ValueError(f"cost formula {name!r} gives {result:g} for {example}; costs are numbers from 0 up")
    PROFILES[name] = wanted


def cost(
    profile: str, latency_ms: ArrayLike, jitter: ArrayLike = 0.0, loss: ArrayLike = nan, bandwidth: ArrayLike = nan
) -> Any:
    """The cost of a link, or of many; NaN while its latency is not known, and where a user's formula has no result.

    Loss and jitter that are not measured count nothing, bandwidth like 100 Mbit/s.
    """
    formula = PROFILES.get(profile)
    if formula is None:
        raise ValueError(f"no cost profile {profile!r}; there are {', '.join(sorted(PROFILES))}")
    return priced(formula, latency_ms, jitter, loss, bandwidth)


def priced(
    formula: Formula, latency_ms: ArrayLike, jitter: ArrayLike = 0.0, loss: ArrayLike = nan, bandwidth: ArrayLike = nan
) -> Any:
    """The same by a formula, for processes in which nobody has registered it."""
    latency = np.asarray(latency_ms, dtype=np.float64)
    speed = np.asarray(bandwidth, dtype=np.float64)
    with np.errstate(all="ignore"):  # whatever a user's formula does
        total = formula(
            latency,
            np.where(np.isnan(jitter), 0.0, jitter),
            np.where(np.isnan(loss), 0.0, loss),
            np.where(speed > 0, speed, UNKNOWN_BANDWIDTH),
        )
        return np.where(np.isfinite(total) & np.isfinite(latency), np.maximum(total, 0.0), nan)[()]


def of(metrics: Metrics, profile: str = "default") -> float:
    """The cost of a link with these metrics."""
    return float(cost(profile, metrics.latency_ms, metrics.jitter, metrics.loss, metrics.bandwidth))


def error(metrics: Metrics, samples: int, profile: str = "default") -> float:
    """How far a cost may be from what the link costs, since that many samples say no more than that about it: what it
    costs more if latency and jitter are one standard error higher. 0 if it is not known what samples vary by."""
    if samples < 1 or isnan(metrics.deviation_ms) or isnan(metrics.latency_ms):
        return 0.0
    latency, jitter = formulas.standard_errors(metrics.latency_ms, metrics.deviation_ms, metrics.jitter, samples)
    higher = [metrics._replace(latency_ms=metrics.latency_ms + latency)]
    if not isnan(metrics.jitter_ms):  # else the 0 that stands for the relative one is no measurement
        higher.append(metrics._replace(jitter=metrics.jitter + jitter))
    now = of(metrics, profile)
    return sum(abs(of(one, profile) - now) for one in higher)


def changed(new: ArrayLike, advertised: ArrayLike, share: float = SHARE, floor: float = FLOOR) -> Any:
    """Whether to advertise a cost: it differs from the last one by more than the share and the floor (MR-112).

    The first cost is advertised (NaN before); a cost that is not known any more (new NaN) is not: the last one stays.
    """
    now, then = np.asarray(new, dtype=np.float64), np.asarray(advertised, dtype=np.float64)
    moved = np.abs(now - then) > np.maximum(share * np.abs(then), floor)
    return (moved | (np.isnan(then) & ~np.isnan(now)))[()]
