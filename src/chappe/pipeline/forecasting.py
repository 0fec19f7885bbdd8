"""Forecasts of a regular series with gaps: many forecasters, and for each distance the one that did best so far.

NumPy only. A series has one value an interval, oldest first, NaN where nothing was measured. What a forecaster said
after value `t` depends on the values up to `t` alone, and so does the choice among them: judging what was said over a
history is judging it out of sample.

Three families are tried, as in the Network Weather Service:

- levels: the last value, the node's own mean that restarts when the level shifts, the mean since then, a smoothed one;
  of the series itself, and of what is left of it without the shape of its day or week, which is then added again;
- baselines: the mean of the last day, the same time of the last days, the same time of the last weeks; alone, and with
  the present distance from them, damped by the time ahead;
- the flat forecasters of `chappe.aggregation.forecast`, a drift, and the value of a day before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chappe.aggregation.forecast import LEAST, opinions
from chappe.errors import ConfigError
from chappe.measure.metrics import WINDOW
from chappe.measure.windows import Windows

DAYS, WEEKS = 14, 4  # how far baselines look back
DAMPING = (0.5, 0.8, 0.95)  # of the distance from a baseline, each interval
GAIN = 0.3  # of the smoothed distance
MARGIN = 0.97  # whoever is to speak instead of the last value must have been off by less than this share of it
BET = 0.95  # and who takes for granted that levels stay, by less than this share of the best that does not
PROOF = 0.5  # how much better one must be that was judged once only, over one interval
FAR = 4.0  # times its usual error
NOTHING_MS = 1e-9  # errors below are those of sums of floating-point numbers
JUDGED_DAYS = 7
BAND = (0.05, 0.95)  # quantiles of past errors
NAIVE, SEASONAL = "last", "day before*"

Series = NDArray[np.float64]
Table = NDArray[np.float64]  # a row a value of the series, a column an interval ahead


class Rhythm(NamedTuple):
    """How many intervals a day has, and how many ahead are wanted."""

    a_day: int
    horizon: int

    @property
    def around(self) -> int:
        """Intervals on each side of a time that count as the same time: half an hour."""
        return self.a_day // 48

    def checked(self) -> Rhythm:
        """Itself; ConfigError if it cannot be: what was measured in the half hour around the same time yesterday must
        be known."""
        most = self.a_day - self.around
        if self.a_day < 4:
            raise ConfigError(f"interval: a day has {self.a_day} of them; give one of at most six hours")
        if not 1 <= self.horizon <= most:
            raise ConfigError(f"horizon: {self.horizon} intervals ahead; give 1 to {most}, less than a day")
        return self


class Judged(NamedTuple):
    """All that was said over a history, and who would have been believed."""

    methods: tuple[str, ...]
    told: NDArray[np.float64]  # method, origin, interval ahead
    errors: NDArray[np.float64]  # the same, what was said less what came; NaN where nothing came
    chosen: NDArray[np.intp]  # origin, interval ahead: place of the method that speaks

    def spoken(self, of: NDArray[np.float64]) -> Table:
        """Of `told` or `errors` those of the method that spoke."""
        found: Table = np.take_along_axis(of, self.chosen[None], axis=0)[0]
        return found


class Ahead(NamedTuple):
    """The forecast of the interval so many ahead."""

    step: int
    value: float
    low: float
    high: float
    method: str


class Errors(NamedTuple):
    """Mean absolute errors so many intervals ahead, over the same intervals for all; NaN if nothing can be judged."""

    step: int
    judged: int
    mean: float
    naive: float
    seasonal: float  # over those with a value a day before


def judge(values: ArrayLike, rhythm: Rhythm) -> Judged:
    """Everybody's forecasts after each value, and the choice among them."""
    (judged,) = judge_all([np.asarray(values, dtype=np.float64)], rhythm)
    return judged


def judge_all(rows: Sequence[Series], rhythm: Rhythm) -> Iterator[Judged]:
    """The same of several series that end together: what takes longest is done once for all."""
    rhythm.checked()
    size = max((len(row) for row in rows), default=0)
    rows = [np.concatenate((np.full(size - len(row), np.nan), row)) for row in rows]
    shapes = [_shapes(row, rhythm) for row in rows]
    left = [row - shape[:size] for row, of in zip(rows, shapes, strict=True) for shape in of.values()]
    levels = iter(_levels(left))
    for row, of in zip(rows, shapes, strict=True):
        told: dict[str, Table] = {}
        for name, shape in of.items():
            for label, level in next(levels).items():
                told[f"{name} + {label}" if name else label] = _ahead(shape, rhythm.horizon)[:size] + level[:, None]
        told |= _betting(row, rhythm)
        methods = tuple(told)
        everything = np.stack(list(told.values()))
        errors = everything - _ahead(row, rhythm.horizon)
        yield Judged(methods, everything, errors, _chosen(errors, methods, rhythm))


