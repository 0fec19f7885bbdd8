"""Laws of the distance between names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cells.names import distance, gap, interval, nearest, position

names = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=1, max_size=60)
close = st.text("ab\0\U0010ffff", min_size=1, max_size=6)
either = st.one_of(names, close)


@pytest.mark.spec("BF-03")
@given(either, either, either)
def test_distance_is_a_metric_and_strictly_monotone_in_the_order_of_bytes(a: str, b: str, c: str) -> None:
    low, middle, high = sorted((a, b, c), key=str.encode)
    assert (low, middle, high) == tuple(sorted((a, b, c)))
    assert distance(low, high) == distance(low, middle) + distance(middle, high)
    assert (distance(low, middle) == 0) == (low == middle)
    assert distance(a, b) == distance(b, a)


@pytest.mark.spec("BF-03")
@given(either, either)
def test_the_definition(a: str, b: str) -> None:
    def number(name: str) -> int:
        digits = [byte + 1 for byte in name.encode()] + [0] * (255 - len(name.encode()))
        return sum(digit * 257**place for place, digit in enumerate(reversed(digits)))

    assert distance(a, b) == abs(number(a) - number(b))


@pytest.mark.spec("BF-25")
@given(either, either)
def test_the_gap_to_a_prefix_is_that_to_the_nearest_name_with_it(prefix: str, name: str) -> None:
    assert (gap(name, prefix + "*") == 0) == name.startswith(prefix)
    first, last = interval(prefix + "*")
    assert gap(name, prefix + "*") == max(first - position(name), position(name) - last, 0)
    assert gap(name, prefix + "*") <= distance(name, prefix)


@given(st.lists(either, min_size=1), either)
def test_no_name_is_nearer_than_the_nearest(others: list[str], name: str) -> None:
    best = nearest(others, name)
    assert best in others
    assert all(gap(best, name) <= distance(other, name) for other in others)
    assert nearest([*others, name], name) == name
