"""Whether a series levels off, and how entries of tables are counted."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from bench.soak.bench import FLOOR, judged
from bench.soak.tables import tables
from bench.soak.trend import trend

TIMES = [float(second) for second in range(1200)]


def noise(seed: int, size: float) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(0.0, size) for _ in TIMES]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("series", "level"),
    [
        (lambda t: 1000.0, True),
        (lambda t: 0.0, True),
        (lambda t: 1000.0 * min(1.0, t / 400), True),  # it fills in the first half
        (lambda t: 1000.0 + 300.0 * (t % 60 > 55), True),  # bursts
        (lambda t: 5000.0 - t, True),
        (lambda t: 1000.0 + 0.5 * t, False),
        (lambda t: t, False),
        (lambda t: 1000.0 + 200.0 * (t > 900), False),  # a step in the middle of the half
        (lambda t: 1000.0 * (t / 600) ** 0.5, False),
    ],
)
def test_what_grows_in_the_second_half_does_not_level_off(seed: int, series, level: bool) -> None:  # type: ignore[no-untyped-def]
    values = [series(at) + more for at, more in zip(TIMES, noise(seed, 5.0), strict=True)]
    assert trend(TIMES, values, FLOOR).level is level


def test_growth_within_the_floor_counts_as_level() -> None:
    values = [100.0 + 0.05 * at for at in TIMES]
    assert trend(TIMES, values, 64).level
    assert not trend(TIMES, values, 10).level


def test_a_table_that_is_gone_by_the_end_is_not_judged() -> None:
    series = {
        "a Session.topics": [(at, 10.0) for at in TIMES],
        "a Old.rows": [(at, at) for at in TIMES if at < 700],
        "a resident_bytes": [(at, 1e8 + 1e6 * at) for at in TIMES],
    }
    found = judged(series, 1200.0)
    assert set(found) == {"a Session.topics", "a resident_bytes"}
    assert not found["a resident_bytes"].level


@dataclass
class Session:
    topics: set[str] = field(default_factory=set)
    queue: deque[bytes] = field(default_factory=deque)


@dataclass(slots=True)
class Link:
    by_name: dict[str, Session]
    groups: dict[str, dict[int, list[int]]]
    peer: Link | None = None


def test_every_table_is_found_whoever_holds_it() -> None:
    one, two = Session({"a", "b"}, deque([b"x"])), Session({"c"})
    link = Link({"one": one, "two": two}, {"g": {1: [1, 2, 3], 2: [4]}})
    link.peer = link
    assert tables(link, __name__) == {
        "Link.by_name": 2,
        "Link.groups": 1 + 2 + 3 + 1,
        "Session.topics": 3,
        "Session.queue": 1,
    }
