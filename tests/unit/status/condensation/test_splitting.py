"""Functions over several clouds in pieces: what is computed where, when it pays, and that nothing else comes out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.status.condensation.checks import check, output_of
from chappe.status.condensation.functions import Condensation
from chappe.status.condensation.splitting import home_of, split
from chappe.wire.base import Variable
from chappe.wire.management import Function, Input

MS = 1_000_000


def variables(*clouds: str, kind: str = "float", ms: Sequence[int] = ()) -> tuple[list[Variable], list[str]]:
    """One input for each, named a1, a2 … by its cloud."""
    counts: dict[str, int] = {}
    found = []
    for at, cloud in enumerate(clouds):
        counts[cloud] = counts.get(cloud, 0) + 1
        period = ms[at] if ms else 10
        found.append(Variable(at + 1, cloud, f"{cloud}{counts[cloud]}", kind, 1, period * MS, 3, 0))
    return found, list(clouds)


def function(inputs: Sequence[Variable], calculator: str, **fields: Any) -> Function:
    names = tuple(Input(each.publisher, each.variable) for each in inputs)
    return Function(**{"publisher": "area", "variable": "total", "calculator": calculator, "inputs": names, **fields})


def pieces(calculator: str, *clouds: str, home: str = "n", kind: str = "float", **fields: Any) -> list[str] | None:
    """The calculators of the parts with their inputs, and of the combiner with its."""
    inputs, places = variables(*clouds, kind=kind)
    made = split(function(inputs, calculator, **fields), inputs, places, home)
    if made is None:
        return None
    return [
        f"{each.calculator} <- {' '.join(f'{asked.publisher}/{asked.variable}' for asked in each.inputs)}"
        for each in (*made.parts, made.combiner)
    ]


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize(
    ("clouds", "ms", "home"),
    [
        (("n", "s", "s"), (), "s"),
        (("s", "n"), (), "n"),  # of equal ones by name
        (("s", "n"), (10, 20), "s"),  # and before that where fewer events come from the other
        (("n", "s", "w", "w", "n"), (10, 10, 10, 10, 5), "n"),
    ],
)
def test_the_home_is_the_cloud_with_most_inputs_then_the_one_that_costs_least(
    clouds: tuple[str, ...], ms: tuple[int, ...], home: str
) -> None:
    inputs, places = variables(*clouds, ms=ms)
    assert home_of(function(inputs, "builtin:sum"), inputs, places) == home


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize(
    ("calculator", "expected"),
    [
        ("builtin:sum", ["builtin:sum <- s/s1 s/s2", "builtin:sum <- n/n1 area@s/total w/w1"]),
        ("builtin:max", ["builtin:max <- s/s1 s/s2", "builtin:max <- n/n1 area@s/total w/w1"]),
        ("builtin:mean", ["builtin:sum <- s/s1 s/s2", "expression:sum() / 4 <- n/n1 area@s/total w/w1"]),
        ("builtin:weighted:1,2,3,4",
         ["builtin:weighted:2.0,4.0 <- s/s1 s/s2", "builtin:weighted:1.0,1.0,3.0 <- n/n1 area@s/total w/w1"]),
        ("expression:n1 + s1 * s2 - w1", ["expression:s1 * s2 <- s/s1 s/s2",
                                          "expression:n1 + total - w1 <- n/n1 area@s/total w/w1"]),
        ("expression:s1 + n1 + s2 + w1", ["expression:s1 + s2 <- s/s1 s/s2",
                                          "expression:total + n1 + w1 <- area@s/total n/n1 w/w1"]),
    ],
)  # fmt: skip
def test_each_cloud_with_several_inputs_sends_one_stream(calculator: str, expected: list[str]) -> None:
    assert pieces(calculator, "n", "s", "w", "s") == expected


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize(
    ("calculator", "fields"),
    [
        ("entry:model", {}),  # nobody knows what it does
        ("builtin:range", {}),
        ("builtin:sum", {"count": 2}),  # which two of four is not known in any cloud
        ("builtin:sum", {"low": 3.0}),  # would come irregularly
        ("builtin:sum", {"trigger": "entry:mine"}),
        ("expression:n1 * s1 + w1 * s2", {}),  # nothing of it is of one cloud
        ("expression:s1 + s2", {}),  # n1 and w1 say when
    ],
)
def test_what_cannot_be_split_stays_whole(calculator: str, fields: dict[str, Any]) -> None:
    assert pieces(calculator, "n", "s", "w", "s", **fields) is None


@pytest.mark.spec("GS-139")
def test_a_function_is_split_only_if_fewer_events_cross() -> None:
    assert pieces("builtin:sum", "n", "s") is None  # one input: its own stream is as good
    slow = {"trigger": "time", "interval_ns": 1000 * MS}
    assert pieces("builtin:sum", "n", "s", **slow) == [
        "builtin:sum <- s/s1", "builtin:sum <- n/n1 area@s/total",
    ]  # fmt: skip
    assert pieces("builtin:sum", "n", "s", "s", trigger="time", interval_ns=2 * MS) is None  # faster than both inputs


@pytest.mark.spec("GS-139")
def test_several_parts_of_one_cloud_count_together() -> None:
    assert pieces("expression:max() - min()", "n", "s", "w", "s") is None  # two streams in place of two
    assert pieces("expression:max() - min()", "n", "s", "s", "s") == [
        "expression:max(s1, s2, s3) <- s/s1 s/s2 s/s3", "expression:min(s1, s2, s3) <- s/s1 s/s2 s/s3",
        "expression:max(n1, total) - min(n1, total_2) <- n/n1 area@s/total area@s/total.2",
    ]  # fmt: skip


@pytest.mark.spec("GS-139")
def test_alerts_keep_a_function_whole() -> None:
    inputs, places = variables("n", "s", "s")
    inputs[0] = Variable(1, "n", "n1", "float", 0, 1, 0, 0)
    assert split(function(inputs, "builtin:sum", trigger="alert"), inputs, places, "n") is None
    assert split(function(inputs, "builtin:sum"), inputs, places, "n") is None


CALCULATORS = (
    "builtin:sum", "builtin:min", "builtin:max", "builtin:mean", "builtin:count", "builtin:largest",
    "builtin:weighted:1,-2,0.5,3,1,4", "expression:sum()", "expression:max() - min()", "expression:mean() * 2",
    "expression:x1 + x2 * x3 + x4 - x5 + x6", "expression:(x1 + x2) / (1 + abs(x3 * x4)) + hypot(x5, x6)",
    "expression:min(x1, x2, x3) + (x4 if x5 > x6 else -x4)",
)  # fmt: skip


def run(runs: Function, inputs: Sequence[Variable], values: dict[tuple[str, str], Any], now_ns: int) -> Any:
    """What a function over its inputs publishes when all of them have come."""
    numbered = [
        Variable(at + 1, each.publisher, each.variable, each.type, each.rate_num, each.rate_den, 3, each.options)
        for at, each in enumerate(inputs)
    ]
    made = Condensation(runs, output_of(runs, numbered, 99), numbered)
    made.tick(now_ns)
    result = None
    for each in numbered:
        result = made.feed(each.variable_id, values[each.publisher, each.variable], now_ns, now_ns) or result
    result = result or made.tick(now_ns + runs.interval_ns)
    return None if result is None else result.value


@pytest.mark.spec("GS-139")
@given(
    st.lists(st.sampled_from("nsw"), min_size=6, max_size=6), st.sampled_from(CALCULATORS),
    st.sampled_from([{}, {"trigger": "time", "interval_ns": 100 * MS}]), st.sampled_from(["int", "float"]),
    st.integers(0, 2**32),
)  # fmt: skip
def test_the_pieces_compute_what_the_whole_does(
    clouds: list[str], calculator: str, trigger: dict[str, Any], kind: str, seed: int
) -> None:
    inputs, places = variables(*clouds, kind=kind)
    type = "int" if calculator == "builtin:count" else "float"
    whole = function(inputs, calculator, type=type, **trigger)
    assert check(whole, inputs) is None
    home = home_of(whole, inputs, places)
    made = split(whole, inputs, places, home)
    if made is None:
        return
    rng = random.Random(seed)
    values: dict[tuple[str, str], Any] = {(each.publisher, each.variable): rng.randint(-9, 9) for each in inputs}
    by_name = {(each.publisher, each.variable): each for each in inputs}
    for part in made.parts:
        needed = [by_name[asked.publisher, asked.variable] for asked in part.inputs]
        assert len({each.publisher for each in needed}) == 1, "a part is of one cloud"
        values[part.publisher, part.variable] = run(part, needed, values, 1000 * MS)
    assert run(made.combiner, made.inputs, values, 1000 * MS) == pytest.approx(run(whole, inputs, values, 1000 * MS))
    crossing = [each for each in made.inputs if each.publisher not in (home, f"area@{home}")]
    assert rate(crossing) < rate(each for each in inputs if each.publisher != home)


def rate(streams: Iterable[Variable]) -> Fraction:
    return sum((Fraction(each.rate_num, each.rate_den) for each in streams), Fraction(0))
