"""Latencies of links over weeks, made from a seed: with a daily pattern, and of kinds that have none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chappe.sim.latencies import walk
from chappe.sim.plan import Plan

SAMPLE_S = 300
A_DAY = 86_400 // SAMPLE_S

Samples = NDArray[np.float64]


class Trace(NamedTuple):
    """One latency every five minutes, in ms; NaN where a round failed."""

    kind: str
    seed: int
    daily: bool
    samples: Samples

    @property
    def name(self) -> str:
        return f"{self.kind} {self.seed}"


def traces(seeds: int, days: int, seed: int) -> list[Trace]:
    """Each kind with so many seeds."""
    found = []
    for kind, (daily, make) in KINDS.items():
        for number in range(seeds):
            rng = np.random.default_rng((seed, number, *kind.encode()))
            samples = np.maximum(make(days * A_DAY, rng), 0.05)
            samples[rng.random(len(samples)) < 0.01] = np.nan
            found.append(Trace(kind, number, daily, samples))
    return found


def _correlated(size: int, rng: np.random.Generator, deviation: float, memory: float = 0.9) -> Samples:
    """Noise whose values remember those before (an autoregression)."""
    steps = rng.normal(0.0, deviation * np.sqrt(1 - memory**2), size)
    found = np.empty(size)
    now = 0.0
    for at, step in enumerate(steps.tolist()):
        now = memory * now + step
        found[at] = now
    return found


def _spikes(size: int, rng: np.random.Generator, base: float) -> Samples:
    """One sample in a hundred is far above, as when a queue fills."""
    return np.where(rng.random(size) < 0.01, base * rng.pareto(2.5, size), 0.0)


def _busy(size: int, rng: np.random.Generator, weekend: float = 1.0) -> Samples:
    """The load of a day: low at night, two humps, each day a little higher or lower; between 0 and about 1."""
    at = np.arange(size)
    hour = at % A_DAY / (A_DAY / 24)
    shift = rng.uniform(0, 24)
    shape = np.exp(-0.5 * (((hour - shift) % 24 - 10) / 2.5) ** 2)
    shape += 0.8 * np.exp(-0.5 * (((hour - shift) % 24 - 17) / 2.0) ** 2)
    day = at // A_DAY
    height = rng.normal(1.0, 0.15, day[-1] + 1)
    height[np.arange(len(height)) % 7 >= 5] *= weekend
    found: Samples = shape * np.maximum(height, 0.0)[day]
    return found


def _daily(size: int, rng: np.random.Generator) -> Samples:
    base = rng.uniform(5, 80)
    noise = _correlated(size, rng, 0.05 * base)
    return base * (1 + rng.uniform(0.3, 0.8) * _busy(size, rng)) + noise + _spikes(size, rng, base)


def _weekly(size: int, rng: np.random.Generator) -> Samples:
    base = rng.uniform(5, 80)
    noise = _correlated(size, rng, 0.05 * base)
    return base * (1 + rng.uniform(0.3, 0.8) * _busy(size, rng, weekend=0.2)) + noise + _spikes(size, rng, base)


def _daily_shifted(size: int, rng: np.random.Generator) -> Samples:
    """A daily pattern on a way that changes every few days."""
    return _daily(size, rng) + _shifts(size, rng) - 20


def _shifts(size: int, rng: np.random.Generator) -> Samples:
    """A level that stays for days and then is another one, and little noise."""
    found = np.empty(size)
    at = 0
    while at < size:
        stays = int(rng.exponential(4 * A_DAY)) + 12
        found[at : at + stays] = rng.uniform(20, 60)
        at += stays
    return found + rng.normal(0, 0.3, size)


def _random_walk(size: int, rng: np.random.Generator) -> Samples:
    return np.abs(rng.uniform(50, 150) + np.cumsum(rng.normal(0, 0.5, size)))


def _noise(size: int, rng: np.random.Generator) -> Samples:
    base = rng.uniform(5, 80)
    return base + rng.normal(0, 0.1 * base, size)


def _spiky(size: int, rng: np.random.Generator) -> Samples:
    base = rng.uniform(5, 80)
    return base + _correlated(size, rng, 0.02 * base, 0.5) + 5 * _spikes(size, rng, base)


def _constant(size: int, rng: np.random.Generator) -> Samples:
    return np.full(size, rng.uniform(5, 80))


def _trend(size: int, rng: np.random.Generator) -> Samples:
    base = rng.uniform(20, 80)
    return base * (1 + np.linspace(0, rng.uniform(-0.6, 1.5), size)) + rng.normal(0, 0.01 * base, size)


def _wandering(size: int, rng: np.random.Generator) -> Samples:
    """What `chappe bench routing` plays: wanders around its length, now and then congested or rerouted."""
    plan = Plan("two", ("a", "b"), (("a", "b", float(rng.uniform(5, 80))),))
    return walk(plan, size * 5.0, random.Random(int(rng.integers(1 << 31)))).ms[:, 0]


KINDS: dict[str, tuple[bool, Callable[[int, np.random.Generator], Samples]]] = {
    "daily": (True, _daily),
    "daily and weekly": (True, _weekly),
    "daily with shifts": (True, _daily_shifted),
    "random walk": (False, _random_walk),
    "white noise": (False, _noise),
    "spikes": (False, _spiky),
    "level shifts": (False, _shifts),
    "constant": (False, _constant),
    "trend": (False, _trend),
    "wandering": (False, _wandering),
}
