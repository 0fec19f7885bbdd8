"""Expressions: what they mean, what is refused and where, and that none can run long or grow large."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.status.condensation.expression_functions import FUNCTIONS, LARGEST, SMALLEST, power
from chappe.status.condensation.expressions import NODES, STEPS, ExpressionError, parse_expression
from chappe.status.condensation.naming import names_of

NAMES = {"a": 0, "b": 1, "n": 2, "ok": 3}
TYPES = ("float", "float", "int", "bool")


def result(text: str, *values: Any) -> Any:
    return parse_expression(text, NAMES, TYPES)(values or (1.5, 2.0, 7, True))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b * n", 15.5),
        ("(a + b) / 2", 1.75),
        ("n // 2 + n % 2", 4),
        ("-n ** 2", -49),
        ("2 ** -1", 0.5),
        ("a < b <= 2.0", True),
        ("a if ok else b", 1.5),
        ("not ok or n == 7", True),
        ("ok and a > 3", False),
        ("sum(a, b, 1)", 4.5),
        ("max(a, b) - min(a, b)", 0.5),
        ("range(a, b, n)", 5.5),
        ("mean()", (1.5 + 2.0 + 7 + 1) / 4),
        ("count()", 4),
        ("any(a > 5, b > 1)", True),
        ("round(a + 0.1) + floor(a) + ceil(a)", 5),
        ("hypot(3, 4)", 5.0),
        ("2 * pi", math.tau),
        ("  a  ", 1.5),
    ],
)
def test_an_expression_means_what_python_means(text: str, value: Any) -> None:
    assert result(text) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("n + 1", "int"), ("n / 1", "float"), ("n * a", "float"), ("n > 1", "bool"), ("n ** 2", "int"),
        ("n ** n", "float"), ("ok + ok", "int"), ("1 if ok else 2.0", "float"), ("min(n, 3)", "int"),
        ("sum()", "float"),
    ],
)  # fmt: skip
def test_the_type_of_the_result_is_known_before_it_runs(text: str, kind: str) -> None:
    assert parse_expression(text, NAMES, TYPES).type == kind


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a / b", (1.0, 0.0, 0, True)),
        ("n % 0.0 if a < 0 else 1 / (a - a)", (1.0, 1.0, 1, True)),
        ("sqrt(a)", (-1.0, 0.0, 0, True)),
        ("log(b)", (1.0, 0.0, 0, True)),
        ("a * b", (1e300, 1e300, 0, True)),
        ("a > 3", (math.nan, 0.0, 0, True)),
        ("max()", (1.0, math.nan, 0, True)),
        ("n * n", (0.0, 0.0, LARGEST, True)),
        ("n ** n", (0.0, 0.0, LARGEST, True)),
        ("a ** b", (-8.0, 1 / 3, 0, True)),
        ("floor(a)", (1e300, 0.0, 0, True)),
        ("a - b", (math.inf, math.inf, 0, True)),
    ],
)
def test_what_has_no_result_gives_none(text: str, values: tuple[Any, ...]) -> None:
    assert result(text, *values) is None


def test_an_alert_that_has_not_come_counts_as_zero_and_is_left_out_of_aggregates() -> None:
    assert result("a + n", 1.0, None, None, None) == 1.0
    assert result("not ok", 1.0, None, None, None) is True
    assert result("mean()", 4.0, 2.0, None, None) == 3.0
    assert result("mean()", None, None, None, None) is None


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("", 1, "write one expression"),
        ("a +", 4, "invalid syntax"),
        ("while True: pass", 1, "invalid syntax"),
        ("c + 1", 1, "there is no input 'c'; the inputs are a, b, n, ok"),
        ("a + open('x')", 5, "there is no function 'open'; use sum, mean"),
        ("a.real", 1, "a dot is not part"),
        ("a[0]", 1, "an index is not part"),
        ("(lambda: 1)()", 1, "there is no function"),
        ("[x for x in a]", 1, "is not part"),
        ("sum(x for x in a)", 4, "is not part"),
        ("'text'", 1, "neither a number nor True or False"),
        ("1j", 1, "neither a number"),
        ("(z := 3)", 2, "an assignment is not part"),
        ("~n", 1, "~ is not an operator"),
        ("1 << n", 1, "use + - * / // % **"),
        ("a is b", 1, "use < <= > >= == or != to compare"),
        ("a and ok", 1, "`and` takes conditions, this is a number"),
        ("not a", 5, "`not` takes conditions"),
        ("1 if a else 2", 6, "`if` takes conditions"),
        ("ok if ok else 2", 1, "one side"),
        ("sqrt()", 1, "sqrt takes 1, not 0 arguments"),
        ("atan2(a)", 1, "atan2 takes 2, not 1"),
        ("sum(*a)", 1, "plain arguments only"),
        ("round(a, ndigits=2)", 1, "plain arguments only"),
        ("all()", 1, "all() runs over all inputs, and one of them is of type float"),
        ("99999999999999999999", 1, "at most 63 bits"),
        ("1e999", 1, "too large"),
        ("9 ** 9 ** 9 ** 9", 6, "has no result: more than 64 bits"),
        ("a + 1 / 0", 5, "1 / 0 has no result: division by zero"),
        ("exp(1000)", 1, "has no result"),
    ],
)
def test_what_is_not_of_the_language_is_refused_with_its_place(text: str, where: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, NAMES, TYPES)
    assert str(caught.value).startswith(f"column {where}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a" + " + a" * 600,
        "(" * 250 + "a" + ")" * 250,
        "-" * 2000 + "a",
        "a" + "**a" * 900,
        "a " * 5000,
        "not " * 900 + "ok",
        "\0",
        "sum(" * 90 + "a" + ")" * 90,
        "a if ok else " * 300 + "b",
    ],
)
def test_a_text_made_to_exhaust_is_refused_at_once(text: str) -> None:
    before = time.process_time()
    with pytest.raises(ExpressionError):
        parse_expression(text, NAMES, TYPES)
    assert time.process_time() - before < 1


def test_aggregates_over_many_inputs_count_as_many_steps() -> None:
    types = ["float"] * 10_000
    assert parse_expression("sum() + mean()", {}, types).steps == 3 + 20_000
    with pytest.raises(ExpressionError, match=f"more than {STEPS} steps over 10000 inputs"):
        parse_expression(" + ".join(["sum()"] * 20), {}, types)


def test_an_input_of_a_user_type_is_refused_where_it_is_used() -> None:
    with pytest.raises(ExpressionError, match="column 5: s is of type struct:Usage:1f"):
        parse_expression("1 + s", {"s": 0}, ["struct:Usage:1f"])


def test_inputs_have_their_own_names_places_and_letters() -> None:
    assert names_of(["power", "load/kW", "b", "power"]) == {
        "load_kW": 1, "b": 2, "x1": 0, "x2": 1, "x3": 2, "x4": 3, "a": 0, "c": 2, "d": 3,
    }  # fmt: skip


# --- laws: any expression that is accepted ends within its steps and is what Python would say

number = st.one_of(
    st.integers(0, 1 << 62).map(str), st.floats(0, 1e300).map(repr), st.sampled_from(["a", "b", "n", "pi", "sum()"])
)
FUNCTION = st.sampled_from(["abs", "sqrt", "floor", "ceil", "round", "exp", "log", "sin"])
AGGREGATE = st.sampled_from(["sum", "mean", "min", "max", "range", "count"])


def conditions(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.one_of(
        st.sampled_from(["ok", "True", "False"]),
        st.tuples(numbers, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers).map(
            lambda t: f"({' '.join(t)})"
        ),
    )
    return st.one_of(
        plain,
        st.tuples(plain, st.sampled_from(["and", "or"]), plain).map(lambda t: f"({' '.join(t)})"),
        plain.map(lambda text: f"(not {text})"),
    )


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "**"])
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda text: f"(-{text})"),
        st.tuples(FUNCTION, inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(AGGREGATE, st.lists(inner, min_size=1, max_size=4)).map(lambda t: f"{t[0]}({', '.join(t[1])})"),
        st.tuples(inner, conditions(inner), inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    )


EXPRESSION = st.recursive(number, larger, max_leaves=30)
VALUES = st.tuples(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-100, 100),
    st.integers(SMALLEST, LARGEST),
    st.booleans(),
)


class _Counted:
    """Values that count how often they are read."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values, self.reads = values, 0

    def __getitem__(self, at: int) -> Any:
        self.reads += 1
        return self.values[at]


