"""Functions as a whole: filters, table, trigger, calculator; the three examples of the reference; what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from chappe.status.condensation.functions import Condensation, Result, check, output_of
from chappe.wire.base import Variable
from chappe.wire.management import Function, Input

MS = 1_000_000
CITY = "struct:CityUsage:5a1c"
LARGEST_USAGE = "struct:LargestUsage:77e0"


def variable(number: int, kind: str = "float", *, interval_ns: int = 10 * MS, options: int = 0) -> Variable:
    """Input `number`; an interval of 0 makes it an alert."""
    rate = (1, interval_ns) if interval_ns else (0, 1)
    return Variable(number, "grid", f"v{number}", kind, *rate, 3, options)


def function(inputs: list[Variable], calculator: str, **settings: Any) -> Function:
    named = tuple(Input(each.publisher, each.variable) for each in inputs)
    return Function(publisher="out", variable="result", inputs=named, calculator=calculator, **settings)


def made(inputs: list[Variable], calculator: str, **settings: Any) -> Condensation:
    asked = function(inputs, calculator, **settings)
    return Condensation(asked, output_of(asked, inputs, 900), inputs)


def fed(condensation: Condensation, *events: tuple[int, Any, int]) -> list[Any]:
    """The results of (variable, value, created), None where there is none."""
    results = [condensation.feed(number, value, created, created) for number, value, created in events]
    return [None if result is None else result.value for result in results]


# --- the three examples of the reference


@pytest.mark.spec("GS-137", "GS-130")
def test_total_of_power_readings_on_a_time_trigger() -> None:
    readings = [variable(number) for number in range(1, 5)]
    total = made(readings, "builtin:sum", trigger="time", interval_ns=20 * MS)
    assert total.tick(1) is None
    for number in range(1, 5):
        assert total.feed(number, 100.0 * number, 10 * MS, 11 * MS) is None
    assert total.deadline_ns() == 20 * MS
    assert total.tick(19 * MS) is None
    assert total.tick(20 * MS + 300) == Result(1000.0, 20 * MS)
    assert total.feed(2, 250.0, 30 * MS, 31 * MS) is None
    assert total.tick(40 * MS) == Result(1050.0, 40 * MS)
    assert total.tick(60 * MS) == Result(1050.0, 60 * MS)
    assert total.setup.output == Variable(900, "out", "result", "float", 1, 20 * MS, 3, 0)


@pytest.mark.spec("GS-137", "GS-131")
def test_an_alert_when_a_line_fails_while_the_total_is_above_its_threshold() -> None:
    total, line_a, line_b = variable(1), variable(2, "bool", interval_ns=0), variable(3, "bool", interval_ns=0)
    watch = made(
        [total, line_a, line_b], "expression:v1 > 900", type="bool", trigger="alert", count=1, out_low=1, priority=0
    )
    assert watch.setup.output.rate_num == 0
    assert fed(watch, (1, 1000.0, 1), (1, 800.0, 2)) == [None, None]
    assert fed(watch, (2, True, 3)) == [None]  # a line fails, the total is low
    assert fed(watch, (1, 950.0, 4)) == [None]  # the total is high, no line fails
    assert fed(watch, (3, True, 5)) == [True]
    assert fed(watch, (2, False, 6)) == [True]
    assert fed(watch, (1, 900.0, 7), (3, True, 8)) == [None, None]
    assert watch.counters["below"] == 2


@pytest.mark.spec("GS-137")
def test_largest_usage_gives_the_whole_event_of_its_city() -> None:
    cities = [variable(number, CITY, options=1) for number in (1, 2, 3)]
    largest = made(cities, "builtin:largest:data", type=LARGEST_USAGE)
    assert largest.setup.output == Variable(900, "out", "result", LARGEST_USAGE, 1, 10 * MS, 3, 2)

    def usage(city: int, data: float, created: int) -> dict[str, Any]:
        return {"created": created, "id": city, "data": data}

    first = [(city, usage(city, data, 10), 10) for city, data in ((1, 3.5), (2, 9.25), (3, 1.0))]
    assert fed(largest, *first) == [None, None, {"source": usage(2, 9.25, 10)}]
    again = [(city, usage(city, data, 20), 20) for city, data in ((3, 12.0), (1, 4.0), (2, 8.0))]
    assert fed(largest, *again) == [None, None, {"source": usage(3, 12.0, 20)}]


def test_largest_of_the_same_type_is_that_value_itself() -> None:
    cities = [variable(number, CITY) for number in (1, 2)]
    largest = made(cities, "builtin:largest:1", type=CITY)
    assert fed(largest, (1, [7, 2.0], 1), (2, [8, 1.0], 1)) == [None, [7, 2.0]]


# --- calculators


@pytest.mark.parametrize(
    ("calculator", "kind", "values", "result"),
    [
        ("builtin:sum", "float", (1.5, 2.5, 4.0), 8.0),
        ("builtin:mean", "float", (1.0, 2.0, 6.0), 3.0),
        ("builtin:min", "float", (3.0, 2.0, 6.0), 2.0),
        ("builtin:max", "float", (3.0, 2.0, 6.0), 6.0),
        ("builtin:largest", "float", (3.0, 2.0, 6.0), 6.0),
        ("builtin:range", "float", (3.0, 2.0, 6.0), 4.0),
        ("builtin:count", "int", (3.0, 2.0, 6.0), 3),
        ("builtin:weighted:0.5,0.25,2", "float", (2.0, 4.0, 1.0), 4.0),
        ("expression:(a + b) * x3", "float", (1.0, 2.0, 3.0), 9.0),
        ("expression:mean() > 1", "bool", (1.0, 2.0, 3.0), True),
        ("expression:v1 if v2 > 1 else v3", "float", (1.0, 2.0, 3.0), 1.0),
    ],
)
@pytest.mark.spec("GS-130")
def test_calculators_over_three_inputs(calculator: str, kind: str, values: tuple[float, ...], result: Any) -> None:
    condensation = made([variable(1), variable(2), variable(3)], calculator, type=kind)
    answers = fed(condensation, *((at + 1, value, 5) for at, value in enumerate(values)))
    assert answers == [None, None, result]
    assert type(answers[-1]).__name__ == kind


def test_any_and_all_of_conditions() -> None:
    switches = [variable(1, "bool"), variable(2, "bool")]
    for calculator, results in (("builtin:any", [True, False]), ("builtin:all", [False, False])):
        condensation = made(switches, calculator, type="bool")
        assert fed(condensation, (1, True, 1), (2, False, 1))[1] is results[0]
        assert fed(condensation, (1, False, 2), (2, False, 2))[1] is results[1]


def test_integers_stay_integers_and_a_sum_that_does_not_fit_is_no_result() -> None:
    condensation = made([variable(1, "int"), variable(2, "int")], "builtin:sum", type="int", count=1)
    assert fed(condensation, (1, 1 << 62, 1), (2, (1 << 62) - 1, 2)) == [None, (1 << 63) - 1]
    assert fed(condensation, (2, 1 << 62, 3)) == [None]
    assert condensation.counters["nothing"] == 1


def test_nothing_is_calculated_before_every_input_that_is_no_alert_has_a_value() -> None:
    condensation = made([variable(1), variable(2)], "builtin:sum", count=1)
    assert fed(condensation, (1, 1.0, 1), (1, 2.0, 2), (2, 3.0, 3)) == [None, None, 5.0]
    assert condensation.counters["early"] == 2


def test_alerts_say_when_and_not_what_where_they_are_mixed_with_others() -> None:
    mixed = [variable(1), variable(2), variable(3, interval_ns=0)]
    condensation = made(mixed, "builtin:mean", trigger="alert")
    assert fed(condensation, (1, 1.0, 1), (2, 2.0, 1), (3, 77.0, 2)) == [None, None, 1.5]


def test_alerts_alone_are_what_is_calculated() -> None:
    alerts = [variable(number, interval_ns=0) for number in (1, 2, 3)]
    condensation = made(alerts, "builtin:count", type="int", trigger="alert", count=2)
    assert fed(condensation, (1, 1.0, 1), (1, 1.0, 2), (3, 1.0, 3)) == [None, None, 2]


@pytest.mark.parametrize(
    ("calculator", "values"),
    [("expression:a / b", (1.0, 0.0)), ("builtin:sum", (1.0, math.nan)), ("builtin:sum", (1e308, 1e308))],
)
def test_what_has_no_result_is_counted_and_not_published(calculator: str, values: tuple[float, float]) -> None:
    condensation = made([variable(1), variable(2)], calculator)
    assert fed(condensation, (1, values[0], 1), (2, values[1], 1)) == [None, None]
    assert condensation.counters["nothing"] == 1
    assert fed(condensation, (1, 4.0, 2), (2, 2.0, 2))[1] is not None


# --- filters, table and stamps


@pytest.mark.spec("GS-132")
def test_the_input_filter_keeps_excluded_events_from_updating_and_firing() -> None:
    condensation = made([variable(1)], "builtin:sum", low=10, high=20)
    values = [9.999, 10.0, 20.0, 20.001, math.nan, 15.0]
    assert fed(condensation, *((1, value, at + 1) for at, value in enumerate(values))) == [
        None, 10.0, 20.0, None, None, 15.0,
    ]  # fmt: skip
    assert condensation.counters["filtered"] == 3
    assert condensation.setup.output.rate_num == 0  # what comes through has no rhythm


@pytest.mark.spec("GS-132", "GS-130")
def test_the_output_filter_turns_a_periodic_stream_into_alerts() -> None:
    pair = [variable(1), variable(2)]
    condensation = made(pair, "builtin:mean", out_low=100)
    assert condensation.setup.output.rate_num == 0
    readings = [(90.0, 90.0), (95.0, 110.0), (60.0, 120.0), (100.0, 100.0)]
    published = [
        fed(condensation, (1, one, at), (2, other, at))[1] for at, (one, other) in enumerate(readings, start=1)
    ]
    assert published == [None, 102.5, None, 100.0]


@pytest.mark.spec("GS-132")
@pytest.mark.parametrize(("kind", "low", "value", "passes"), [
    ("int", 5, 4, False), ("int", 5, 5, True), ("bool", 1, False, False), ("bool", 1, True, True),
])  # fmt: skip
def test_filters_know_every_built_in_type(kind: str, low: float, value: Any, passes: bool) -> None:
    condensation = made([variable(1, kind)], "builtin:count", type="int", low=low)
    assert fed(condensation, (1, value, 1)) == [1 if passes else None]


def test_an_event_that_is_not_newer_changes_nothing() -> None:
    condensation = made([variable(1)], "builtin:sum")
    assert fed(condensation, (1, 1.0, 5), (1, 2.0, 5), (1, 3.0, 4), (1, 4.0, 6)) == [1.0, None, None, 4.0]
    assert condensation.counters["old"] == 2


def test_results_have_the_stamp_of_the_newest_input_and_never_the_same_one() -> None:
    condensation = made([variable(1), variable(2)], "builtin:sum", count=1)
    condensation.feed(1, 1.0, 10, 10)
    results = [condensation.feed(2, 1.0, 8, 11), condensation.feed(1, 2.0, 12, 12), condensation.feed(2, 2.0, 12, 13)]
    assert [result.created for result in results if result] == [10, 12, 13]


def test_a_variable_that_is_no_input_is_ignored() -> None:
    assert made([variable(1)], "builtin:sum").feed(7, 1.0, 1, 1) is None


def test_inputs_that_cannot_fire_need_not_be_heard() -> None:
    alert = variable(2, interval_ns=0)
    condensation = made([variable(1), alert], "builtin:sum", trigger="alert")
    assert (condensation.hears(1), condensation.hears(2)) == (False, True)
    condensation.refresh([(0, Result(5.0, 10))])
    condensation.refresh([(0, Result(4.0, 9))])
    assert fed(condensation, (2, 1.0, 11)) == [5.0]
    filtered = made([variable(1), alert], "builtin:sum", trigger="alert", low=0)
    assert filtered.hears(1)


# --- what the output is


@pytest.mark.parametrize(
    ("intervals_ms", "settings", "rate"),
    [
        ((10, 40), {}, Fraction(1, 40 * MS)),
        ((10, 40), {"interval_ns": 50 * MS}, Fraction(1, 50 * MS)),
        ((10, 40), {"trigger": "time", "interval_ns": 2 * MS}, Fraction(1, 2 * MS)),
        ((10, 40), {"trigger": "time", "interval_ns": 2 * MS, "low": 3}, Fraction(1, 2 * MS)),
    ],
)
def test_the_rate_of_a_periodic_output_follows_from_the_trigger(
    intervals_ms: tuple[int, ...], settings: dict[str, Any], rate: Fraction
) -> None:
    inputs = [variable(at, interval_ns=interval * MS) for at, interval in enumerate(intervals_ms, start=1)]
    output = output_of(function(inputs, "builtin:sum", **settings), inputs)
    assert Fraction(output.rate_num, output.rate_den) == rate


@pytest.mark.parametrize(
    ("intervals_ms", "settings", "minimum_ms"),
    [
        ((10, 40), {"trigger": "time", "interval_ns": 2 * MS, "out_low": 3}, 2),
        ((10, 40), {"count": 1}, 8),
        ((10, 40), {"count": 1, "interval_ns": 100 * MS}, 100),
        ((10, 40), {"low": 3}, 40),
        ((10, 0), {"trigger": "alert"}, 1000),
        ((10, 0, 0), {"trigger": "alert", "count": 1}, 500),
        ((10, 0), {}, 1000),
    ],
)
def test_any_other_output_is_an_alert_that_comes_no_faster_than_its_inputs_allow(
    intervals_ms: tuple[int, ...], settings: dict[str, Any], minimum_ms: int
) -> None:
    inputs = [variable(at, interval_ns=interval * MS) for at, interval in enumerate(intervals_ms, start=1)]
    output = output_of(function(inputs, "builtin:sum", **settings), inputs)
    assert (output.rate_num, output.minimum_ns) == (0, minimum_ms * MS)


def test_an_interval_paces_what_events_would_make_faster() -> None:
    condensation = made([variable(1)], "builtin:sum", interval_ns=30 * MS)
    stamps = [11, 19, 31, 39, 61, 99, 121]
    published = fed(condensation, *((1, float(stamp), stamp * MS) for stamp in stamps))
    assert published == [11.0, None, 31.0, None, 61.0, 99.0, 121.0]
    assert condensation.counters["soon"] == 2


def test_a_coarser_input_makes_the_output_coarser() -> None:
    inputs = [variable(1), variable(2)]
    asked = Function(
        publisher="o", variable="v", calculator="builtin:sum",
        inputs=(Input("grid", "v1", 35 * MS), Input("grid", "v2")),
    )  # fmt: skip
    output = output_of(asked, inputs)
    assert Fraction(output.rate_num, output.rate_den) == Fraction(1, 30 * MS)


# --- what is refused


PAIR = [variable(1), variable(2)]
ALERT = variable(3, interval_ns=0)
STRUCT = variable(4, CITY)


@pytest.mark.parametrize(
    ("inputs", "calculator", "settings", "words"),
    [
        ([], "builtin:sum", {}, "it has no inputs"),
        ([PAIR[0], PAIR[0]], "builtin:sum", {}, "input grid/v1 is there twice"),
        (PAIR, "builtin:median", {}, "calculator 'builtin:median' is unknown; use builtin:sum"),
        (PAIR, "sum", {}, "calculator 'sum' is unknown"),
        (PAIR, "entry:", {}, "calculator 'entry:' is unknown"),
        (PAIR, "builtin:sum:3", {}, "takes nothing after its name"),
        (PAIR, "builtin:weighted:1", {}, "has 1 weights for 2 inputs"),
        (PAIR, "builtin:weighted:1,x", {}, "needs numbers with commas"),
        (PAIR, "builtin:any", {"type": "bool"}, "builtin:any cannot take grid/v1 of type float"),
        (PAIR, "builtin:sum", {"type": "int"}, "builtin:sum gives a float, the output is of type int"),
        (PAIR, "expression:a > b", {}, "the expression gives a bool, the output is of type float"),
        (PAIR, "expression:a + q", {}, "expression: column 5: there is no input 'q'"),
        (PAIR, "expression:9**9**9**9", {}, "has no result: more than 64 bits"),
        (PAIR, "expression:while 1: a", {}, "expression: column 1: invalid syntax"),
        (PAIR, "builtin:sum", {"type": "decimal"}, "type 'decimal' is unknown"),
        (PAIR, "builtin:sum", {"trigger": "often"}, "trigger 'often' is unknown; use time, event, alert"),
        (PAIR, "builtin:sum", {"trigger": "time"}, "a time trigger needs an interval"),
        (PAIR, "builtin:sum", {"trigger": "time", "interval_ns": 5}, "below the shortest"),
        (PAIR, "builtin:sum", {"trigger": "time", "interval_ns": MS, "count": 2}, "does not count inputs"),
        (PAIR, "builtin:sum", {"count": 3}, "cannot wait for 3 of 2 inputs"),
        (PAIR, "builtin:sum", {"count": -1}, "cannot wait for -1 inputs"),
        (PAIR, "builtin:sum", {"trigger": "alert"}, "needs an input that is an alert"),
        ([*PAIR, ALERT], "builtin:sum", {"trigger": "alert", "count": 2}, "cannot wait for 2 of 1 alerts"),
        (PAIR, "builtin:sum", {"low": 2, "high": 1}, "the input filter drops everything"),
        (PAIR, "builtin:sum", {"out_low": math.nan}, "a bound of the output filter is not a number"),
        ([STRUCT], "builtin:count", {"type": "int", "low": 3}, "cannot compare grid/v4 of type struct:CityUsage:5a1c"),
        ([STRUCT], "builtin:largest:data", {"type": CITY, "out_high": 3}, "the output filter cannot compare"),
        ([STRUCT], "builtin:largest:data", {}, "gives a whole value"),
        ([STRUCT], "builtin:largest", {}, "use builtin:largest:FIELD"),
        ([STRUCT], "builtin:sum", {}, "use an expression or entry:NAME"),
        ([STRUCT, PAIR[0]], "builtin:largest:data", {"type": CITY}, "is for user types; grid/v1 is of type float"),
        ([STRUCT, variable(5, LARGEST_USAGE)], "builtin:largest:data", {"type": CITY}, "compares values of one type"),
        ([STRUCT], "expression:v4", {}, "v4 is of type struct:CityUsage:5a1c"),
        (PAIR, "builtin:sum", {"priority": 9}, "priority 9 is not in 0 .. 6"),
        (PAIR, "builtin:sum", {"options": 256}, "256 option blocks"),
    ],
)
@pytest.mark.spec("GS-130")
def test_a_wrong_function_is_refused_in_one_clear_line(
    inputs: list[Variable], calculator: str, settings: dict[str, Any], words: str
) -> None:
    problem = check(function(inputs, calculator, **settings), inputs)
    assert problem is not None
    assert problem.startswith("function out/result: ")
    assert words in problem
    assert "\n" not in problem
    with pytest.raises(ValueError):
        Condensation(function(inputs, calculator, **settings), variable(900), inputs)


def test_an_output_that_is_an_input_is_refused() -> None:
    asked = Function(publisher="grid", variable="v1", calculator="builtin:sum", inputs=(Input("grid", "v1"),))
    assert check(asked, [variable(1)]) == (
        "function grid/v1: its output is one of its inputs; give the output another name"
    )


def test_everything_that_is_wrong_is_said_at_once() -> None:
    problem = check(function(PAIR, "builtin:nothing", trigger="time", type="float", count=2), PAIR)
    assert problem is not None
    assert all(words in problem for words in ("needs an interval", "does not count", "'builtin:nothing' is unknown"))


def test_entry_points_are_looked_for_only_where_they_are_known() -> None:
    asked = function(PAIR, "entry:flows", trigger="entry:dawn")
    assert check(asked, PAIR) is None
    assert check(asked, PAIR, {"flows"}, {"dawn"}) is None
    problem = check(asked, PAIR, set(), set())
    assert problem is not None
    assert "has a calculator 'flows'; install one" in problem
    assert "has a trigger 'dawn'; install one" in problem