def forecasts(judged: Judged, rhythm: Rhythm) -> list[Ahead]:
    """What is said after the last value, with a band from past errors; nothing without any value."""
    said = judged.spoken(judged.told)[-1] if judged.told.shape[1] else np.zeros(0)
    found = []
    for at, value in enumerate(said.tolist()):
        if np.isnan(value):
            continue
        who = int(judged.chosen[-1, at])
        past = judged.errors[who, -JUDGED_DAYS * rhythm.a_day :, at]
        past = past[np.isfinite(past)]
        low, high = np.quantile(past, BAND) if len(past) >= LEAST else (np.nan, np.nan)
        found.append(
            Ahead(at + 1, value, float(np.maximum(value - high, 0.0)), float(value - low), judged.methods[who])
        )
    return found


def errors(judged: Judged, last: int) -> list[Errors]:
    """How far off forecasts of the last so many values were, for each interval ahead."""
    size, horizon = judged.chosen.shape
    everybody = np.abs(judged.errors)
    spoken = judged.spoken(everybody)
    naive, seasonal = (everybody[judged.methods.index(name)] for name in (NAIVE, SEASONAL))
    found = []
    for at in range(horizon):
        about = slice(max(0, size - last - at - 1), max(0, size - at - 1))  # origins whose forecasts were about these
        both = np.isfinite(spoken[about, at]) & np.isfinite(naive[about, at])
        found.append(
            Errors(
                at + 1, int(both.sum()), _mean(spoken[about, at][both]), _mean(naive[about, at][both]),
                _mean(seasonal[about, at][both]),
            )
        )  # fmt: skip
    return found


def _shapes(series: Series, rhythm: Rhythm) -> dict[str, Series]:
    """How much higher or lower than the level each time of the day or week usually is, into the time ahead; and none,
    which goes without a name."""
    later = _later(series, rhythm)
    filled = np.concatenate((_filled(series), later[len(series) :]))
    found = {"": np.zeros(len(later))}
    for name, period, back in _periods(rhythm):
        shape = _usual(later - _level(filled, period), period, back, rhythm.around)
        if np.isfinite(shape[: len(series)]).any():
            found[f"{name} shape"] = shape
    return found


def _betting(series: Series, rhythm: Rhythm) -> dict[str, Table]:
    """Methods that take for granted that the level of the past is that of the future; a star marks them."""
    horizon, size = rhythm.horizon, len(series)
    later, filled = _later(series, rhythm), _filled(series)
    flat = {f"{name}*": np.tile(said[:, None], (1, horizon)) for name, said in _flat(filled).items() if name != NAIVE}
    told = flat | {SEASONAL: _ahead(_lagged(later, rhythm.a_day), horizon)[:size]}
    told["drift*"] = filled[:, None] + _slope(filled, rhythm.a_day)[:, None] * np.arange(1, horizon + 1)
    level = _level(filled, rhythm.a_day)
    told |= _near("level", filled - level, np.tile(level[:, None], (1, horizon)))
    for name, period, back in _periods(rhythm):
        usual = _usual(later, period, back, rhythm.around)
        if np.isfinite(usual[:size]).any():
            told |= _near(name, series - usual[:size], _ahead(usual, horizon)[:size])
    return told


def _periods(rhythm: Rhythm) -> tuple[tuple[str, int, int], ...]:
    return ("day", rhythm.a_day, DAYS), ("week", 7 * rhythm.a_day, WEEKS)


def _later(series: Series, rhythm: Rhythm) -> Series:
    return np.concatenate((series, np.full(rhythm.horizon, np.nan)))


def _near(name: str, apart: Series, usual: Table) -> dict[str, Table]:
    """A baseline alone, and with the distance from it, smoothed or not, that is left after some intervals."""
    told = {f"{name}*": usual}
    steps = np.arange(1, usual.shape[1] + 1)
    for label, distance in (("", _filled(apart)), (" smooth", _smoothed(apart))):
        for damping in DAMPING:
            told[f"{name} + {damping:g}{label}*"] = usual + distance[:, None] * damping**steps
    return told


