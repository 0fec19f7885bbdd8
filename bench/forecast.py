"""`chappe bench forecast`: forecasts of latencies beside the last value and that of a day before, out of sample."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import charts
from bench.forecast_traces import SAMPLE_S, Trace, traces
from bench.progress import followed
from bench.registry import ForecastOptions
from bench.report import Options, Report
from bench.rounds import median
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline import forecasting
from chappe.pipeline.forecasting import Rhythm
from chappe.pipeline.spark import missing
from chappe.sim.latencies import read

DAYS, QUICK_DAYS = 28, 21
SEEDS, QUICK_SEEDS = 5, 1
JUDGED_DAYS = 14
INTERVAL_S, HORIZON = 900, 24
BETTER, WORSE = 0.20, 0.05
SAME = 1e-9  # of what Spark and the function alone say
NOTHING_MS = 1e-6  # a trace that never changes is foretold by everybody


@dataclass(frozen=True)
class Found:
    """Mean absolute errors of one trace over all intervals ahead, in ms, by step."""

    trace: Trace
    ours: tuple[float, ...]
    naive: tuple[float, ...]
    seasonal: tuple[float, ...]

    @property
    def share(self) -> float:
        """Our error as a share of the last value's."""
        return _share(self.ours, self.naive)

    @property
    def next_share(self) -> float:
        """The same of the next interval alone."""
        return _share(self.ours[:1], self.naive[:1])

    @property
    def seasonal_share(self) -> float:
        return _share(self.seasonal, self.naive)


def run(options: Options, own: ForecastOptions) -> Report:
    """Every trace through the job on Spark and through the function alone."""
    if reason := missing():
        raise ChappeError(reason)
    chosen = secrets.randbelow(1 << 32) if own.seed is None else own.seed
    report = Report("forecast")
    report.note(f"seed {chosen}: --seed {chosen} replays this run")
    report.note(
        f"{HORIZON} intervals of {INTERVAL_S // 60} minutes ahead, from every interval of the last {JUDGED_DAYS} days; "
        "each forecast, and the choice of who makes it, from earlier values alone"
    )
    made = _traces(options, chosen, own.trace)
    began = time.perf_counter()
    found = [_alone(trace) for trace in followed(options.console, "forecast", made, lambda trace: trace.name)]
    report.show("one trace, function alone", (time.perf_counter() - began) / len(made), "s")
    apart, seconds = _by_spark(made, found)
    report.show(f"{len(made)} traces, Spark", seconds, "s")
    report.compare("largest difference between Spark and the function alone", apart, "of the error", "<=", SAME)
    _judge(report, found)
    report.charts.append(_chart(options.charts / "forecast.png", found))
    return report


def _traces(options: Options, seed: int, file: Path | None) -> list[Trace]:
    if file is None:
        return traces(QUICK_SEEDS if options.quick else SEEDS, QUICK_DAYS if options.quick else DAYS, seed)
    return _recorded(file)


def _recorded(file: Path) -> list[Trace]:
    """Links of a user's own network, one trace each; whether they have a daily pattern is for its owner to say."""
    latencies = read(file)
    step = np.arange(latencies.times_s[0], latencies.times_s[-1] + SAMPLE_S, SAMPLE_S)
    days = len(step) * SAMPLE_S / 86_400
    if days < JUDGED_DAYS + 2:
        raise ConfigError(f"{file}: covers {days:.1f} days, {JUDGED_DAYS + 2} are needed: {JUDGED_DAYS} are judged")
    bins = np.searchsorted(step, latencies.times_s, side="right") - 1
    found = []
    for (a, b), values in zip(latencies.links, latencies.ms.T, strict=True):
        known = np.isfinite(values)
        count = np.bincount(bins[known], minlength=len(step))
        total = np.bincount(bins[known], weights=values[known], minlength=len(step))
        samples = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        found.append(Trace(f"{a}-{b}", 0, False, samples))
    return found


