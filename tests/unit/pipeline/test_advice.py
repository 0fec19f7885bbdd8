"""Advice with its evidence, and none where there is too little of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chappe.pipeline.advice import Breaches, Enough, changes, condensation, flooding, modes
from chappe.pipeline.brokerlog import history
from tests.support.brokerlogs import Row, grant, path, row, subscribe

S = 1_000_000_000
DAY = 86_400 * S
NOW = 1_800_000_000 * S
NONE = Breaches([], [])


def taking(entities: list[str], variables: list[str], every: int = 1, first: int = 0) -> list[Row]:
    """Each of the entities takes each variable from edge `e` over two hops."""
    rows: list[Row] = []
    at = NOW - (7200 + first) * S
    for number, variable in enumerate(variables, first):
        for entity in entities:
            at += 10
            granted = [grant(every, every * S)]
            rows.append(subscribe(at, entity, variable, edge=f"e-{entity}", variable_id=number, granted=granted))
            rows += path(at + 1, number, len(rows) + 100 * first, "source", "middle", f"e-{entity}")
    return rows


@pytest.mark.spec("SJ-08")
def test_inputs_that_several_take_whole_are_to_be_condensed_where_they_meet() -> None:
    variables = [f"p/{number}" for number in range(5)]
    rows = taking(["x", "y", "z"], variables) + taking(["archive-1"], [*variables, "p/other"], first=10)
    (found,) = condensation(history(rows, NOW), NOW, Enough())
    assert found.topic == "pipeline/proposals/condensation"
    said: dict[str, Any] = json.loads(found.body)
    assert said["value"] == {"action": "condense", "inputs": variables, "interval_ms": 1000.0, "router": "source"}
    assert said["evidence"]["subscribers"] == ["x", "y", "z"]
    assert said["effect"]["values_per_s_to_subscribers"] == {"now": 15.0, "then": 3.0}
    assert said["effect"]["values_per_s_over_channels"] == {"now": 20.0, "then": 6.0}


@pytest.mark.parametrize(
    "rows",
    [
        taking(["x", "y"], ["a", "b", "c"]),  # too few subscribers
        taking(["x", "y", "z"], ["a", "b"]),  # too few inputs
        [each for each in taking(["x", "y", "z"], ["a", "b", "c"]) if each[0] != "path"],  # nobody knows where
        [(*each[:2], each[2] + 7000 * S, each[3]) for each in taking(["x", "y", "z"], ["a", "b", "c"])],  # too young
        [*taking(["x", "y", "z"], ["a", "b", "c"]), *[
            row("withdraw", name, NOW - S, edge="e", variable_id=0, reason="", entities=["z"]) for name in "abc"]],
        [],
    ],
)  # fmt: skip
def test_there_is_no_advice_without_evidence(rows: list[Row]) -> None:
    told = history(rows, NOW)
    assert list(condensation(told, NOW, Enough())) == []
    assert list(modes(told, NOW, NONE, Enough())) == []


@pytest.mark.spec("SJ-08")
def test_functions_that_compute_the_same_are_to_be_shared() -> None:
    placed = [
        row("place", router, NOW - number * S, variable_id=number, name=f"p/sum{number}", calculator="sum",
            trigger="all", inputs=["p/a", "p/b"] if number < 3 else ["p/a"])
        for number, router in enumerate(["a", "b", "c"], 1)
    ]  # fmt: skip
    (found,) = condensation(history(placed, NOW), NOW, Enough())
    assert found.value == {"action": "share", "keep": "p/sum1", "remove": ["p/sum2"]}


@pytest.mark.spec("SJ-08")
def test_what_nearly_all_take_whole_is_to_be_flooded_and_what_few_take_is_not() -> None:
    rows = taking(list("abcde"), ["p/clock"]) + taking(["a"], ["p/rare"], first=20)
    rows += taking(list("abcde"), ["p/thin"], every=4, first=30)
    rows.append(row("flood", "middle", NOW - 100 * S, variable_id=9, name="p/lonely", levels=[1] * 16))
    found = {each.subject: each for each in flooding(history(rows, NOW), NOW, Enough())}
    assert {name: each.value["action"] for name, each in found.items()} == {"p/clock": "flood", "p/lonely": "clear"}
    assert found["p/clock"].evidence == {"takes_all": 5, "subscribers": 5, "share": 1.0}
    assert list(flooding(history(taking(["a"], ["p/clock"]), NOW), NOW, Enough())) == []


@pytest.mark.spec("SJ-08")
def test_a_mode_that_is_entered_at_the_same_time_every_day_is_to_be_scheduled() -> None:
    start = NOW // DAY * DAY
    rows = [
        row("mode", "leaf", start - number * DAY + round(hour * 3600 * S) + number * 60 * S, mode=mode, took_ns=2 * S)
        for number in range(1, 6)
        for mode, hour in ((3, 23.99), (1, 7.5))
    ]
    found = {each.value["mode"]: each for each in modes(history(rows, NOW), NOW, NONE, Enough())}
    assert {mode: each.value["at_utc"] for mode, each in found.items()} == {3: "00:02", 1: "07:33"}
    assert found[3].evidence["days"] == 5
    assert list(modes(history(rows[-4:], NOW), NOW, NONE, Enough())) == []  # on two days only


@pytest.mark.spec("SJ-08")
def test_changes_are_judged_and_a_mode_that_does_better_is_proposed() -> None:
    rows = [
        subscribe(NOW - 40_000 * S, "x", "p/v"),
        row("mode", "leaf", NOW - 30_000 * S, mode=2, took_ns=4 * S, note="b was left behind"),
        row("mode", "leaf", NOW - 20_000 * S, mode=0, took_ns=S),
    ]
    told = history(rows, NOW)
    breaches = Breaches([NOW - 30_001 * S, NOW - 35_000 * S, NOW - 300 * S, NOW - 200 * S], [30, 1, 400, 500])
    first, second = changes(told.modes, breaches)
    assert (first.before, first.mode, first.took_ns, first.breaches, first.note) == (
        0,
        2,
        4 * S,
        30,
        "b was left behind",
    )
    assert (second.breaches, second.mode) == (0, 0)
    (found,) = modes(told, NOW, breaches, Enough())
    assert found.value == {"action": "change", "mode": 2}
    assert found.evidence["breaches"] == 900
    assert list(modes(told, NOW, Breaches([NOW - 300 * S], [10]), Enough())) == []