def _levels(rows: list[Series]) -> list[dict[str, Series]]:
    """Of each series the last value, and levels that begin anew when it shifts.

    `careful` is as quick as the last value when that is an unusual one, and calm otherwise.
    """
    found = []
    for row, mean, count, unusual in zip(rows, *_windows(rows), strict=True):
        last, settled = _filled(row), _settled(row, count)
        careful = np.where(unusual, last, settled)
        found.append({NAIVE: last, "careful": careful, "node*": mean, "settled*": settled, "smooth*": _smoothed(row)})
    return found


def _windows(rows: list[Series]) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.bool_]]:
    """The mean that a node would have of each row after each value, the number of values in its window, and whether
    the last of them is outside of the usual range."""
    windows = Windows(rows=len(rows))
    table = np.stack(rows, axis=1)
    means = np.full(table.shape, np.nan)
    counts = np.zeros(table.shape, dtype=np.intp)
    unusual = np.zeros(table.shape, dtype=np.bool_)
    valid = np.isfinite(table)
    places = np.arange(len(rows))
    now = np.zeros(len(rows), dtype=np.bool_)
    for at in range(len(table)):
        if valid[at].any():
            now[valid[at]] = windows.absorb(places[valid[at]], table[at, valid[at]]).deviates
        means[at], counts[at], unusual[at] = windows.latency_ms, windows.count, now
    return means.T, counts.T, unusual.T


def _settled(rest: Series, count: NDArray[np.intp]) -> Series:
    """The mean since the level last shifted: a window that has fewer values than it would have began anew."""
    known = np.isfinite(rest)
    expected = np.minimum(np.concatenate(([0], count[:-1])) + known, WINDOW)
    shifted = np.flatnonzero(count < expected)
    seen = np.cumsum(known)
    total = np.cumsum(np.where(known, rest, 0.0))
    begin = np.zeros(len(rest), dtype=np.intp)  # number of values before the present level
    begin[shifted] = seen[shifted] - count[shifted]
    begin = np.maximum.accumulate(begin)
    before = np.concatenate(([0.0], total[known]))[begin]
    some = seen - begin
    return np.where(some > 0, (total - before) / np.maximum(some, 1), np.nan)


def _flat(filled: Series) -> dict[str, Series]:
    """Those that look at no time of day; they begin where the series does."""
    begin = int(np.isnan(filled).sum())  # only leading values are missing still
    nothing = np.full(begin, np.nan)
    return {name: np.concatenate((nothing, said)) for name, said in opinions(filled[begin:]).items()}


def _chosen(off: NDArray[np.float64], methods: Sequence[str], rhythm: Rhythm) -> NDArray[np.intp]:
    """For each origin and distance the method with the least error, as a share of the last value's over the same
    forecasts, of those whose outcome was known then.

    Of the last week and of the whole time the worse share counts: a week without a shift of the level says little about
    who would stand one. Forecasts that reach far overlap, so that few of them prove little: the more so, the better
    must be who is to speak instead of the last value. Nobody speaks who was judged for less than two days, or who knows
    the week and was not judged at all of its times: a shift of the level in the only weeks seen looks like a habit.
    """
    naive = methods.index(NAIVE)
    few = max(LEAST, 2 * rhythm.a_day)
    least = np.array([max(few, 7 * rhythm.a_day) if name.startswith("week") else few for name in methods])[:, None]
    bets = np.array([name.endswith("*") for name in methods])
    lost = _lost(off[:, :, 0])
    handicap = np.where(bets, 1 / BET, 1.0)[:, None]
    off = np.abs(off)
    chosen = np.empty(off.shape[1:], dtype=np.intp)
    for at in range(rhythm.horizon):
        here = off[:, :, at]
        valid = np.isfinite(here) & np.isfinite(here[naive])
        sums = [np.where(valid, here, 0.0), np.where(valid, here[naive], 0.0), valid.astype(np.float64)]
        share = np.zeros(here.shape)
        for last, needed in ((JUDGED_DAYS * rhythm.a_day, few), (here.shape[1], least)):
            own, others, count = (_sum_of_last(each, last, at + 1) for each in sums)
            known = (count >= needed) & (others > NOTHING_MS * count)
            share = np.maximum(share, np.divide(own, others, out=np.full(own.shape, np.inf), where=known))
        share = (share + PROOF * np.sqrt((at + 1) / np.maximum(count, 1.0))) * handicap
        share[lost] = np.inf
        share[naive] = MARGIN
        chosen[:, at] = np.argmin(share, axis=0)
    return chosen


