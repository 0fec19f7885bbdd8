"""Topics and patterns as a client names them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from chappe.client.intervals import interval_ns, rational_rate
from chappe.client.topics import Long, pattern_text
from chappe.wire.topics import topic_matches


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+/b", "a/b", True),
        ("#", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("a/+/#", "a", False),
        ("a/+/#", "a/b", True),
    ],
)
def test_wildcards(pattern: str, topic: str, expected: bool) -> None:
    assert topic_matches(pattern, topic) is expected


@pytest.mark.parametrize("pattern", ["", "/a", "a/", "a//b", "a/#/b", "a+", "a/b#", "x" * 1025, True, 1 << 31, 1.5])
def test_bad_patterns_are_refused(pattern: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        pattern_text(pattern)  # type: ignore[arg-type]


def test_numbers_as_patterns() -> None:
    assert pattern_text(5) == ("i", "5")
    assert pattern_text(Long(-5)) == ("l", "-5")
    with pytest.raises(ValueError, match="64 bits"):
        Long(1 << 63)


def test_rates_are_exact() -> None:
    assert rational_rate(30) == (3, 100_000_000)
    assert rational_rate(Fraction(1, 3)) == (1, 3_000_000_000)
    assert rational_rate(None) == (0, 1)
    assert interval_ns(0.1) == 100_000_000
    assert interval_ns(Fraction(1, 30)) == 33_333_333
    assert interval_ns(None) == 0
    for wrong in (-1, -0.5):
        with pytest.raises(ValueError, match="positive"):
            rational_rate(wrong)
