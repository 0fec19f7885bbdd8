"""Latencies of links over time: from a file of anybody's network, or a walk that looks like a real one.

Files, by the end of their name:

- `.csv` with a line `time,a,b,ms` on top: from that second on, the link between `a` and `b` takes so many ms one way.
- `.json`: a list of objects with the same four fields, or `{"times": [...], "links": [["a", "b"], ...], "ms":
  [[...], ...]}` with one row of `ms` a time.
- `.npz` (NumPy): arrays `times`, `a`, `b` and `ms` (one row a time); a missing value is NaN.
"""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chappe.errors import ConfigError
from chappe.sim.network import Network
from chappe.sim.plan import Plan

LARGEST = 50_000_000  # values of one file
Row = tuple[float, str, str, float]


@dataclass(frozen=True)
class Latencies:
    """A matrix of latencies in ms: one row a time, one column a link; NaN where nothing changes."""

    times_s: NDArray[np.float64]
    links: tuple[tuple[str, str], ...]
    ms: NDArray[np.float64]

    def plan(self, name: str) -> Plan:
        """The network that the links make, with their first latencies."""
        nodes = tuple(sorted({end for link in self.links for end in link}))
        first = [float(column[~np.isnan(column)][0]) for column in self.ms.T]
        return Plan(name, nodes, tuple((a, b, ms) for (a, b), ms in zip(self.links, first, strict=True)))

    def over(self, plan: Plan) -> NDArray[np.float64]:
        """Latency of each link of a plan at each time, as it is in force then."""
        place = {frozenset(link): at for at, link in enumerate(self.links)}
        table = np.tile(np.array([ms for _, _, ms in plan.links]), (len(self.times_s), 1))
        for column, (a, b, _) in enumerate(plan.links):
            at = place.get(frozenset((a, b)))
            if at is not None:
                current = table[0, column]
                for row in range(len(self.times_s)):
                    value = self.ms[row, at]
                    current = current if math.isnan(value) else value
                    table[row, column] = current
        return table

    def play(self, network: Network) -> None:
        """Change the links of a network at the times of the matrix, from now on."""
        start_ns = network.clock.now_ns
        for at, (a, b) in enumerate(self.links):
            network.link(a, b)  # an unknown link is said before anything changes
            last = math.nan
            for row, time_s in enumerate(self.times_s):
                ms = float(self.ms[row, at])
                if not math.isnan(ms) and ms != last:
                    network.clock.at(start_ns + round(float(time_s) * 1e9), _change, network, a, b, ms)
                    last = ms

    def write(self, path: Path) -> None:
        """Keep them in a file of one of the three forms."""
        if path.suffix == ".npz":
            a, b = np.array(self.links).T if self.links else (np.array([]), np.array([]))
            np.savez_compressed(path, times=self.times_s, a=a, b=b, ms=self.ms)
        elif path.suffix == ".json":
            rows = [[None if math.isnan(value) else value for value in row] for row in self.ms.tolist()]
            path.write_text(json.dumps({"times": self.times_s.tolist(), "links": self.links, "ms": rows}))
        elif path.suffix == ".csv":
            with path.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(("time", "a", "b", "ms"))
                for time_s, values in zip(self.times_s.tolist(), self.ms.tolist(), strict=True):
                    for (a, b), ms in zip(self.links, values, strict=True):
                        if not math.isnan(ms):
                            writer.writerow((time_s, a, b, ms))
        else:
            raise ConfigError(f"{path}: the name must end in .csv, .json or .npz")


def _change(network: Network, a: str, b: str, ms: float) -> None:
    link = network.link(a, b)
    link.change(replace(link.pipes[0].quality, delay_ms=ms), replace(link.pipes[1].quality, delay_ms=ms))


def read(path: Path) -> Latencies:
    """The latencies in a file; ConfigError says where it is wrong."""
    try:
        if path.suffix == ".csv":
            return _checked(path, *_of_rows(path, _csv(path)))
        if path.suffix == ".json":
            return _json(path)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                links = [(str(a), str(b)) for a, b in zip(arrays["a"], arrays["b"], strict=True)]
                return _checked(path, arrays["times"], links, arrays["ms"])
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise ConfigError(f"{path}: {error.args[0]} is missing; it needs times, a, b and ms") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    raise ConfigError(f"{path}: the name must end in .csv, .json or .npz")