def _lost(errors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """At each value whether a method's last two forecasts of the next one were far off, and to the same side: the level
    that it counts on is gone, whether or not a node would call it a shift. One alone is an outlier."""
    known = np.isfinite(errors)
    off = np.where(known, errors, 0.0)
    count = np.maximum(np.cumsum(known, axis=1), 1)
    usual = np.cumsum(np.abs(off), axis=1) / count
    # What was said after a value is known to be wrong with the next one.
    wrong = np.where(np.abs(off) > FAR * usual, np.sign(off), 0.0)
    found = np.zeros(errors.shape, dtype=np.bool_)
    found[:, 2:] = wrong[:, 1:-1] * wrong[:, :-2] > 0
    return found


def _sum_of_last(values: NDArray[np.float64], last: int, behind: int) -> NDArray[np.float64]:
    """At each origin the sum of the last so many values that end `behind` before it."""
    total = np.concatenate((np.zeros((len(values), 1)), np.cumsum(values, axis=1)), axis=1)
    end = np.clip(np.arange(values.shape[1]) - behind + 1, 0, None)
    found: NDArray[np.float64] = total[:, end] - total[:, np.clip(end - last, 0, None)]
    return np.maximum(found, 0.0)  # differences of sums may be a hair below


def _ahead(values: Series, horizon: int) -> Table:
    """Row t has the values after t."""
    later = np.concatenate((values[1:], np.full(horizon, np.nan)))
    return np.lib.stride_tricks.sliding_window_view(later, horizon)[: len(values)]


def _lagged(values: Series, by: int) -> Series:
    found = np.full(len(values), np.nan)
    if by < len(values):
        found[by:] = values[:-by]
    return found


def _usual(values: Series, period: int, back: int, around: int) -> Series:
    """Median of what was at the same time in the last periods; NaN with less than two of them."""
    rows = []
    for number in range(1, back + 1):
        if number * period - around >= len(values):
            break
        rows += [_lagged(values, number * period + offset) for offset in range(-around, around + 1)]
    if not rows:
        return np.full(len(values), np.nan)
    found = median(np.stack(rows))
    found[: 2 * period] = np.nan
    return found


def median(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median of each column without NaN; NaN where there is nothing else."""
    if not len(rows):
        return np.full(rows.shape[1:], np.nan)
    ordered = np.sort(rows, axis=0)  # NaN comes last
    count = np.isfinite(rows).sum(axis=0)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    pick = np.stack((low, np.minimum(high, len(rows) - 1)))
    found: NDArray[np.float64] = np.where(count > 0, np.take_along_axis(ordered, pick, axis=0).mean(axis=0), np.nan)
    return found


def _level(filled: Series, a_day: int) -> Series:
    """Mean of the last day at each value."""
    total = np.concatenate(([0.0], np.nancumsum(filled)))
    count = np.concatenate(([0], np.cumsum(np.isfinite(filled))))
    end = np.arange(1, len(filled) + 1)
    begin = np.maximum(end - a_day, 0)
    seen = count[end] - count[begin]
    return np.where(seen > 0, (total[end] - total[begin]) / np.maximum(seen, 1), np.nan)


def _slope(filled: Series, a_day: int) -> Series:
    """How much the mean of the last day differs from that of the day before, an interval."""
    level = _level(filled, a_day)
    return (level - _lagged(level, a_day)) / a_day


def _filled(series: Series) -> Series:
    """The last value known at each place."""
    known = np.isfinite(series)
    at = np.maximum.accumulate(np.where(known, np.arange(len(series)), -1)) if len(series) else np.zeros(0, np.intp)
    return np.where(at >= 0, series[np.maximum(at, 0)], np.nan)


def _smoothed(series: Series) -> Series:
    """Exponentially smoothed; what is missing changes nothing."""
    found = np.empty(len(series))
    now = np.nan
    for at, value in enumerate(series.tolist()):
        if value == value:
            now = value if now != now else now + GAIN * (value - now)
        found[at] = now
    return found


def _mean(values: Series) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")
