"""What the next measurement will probably be: simple forecasters, and the one that was right most often (MR-128).

As in the Network Weather Service: all run over the history, each is judged by how far off it was, and the best speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WINDOW = 16
GAIN = 0.25
LEAST = 8  # values below which nothing is said
JUDGED = 512  # the newest so many forecasts are judged

Series = NDArray[np.float64]


class Forecast(NamedTuple):
    """The next value, who says so, and how far off it was on average."""

    value: float
    method: str
    error: float
    judged: int


def forecast(values: ArrayLike) -> Forecast | None:
    """The next value of a series, oldest first; None if it is too short to judge anybody."""
    series = np.asarray(values, dtype=np.float64)
    series = series[np.isfinite(series)][-(JUDGED + WINDOW) :]
    if len(series) < LEAST:
        return None
    predictions = opinions(series)
    errors = {name: float(np.mean(np.abs(said[:-1] - series[1:]))) for name, said in predictions.items()}
    best = min(errors, key=lambda name: errors[name])
    return Forecast(float(predictions[best][-1]), best, errors[best], len(series) - 1)


def opinions(series: Series) -> dict[str, Series]:
    """What each forecaster said after each value of a series about the next; `last` is the naive one."""
    return {
        "last": series,
        "mean": np.cumsum(series) / np.arange(1, len(series) + 1),
        "window": _rolling(series, np.mean),
        "median": _rolling(series, np.median),
        "smooth": _smooth(series),
    }


def _rolling(series: Series, of: Callable[..., Series]) -> Series:
    """Of the last values at each place; fewer at the beginning."""
    size = min(WINDOW, len(series))
    first = [of(series[:end]) for end in range(1, size)]
    rest = of(np.lib.stride_tricks.sliding_window_view(series, size), axis=1) if size else series
    return np.concatenate((np.array(first, dtype=np.float64), rest))


def _smooth(series: Series) -> Series:
    smoothed = series.copy()
    for place in range(1, len(series)):
        smoothed[place] = smoothed[place - 1] + GAIN * (series[place] - smoothed[place - 1])
    return smoothed