def _csv(path: Path) -> Iterable[Row]:
    with path.open(newline="") as file:
        reader = csv.reader(file)
        head = [name.strip().lower() for name in next(reader, [])]
        if head != ["time", "a", "b", "ms"]:
            raise ConfigError(f"{path}: the first line must be time,a,b,ms and is {','.join(head)[:80]!r}")
        for number, row in enumerate(reader, 2):
            try:
                time_s, a, b, ms = row
                yield float(time_s), a.strip(), b.strip(), float(ms)
            except ValueError:
                raise ConfigError(
                    f"{path}, line {number}: time, a, b and ms are wanted, not {','.join(row)[:80]!r}"
                ) from None


def _json(path: Path) -> Latencies:
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(found, dict):
        rows = [[math.nan if value is None else value for value in row] for row in found["ms"]]
        links = [(str(a), str(b)) for a, b in found["links"]]
        return _checked(path, np.array(found["times"], dtype=float), links, np.array(rows, dtype=float))
    if isinstance(found, list):
        rows_of = ((float(row["time"]), str(row["a"]), str(row["b"]), float(row["ms"])) for row in found)
        return _checked(path, *_of_rows(path, rows_of))
    raise ConfigError(f"{path}: a list of objects or an object with times, links and ms is wanted")


def _of_rows(path: Path, rows: Iterable[Row]) -> tuple[NDArray[np.float64], list[tuple[str, str]], NDArray[np.float64]]:
    kept = list(rows)
    times = sorted({row[0] for row in kept})
    links = sorted({(min(a, b), max(a, b)) for _, a, b, _ in kept})
    if len(times) * len(links) > LARGEST:
        raise ConfigError(f"{path}: {len(times)} times and {len(links)} links are more than {LARGEST:,} values")
    row_of = {time_s: at for at, time_s in enumerate(times)}
    column_of = {link: at for at, link in enumerate(links)}
    ms = np.full((len(times), len(links)), math.nan)
    for time_s, a, b, value in kept:
        ms[row_of[time_s], column_of[min(a, b), max(a, b)]] = value
    return np.array(times, dtype=float), links, ms


def _checked(
    path: Path, times: NDArray[np.float64], links: list[tuple[str, str]], ms: NDArray[np.float64]
) -> Latencies:
    times, ms = np.asarray(times, dtype=float), np.asarray(ms, dtype=float)
    if ms.shape != (len(times), len(links)) or not links or not len(times):
        raise ConfigError(f"{path}: {len(times)} times and {len(links)} links do not fit values of shape {ms.shape}")
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any() or times[0] < 0:
        raise ConfigError(f"{path}: times must be seconds from 0 on, each later than the one before")
    if (ms < 0).any() or np.isinf(ms).any():
        raise ConfigError(f"{path}: a latency is below 0 or infinite")
    if np.isnan(ms).all(axis=0).any():
        a, b = links[int(np.isnan(ms).all(axis=0).argmax())]
        raise ConfigError(f"{path}: no latency is given for {a}-{b}")
    for a, b in links:
        if a == b or not a or not b:
            raise ConfigError(f"{path}: {a!r}-{b!r} is not a link between two nodes")
    if len({frozenset(link) for link in links}) != len(links):
        raise ConfigError(f"{path}: a link is there twice")
    return Latencies(times, tuple(links), ms)


def walk(plan: Plan, seconds: float, rng: random.Random, step_s: float = 5.0) -> Latencies:
    """Latencies as paths on the Internet have them.

    Each link wanders by some per cent around its length (an Ornstein-Uhlenbeck walk), and now and then is congested
    or rerouted: for half a minute to five it takes up to four times as long.
    """
    times = np.arange(0.0, seconds, step_s)
    ms = np.empty((len(times), len(plan.links)))
    for column, (_, _, base) in enumerate(plan.links):
        wander, until, extra = 0.0, -1.0, 0.0
        for row, time_s in enumerate(times):
            wander += -0.1 * wander + rng.gauss(0.0, 0.01)
            if time_s >= until:
                extra = 0.0
                if rng.random() < step_s / 240:
                    extra = base * rng.uniform(0.5, 3.0) + rng.uniform(0.0, 10.0)
                    until = time_s + rng.uniform(30.0, 300.0)
            ms[row, column] = base * (1 + max(-0.2, min(wander, 0.5))) + extra
    return Latencies(times, tuple((a, b) for a, b, _ in plan.links), ms)