@settings(max_examples=400, deadline=None)
@given(EXPRESSION, VALUES)
def test_whatever_is_accepted_equals_python_and_stays_within_its_steps(text: str, values: tuple[Any, ...]) -> None:
    try:
        expression = parse_expression(text, NAMES, TYPES)
    except ExpressionError as refused:
        reason = str(refused)
        expression = None
    if expression is None:
        assert "has no result" in reason or "63 bits" in reason
        return
    counted = _Counted(values)
    value = expression(counted)  # type: ignore[arg-type]
    assert expression.steps <= NODES * 5
    assert counted.reads <= expression.steps
    if value is None:
        return
    assert (
        type(value).__name__ == expression.type
        or (expression.type == "float" and type(value) is int)
        or (expression.type == "int" and type(value) is bool)
    )
    assert not isinstance(value, int) or SMALLEST <= value <= LARGEST
    assert value == _python(text, values)


def _python(text: str, values: tuple[Any, ...]) -> Any:
    """Python's own result, with the functions of the language."""

    def called(name: str) -> Any:
        signature = FUNCTIONS[name]
        return lambda *given: signature.apply(list(given or values) if signature.aggregate else given[0])

    space = {name: called(name) for name in FUNCTIONS}
    return eval(text, {"__builtins__": {}, "pi": math.pi, **space, **dict(zip(NAMES, values, strict=True))})


@settings(max_examples=300, deadline=None)
@given(st.integers(SMALLEST, LARGEST), st.integers(SMALLEST, LARGEST))
def test_a_power_is_never_larger_than_a_hundred_bits_on_its_way(base: int, exponent: int) -> None:
    try:
        value = power(base, exponent)
    except ArithmeticError:
        return
    assert isinstance(value, float) or value.bit_length() <= 128


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert parse_expression(text, NAMES, TYPES).steps <= STEPS


@pytest.mark.parametrize("text", ["a" + ".b" * 1500 + "()", "a" + "[0]" * 1000, "a" + "()" * 1500])
def test_what_is_nested_deeper_than_can_be_written_down_is_refused_too(text: str) -> None:
    with pytest.raises(ExpressionError, match="column 1: "):
        parse_expression(text, {"a": 0}, ["float"])
