"""What brokers have allocated, from their log, is what admission reserves for the same subscriptions."""

from __future__ import annotations

import json

import pytest

from chappe.pipeline.allocated import allocations
from chappe.pipeline.brokerlog import history
from tests.support.brokerlogs import Row, row, subscribe

S = 1_000_000_000


def laid(at: int, router: str, source: str, number: int, every: list[int], modes: int = 0xFFFF) -> Row:
    return "path", router, at, json.dumps({"paths": [
        {"variable_id": 1, "name": "p/v", "path": number, "source": source, "target": "", "modes": modes,
         "intervals_ns": [each * S // 30 for each in every], "priorities": [3]}]})  # fmt: skip


@pytest.mark.spec("SJ-08")
def test_the_load_of_a_channel_is_the_exact_rate_of_its_intervals_in_the_mode_in_force() -> None:
    told = history(
        [
            row("publish", "p/v", 1 * S, entity="x", edge="a", variable_id=1, rate_num=30, rate_den=S),
            laid(2 * S, "b", "a", 1, [2]),
            laid(3 * S, "b", "a", 2, [3]),
            laid(4 * S, "b", "a", 3, [1] * 8 + [6] * 8, modes=1 << 9),
            row("mode", "leaf", 6 * S, mode=9, took_ns=0),
            row("path_removed", "b", 8 * S, paths=[{"variable_id": 1, "path": 1}]),
            row("unpublish", "p/v", 9 * S, entity="x", edge="a", variable_id=1),
        ],
        10 * S,
    )
    found = {(each.resource, each.from_ns // S, each.to_ns // S): each.per_s for each in allocations(told)}
    assert found == {
        ("router/a", 1, 9): 30.0,
        ("channel/a/b", 2, 3): 15.0,
        ("channel/a/b", 3, 8): 20.0,  # one of 2, 3 and (in mode 9) 6: 1/2 + 1/3 - 1/6
        ("channel/a/b", 8, 10): 10.0,
        ("router/b", 2, 3): 15.0,
        ("router/b", 3, 8): 20.0,
        ("router/b", 8, 10): 10.0,
    }


def test_a_rate_is_known_from_subscriptions_and_unknown_variables_weigh_nothing() -> None:
    told = history([subscribe(1, "x", "p/v", rate=(30, S)), laid(2 * S, "b", "a", 1, [1])], 3 * S)
    assert {each.per_s for each in allocations(told)} == {30.0}
    assert list(allocations(history([laid(2 * S, "b", "a", 1, [1])], 3 * S))) == []
    assert list(allocations(history([], 3 * S))) == []
