from __future__ import annotations

import math
import re
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline.report import ticks
from chappe.pipeline.report.page import Section, page, sentence, table
from chappe.pipeline.report.pictures import Edge, heat, network
from chappe.pipeline.report.plot import Axis, Plot, axis, shade
from tests.support.html import Tags

DAY_NS = 86_400 * ticks.SECOND_NS
START_NS = 1_790_000_000 * ticks.SECOND_NS


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    high = low + span
    found = ticks.numbers(low, high)
    if high > low + abs(low) * 1e-9:
        assert 1 <= len(found) <= 12
        assert all(low - span * 1e-6 <= tick <= high + span * 1e-6 for tick in found)


@given(st.integers(1, 4000 * 86_400))
def test_ticks_of_time_are_few_and_inside(span_s: int) -> None:
    high = START_NS + span_s * ticks.SECOND_NS
    found = ticks.times(START_NS, high)
    assert 1 <= len(found) <= 8
    assert all(START_NS <= tick <= high for tick in found)


def test_ticks_on_a_logarithmic_axis_are_powers_of_ten() -> None:
    assert ticks.powers(0.5, 2000) == [1, 10, 100, 1000]
    assert len(ticks.powers(20, 60)) > 1


@pytest.mark.parametrize(
    ("span_ns", "text"), [(30 * DAY_NS, "27 Sep 13:46"), (DAY_NS, "13:46"), (DAY_NS // 1000, "13:46:40")]
)
def test_a_time_is_written_as_far_as_its_axis_needs(span_ns: float, text: str) -> None:
    at_ns = datetime(2026, 9, 27, 13, 46, 40, tzinfo=UTC).timestamp() * 1e9
    assert ticks.time_text(at_ns, span_ns) == text


def test_a_line_is_interrupted_where_nothing_is_known() -> None:
    plot = Plot(Axis(0, 3), Axis(0, 1), "gaps")
    plot.line([0, 1, 2, 3], [0.1, 0.2, math.nan, 0.4], "red", "of it")
    path = re.search(r'<path d="([^"]*)"', plot.svg())
    assert path is not None
    assert path[1].count("M") == 2
    assert "of it" in plot.svg()


def test_a_long_line_keeps_its_extremes() -> None:
    values = np.zeros(200_000)
    values[123_456], values[77] = 9.0, -3.0
    plot = Plot(Axis(0, 200_000), axis([values], ""), "long")
    plot.line(np.arange(200_000), values, "red")
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", plot.svg())]
    assert len(heights) <= 1600
    alone = Plot(Axis(0, 1), axis([values], ""), "ends")
    alone.line([0, 1], [9.0, -3.0], "red")
    ends = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", alone.svg())]
    assert (min(heights), max(heights)) == (ends[0], ends[1])


@pytest.mark.parametrize("values", [[], [math.nan], [5.0], [0.0, 0.0]], ids=["none", "unknown", "one", "same"])
def test_an_axis_has_room_whatever_it_is_given(values: list[float]) -> None:
    for kind in ("number", "log", "time"):
        found = axis([values], "x", kind)
        assert found.high > found.low
        Plot(found, found, "any").svg()


def test_text_of_users_is_text() -> None:
    evil = "<script>alert(1)</script>"
    plot = Plot(Axis(0, 1, evil), Axis(0, 1, evil), evil)
    plot.points([0.5], [0.5], "red", evil, [evil])
    plot.moments([0.5], "red", evil, [evil])
    edges = [Edge(evil, "b", 0.5, evil)]
    section = Section("one", evil, plot.svg() + network(edges, evil) + table([evil], [[evil]]) + sentence(evil))
    assert "<script" not in page(evil, evil, [(evil, evil)], [section])


def test_a_page_is_whole_and_fetches_nothing() -> None:
    week = np.full((7, 24), np.nan)
    week[0, 0], week[6, 23] = 1.0, 3.0
    drawn = heat(week, "costs", "ms") + table(["link", "loss", "promise"], [["a", 0.5, True], ["b", None, False]])
    text = page("Mesh", "today", [("links", "3")], [Section("heat", "Hours", drawn)])
    tags = Tags(text)
    assert (tags.seen["svg"], tags.seen["section"], tags.seen["rect"]) == (1, 1, 7 * 24)
    assert "://" not in text
    assert "default-src 'none'" in text
    assert 'class="good">kept' in text
    assert 'class="bad">missed' in text


def test_a_network_is_laid_out_the_same_way_each_time_and_where_places_are_known_there() -> None:
    edges = [Edge("a", "b", 0.1, "ab"), Edge("b", "c", math.nan, "bc", marked=True), Edge("b", "a", 0.9, "ba")]
    assert network(edges, "map") == network(edges, "map")
    placed = network(edges, "map", {"a": (0, 0), "b": (1, 0), "c": (1, 1)})
    nodes = re.findall(r'class="node" cx="([\d.]+)" cy="([\d.]+)"', placed)
    assert nodes == [("40.0", "30.0"), ("680.0", "30.0"), ("680.0", "450.0")]
    assert "var(--muted)" in placed


def test_shades_go_from_calm_to_alarming() -> None:
    assert shade(-1) == shade(0) != shade(0.5) != shade(1) == shade(2)
