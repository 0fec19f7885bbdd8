"""Sets of related variables: how they are written down, and that they are those of a client's group."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chappe.client.snapshots import Rhythm, Rounds
from chappe.client.snapshots import Sample as Received
from chappe.errors import ConfigError
from chappe.pipeline.grid import Grid
from chappe.pipeline.sets import Following, Related, Sample, condensed, followed, related

START = 1_800_000_000_000_000_000


def test_sets_are_declared_in_words() -> None:
    loads, angles = related("loads = plant*/load, mill/load every 1 at 30 of 12; angles = pmu*/angle every 1/30")
    assert loads == Related("loads", ("plant*/load", "mill/load"), Fraction(1), Fraction(30), 12)
    assert loads.grid == Grid.of(Fraction(30), 30)
    assert angles.grid == Grid.of(Fraction(30))
    found = [
        name for name in ("plant7/load", "mill/load", "mill/loads", "xplant/load") if re.search(loads.expression, name)
    ]
    assert found == ["plant7/load", "mill/load"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no set"),
        ("loads", "write NAME"),
        ("loads = a/b every 0", "above 0"),
        ("loads = a/b every 1 at 2/3", "no multiple"),
        ("loads = a/b every 1; loads = c/d every 1", "twice"),
        ("loads = a/b,, every 1", "empty pattern"),
    ],
)
def test_what_is_no_set_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        related(text)


def test_the_value_nearest_to_the_instant_counts_in_whatever_order_they_came() -> None:
    samples = [Sample("a", 1, START - 4, 1.0), Sample("a", 1, START + 3, 2.0), Sample("b", 2, START, 9.0)]
    for order in (samples, samples[::-1], [*samples, *samples]):
        whole = condensed(order, START)
        assert [each.value for each in whole.samples] == [2.0, 9.0]
        assert (whole.total, whole.mean, whole.least, whole.most) == (11.0, 5.5, 2.0, 9.0)
        assert (whole.largest.name, whole.spread_ns) == ("b", 3)


def test_a_member_that_is_missing_is_named_and_its_total_is_in_no_forecast() -> None:
    following = Following()
    rows = [
        (number, number, [Sample(name, 1, number, 5.0) for name in ("ab" if number == 10 else "abc")])
        for number in range(20)
    ]
    random.Random(1).shuffle(rows)
    first = list(followed(following, rows[:0])) + list(followed(following, rows))
    assert [row["number"] for row in first] == list(range(20))
    assert [row["number"] for row in first if not row["complete"]] == [10]
    assert first[10]["missing"] == ["c"]
    assert first[10]["forecast"] is None
    assert first[19]["forecast"] == 15.0
    assert first[3]["forecast"] is None
    again = Following.unpacked(0, following.packed())
    assert again == following
    (declared,) = followed(Following(4), rows[:1])
    assert not declared["complete"]
    assert declared["members"] == 4


@pytest.mark.spec("SJ-09")
@settings(deadline=None)
@given(
    st.sampled_from([(Fraction(30), 1), (Fraction(30), 5), (Fraction(7, 3), 2)]),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.floats(-0.49, 0.49)), max_size=60),
)
def test_complete_sets_are_those_of_a_group_of_a_client(
    rhythm: tuple[Fraction, int], published: list[tuple[int, int, float]]
) -> None:
    """Whatever is missing; each variable is published once a period, and arrives in the order of creation."""
    rate, every = rhythm
    period = 1_000_000_000 / rate
    group, grid = Rounds(history=100), Grid.of(rate, every)
    for member in "abc":
        group.add((member, "x"), Rhythm(period, {0: every * period}))
    start = int(grid.sets(START)) * every
    values: dict[tuple[int, int], int] = {}
    for step, member, jitter in published:
        values.setdefault((step, member), round((start + step + Fraction(jitter)) * period))
    sets: dict[int, list[Sample]] = {}
    for (step, member), created in sorted(values.items()):
        group.offer(("abc"[member], "x"), Received(float(step), created, created))
        if grid.counts(created):
            sets.setdefault(int(grid.sets(created)), []).append(Sample("abc"[member], member, created, float(step)))
    rows = followed(Following(3), [(number, grid.instant(number), samples) for number, samples in sets.items()])
    mine = {row["instant_ns"]: row["sum"] for row in rows if row["complete"]}
    assert mine == {each.nominal: sum(each.values()) for each in group.complete}