def _series(trace: Trace) -> NDArray[np.float64]:
    """Means of intervals; NaN where nothing was measured."""
    size = INTERVAL_S // SAMPLE_S
    samples = trace.samples[len(trace.samples) % size :].reshape(-1, size)
    count = np.isfinite(samples).sum(axis=1)
    return np.where(count > 0, np.nansum(samples, axis=1) / np.maximum(count, 1), np.nan)


def _alone(trace: Trace) -> Found:
    rhythm = Rhythm(86_400 // INTERVAL_S, HORIZON)
    errors = forecasting.errors(forecasting.judge(_series(trace), rhythm), JUDGED_DAYS * rhythm.a_day)
    return Found(
        trace,
        tuple(each.mean for each in errors),
        tuple(each.naive for each in errors),
        tuple(each.seasonal for each in errors),
    )


def _by_spark(made: Sequence[Trace], alone: Sequence[Found]) -> tuple[float, float]:
    """How far the job's errors are from these at most, as a share, and the seconds it took."""
    from chappe.pipeline.trials import forecast_errors  # needs Spark

    samples = {each.name: each.samples[len(each.samples) % (INTERVAL_S // SAMPLE_S) :] for each in made}
    began = time.perf_counter()
    told = forecast_errors(samples, SAMPLE_S, interval_s=INTERVAL_S, horizon=HORIZON, judged_days=JUDGED_DAYS)
    seconds = time.perf_counter() - began
    apart = 0.0
    for each in alone:
        rows = told.get(each.trace.name, {})
        for step, (ours, naive) in enumerate(zip(each.ours, each.naive, strict=True), 1):
            error, last = rows.get(step, (math.nan, math.nan))
            for mine, theirs in ((ours, error), (naive, last)):
                off = abs(mine - theirs) / max(abs(mine), NOTHING_MS)
                apart = max(apart, off if off == off else math.inf)
    return apart, seconds


def _judge(report: Report, found: Sequence[Found]) -> None:
    kinds: dict[str, list[Found]] = {}
    for each in found:
        kinds.setdefault(each.trace.kind, []).append(each)
    for kind, traces_of in kinds.items():
        report.show(f"{kind}: error, of the last value's", median([each.share for each in traces_of]), "times")
        report.show(f"{kind}: the next interval alone", median([each.next_share for each in traces_of]), "times")
        seasonal = median([each.seasonal_share for each in traces_of])
        report.show(f"{kind}: the value of a day before, of the last value's", seasonal, "times")
    daily = [each.share for each in found if each.trace.daily]
    others = [each.share for each in found if not each.trace.daily]
    if daily:
        report.compare(
            f"worst of {len(daily)} traces with a daily pattern, of the last value's error",
            max(daily), "times", "<=", 1 - BETTER,
        )  # fmt: skip
    if others:
        report.compare(
            f"worst of {len(others)} other traces, of the last value's error", max(others), "times", "<=", 1 + WORSE
        )


def _share(ours: Sequence[float], others: Sequence[float]) -> float:
    mine, theirs = float(np.mean(ours)), float(np.mean(others))
    if theirs < NOTHING_MS:
        return 1.0 if mine < NOTHING_MS else math.inf
    return mine / theirs


def _chart(path: Path, found: Sequence[Found]) -> Path:
    """The error by the time ahead, of all traces with a daily pattern and of all others."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for title, daily in (("daily pattern", True), ("none", False)):
        chosen = [each for each in found if each.trace.daily is daily and np.mean(each.naive) >= NOTHING_MS]
        for label in ("ours", "naive", "seasonal") if chosen else ():
            of = [np.array(getattr(each, label)) / np.mean(each.naive) for each in chosen]
            name = {"ours": "forecast", "naive": "last value", "seasonal": "day before"}[label]
            steps = np.arange(1, len(of[0]) + 1) * INTERVAL_S / 3600
            lines[f"{title}: {name}"] = list(zip(steps.tolist(), np.mean(of, axis=0).tolist(), strict=True))
    return charts.curves(path, "Error of forecasts", "hours ahead", "of the last value's mean error", lines)
