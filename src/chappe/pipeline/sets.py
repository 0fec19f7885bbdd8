"""Sets of related variables at one instant: how they are declared, condensed and followed over time.

`Related` says which variables form a set and on which grid; `condensed` makes one row of the values of an instant;
`Following` knows what the set has had so far, so that a missing member is seen and the next total is forecast.
Nothing in here knows Spark: the same functions run in batches and in streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from chappe.aggregation.forecast import forecast
from chappe.errors import ConfigError
from chappe.pipeline.grid import Grid, positive

HISTORY = 144  # totals that a forecast is made of: each instant is judged anew, and more would cost more than it tells

_DECLARED = re.compile(
    r"(?P<name>[a-z][a-z0-9_-]*)\s*=\s*(?P<patterns>.+?)\s+every\s+(?P<interval>\S+)"
    r"(?:\s+at\s+(?P<rate>\S+))?(?:\s+of\s+(?P<members>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Related:
    """Variables that belong together: names with `*` for any text, the interval of the set, and its grid.

    Without a rate the grid is that of the interval alone, and the value nearest to an instant counts. Without a
    number of members those count that the set has had so far.
    """

    name: str
    patterns: tuple[str, ...]
    interval_s: Fraction
    rate_hz: Fraction | None = None
    members: int = 0

    @property
    def grid(self) -> Grid:
        """Whose sets are the sets."""
        if self.rate_hz is None:
            return Grid.of(1 / self.interval_s)
        every = self.interval_s * self.rate_hz
        if every.denominator != 1:
            raise ConfigError(
                f"set {self.name}: every {self.interval_s} s is no multiple of the publishing interval, "
                f"{1 / self.rate_hz} s"
            )
        return Grid.of(self.rate_hz, every.numerator)

    @property
    def expression(self) -> str:
        """A regular expression for the names of its members."""
        return "|".join("^" + ".*".join(map(re.escape, pattern.split("*"))) + "$" for pattern in self.patterns)


def related(text: str) -> list[Related]:
    """Sets from `NAME = PATTERN, PATTERN every SECONDS [at RATE] [of MEMBERS]; …`; ConfigError says what is wrong."""
    sets: list[Related] = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        found = _DECLARED.fullmatch(part)
        if found is None:
            raise ConfigError(
                f"set {part!r}: write NAME = PATTERN, PATTERN every SECONDS [at RATE] [of MEMBERS], "
                "such as loads = plant*/load every 1 at 30 of 12"
            )
        if any(found["name"] == known.name for known in sets):
            raise ConfigError(f"set {found['name']!r} is declared twice")
        patterns = tuple(each.strip() for each in found["patterns"].split(","))
        if not all(patterns):
            raise ConfigError(f"set {found['name']}: an empty pattern in {found['patterns']!r}")
        rate = None if found["rate"] is None else positive(f"set {found['name']}: rate", found["rate"])
        interval = positive(f"set {found['name']}: interval", found["interval"])
        one = Related(found["name"], patterns, interval, rate, int(found["members"] or 0))
        _ = one.grid  # refuses an interval that does not fit
        sets.append(one)
    if not sets:
        raise ConfigError("no set is declared: write NAME = PATTERN every SECONDS, such as loads = plant*/load every 1")
    return sets


class Sample(NamedTuple):
    """One value that belongs to a set."""

    name: str
    variable: int
    created_ns: int
    value: float


@dataclass(frozen=True, slots=True)
class Condensed:
    """The values of one instant in one row."""

    samples: tuple[Sample, ...]  # one a member, by name
    total: float
    mean: float
    least: float
    most: float
    largest: Sample
    spread_ns: int


def condensed(samples: Iterable[Sample], instant_ns: int) -> Condensed:
    """One value of each member, the nearest to the instant, and what they are together; there is at least one."""
    nearest: dict[str, Sample] = {}
    for sample in samples:
        known = nearest.get(sample.name)
        if known is None or _distance(sample, instant_ns) < _distance(known, instant_ns):
            nearest[sample.name] = sample
    chosen = tuple(nearest[name] for name in sorted(nearest))
    values = [sample.value for sample in chosen]
    total = float(sum(values))
    stamps = [sample.created_ns for sample in chosen]
    largest = max(chosen, key=lambda sample: sample.value)
    return Condensed(
        chosen, total, total / len(values), min(values), max(values), largest, max(stamps) - min(stamps)
    )  # fmt: skip


def _distance(sample: Sample, instant_ns: int) -> tuple[int, int, float]:
    """How far from the instant; of two as far the older, then the lower, so that no order of arrival decides."""
    return abs(sample.created_ns - instant_ns), sample.created_ns, sample.value


class Judged(NamedTuple):
    """What following adds to the values of an instant."""

    members: int
    missing: tuple[str, ...]
    complete: bool
    forecast: float | None
    forecast_error: float | None
    forecast_method: str | None


@dataclass(slots=True)
class Following:
    """What is known of one set after the instants so far; `packed` and `unpacked` keep it between batches."""

    declared: int = 0  # members of a whole set; 0: as many as it has had
    names: list[str] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    open: dict[int, list[Sample]] = field(default_factory=dict)  # sets that values may still come for
    closed: int = -1  # the number of the last set that is over

    def see(self, condensed: Condensed) -> Judged:
        """The next instant, in order. The forecast is that of the total after this one."""
        present = {sample.name for sample in condensed.samples}
        self.names = sorted(present.union(self.names))
        members = self.declared or len(self.names)
        complete = len(present) >= members
        told = None
        if complete:
            self.totals = [*self.totals, condensed.total][-HISTORY:]
            told = forecast(self.totals)
        missing = tuple(name for name in self.names if name not in present)
        if told is None:
            return Judged(members, missing, complete, None, None, None)
        return Judged(members, missing, complete, told.value, told.error, told.method)

    def collect(self, number: int, sample: Sample) -> None:
        """A value has come; for a set that is over it is too late."""
        if number > self.closed:
            self.open.setdefault(number, []).append(sample)

    def close(self, grid: Grid, reached_ns: int) -> Iterator[dict[str, Any]]:
        """Rows of the sets for which nothing created before `reached_ns` can come any more."""
        over = sorted(number for number in self.open if last_ns(grid, number) < reached_ns)
        if over:
            self.closed = over[-1]
        yield from followed(self, [(number, grid.instant(number), self.open.pop(number)) for number in over])

    def packed(self) -> bytes:
        return msgspec.msgpack.encode([self.names, self.totals, list(self.open.items()), self.closed])

    @classmethod
    def unpacked(cls, declared: int, state: bytes) -> Following:
        names, totals, pending, closed = msgspec.msgpack.decode(state)
        known = {number: [Sample(*sample) for sample in samples] for number, samples in pending}
        return cls(declared, names, totals, known, closed)


def last_ns(grid: Grid, number: int) -> int:
    """The latest creation that still belongs to a set: half a period after its instant."""
    return grid.instant(number) + -(-grid.den // (2 * grid.num))


def followed(following: Following, rows: Sequence[tuple[int, int, Sequence[Sample]]]) -> Iterator[dict[str, Any]]:
    """A row for each (number, instant, samples) of one set, in the order of time."""
    for number, instant_ns, samples in sorted(rows, key=lambda row: row[0]):
        if not samples:
            continue
        whole = condensed(samples, instant_ns)
        judged = following.see(whole)
        yield {
            "number": number,
            "instant_ns": instant_ns,
            "members": judged.members,
            "present": len(whole.samples),
            "complete": judged.complete,
            "missing": list(judged.missing),
            "values": [sample._asdict() for sample in whole.samples],
            "spread_ns": whole.spread_ns,
            "sum": whole.total,
            "mean": whole.mean,
            "min": whole.least,
            "max": whole.most,
            "largest": whole.largest.name,
            "largest_variable": whole.largest.variable,
            "forecast": judged.forecast,
            "forecast_error": judged.forecast_error,
            "forecast_method": judged.forecast_method,
        }
