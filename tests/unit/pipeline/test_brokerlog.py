"""A broker's log read again: spans of promises, hops and modes; what is wrong in it is ignored and counted."""

from __future__ import annotations

import random

from chappe.pipeline.brokerlog import Function, Hop, Published, history, routes
from tests.support.brokerlogs import grant, path, row, subscribe


def test_a_promise_lasts_from_its_grant_to_its_end_in_each_mode() -> None:
    two = [grant(1, 10), None, *[grant(4, 40, bound_ns=7)] * 14]
    rows = [
        subscribe(100, "desk", "p/v", granted=two, rate=(3, 100)),
        row("mode", "leaf", 200, mode=1, took_ns=10),
        row("mode", "leaf", 300, mode=5, took_ns=20, by="operator", note="b was left behind"),
        row("regrant", "p/v", 400, entity="desk", edge="e", granted=[grant(2, 20)]),
        row("unsubscribe", "p/v", 500, entity="desk", edge="e", variable_id=1),
        subscribe(600, "other", "p/v", modes=0b1),
        subscribe(650, "gone", "p/v"),
        row("withdraw", "p/v", 700, edge="e", variable_id=1, reason="over", entities=["gone"]),
        subscribe(750, "lost", "p/v"),
        row("client_left", "lost", 760, edge="e", gone=False),
        row("client_left", "lost", 800, edge="e", gone=True),
    ]
    random.Random(1).shuffle(rows)
    found = history([*rows, *rows[:3]], 900)
    spans = [(term.entity, term.from_ns, term.to_ns, term.mode, term.every, term.bound_ns) for term in found.terms]
    assert spans == [
        ("desk", 100, 190, 0, 1, 0),  # nothing is promised while a mode changes, and in mode 1
        ("desk", 300, 400, 5, 4, 7),
        ("desk", 400, 500, 5, 2, 0),
        ("gone", 650, 700, 5, 1, 0),
        ("lost", 750, 800, 5, 1, 0),
    ]
    assert (found.terms[0].rate_num, found.terms[2].rate_den, found.terms[0].interval_ns) == (3, 100, 10)
    assert [(mode.mode, mode.from_ns, mode.to_ns) for mode in found.modes] == [
        (0, 100, 190),
        (1, 200, 280),
        (5, 300, 900),
    ]
    assert (found.modes[2].took_ns, found.modes[2].by, found.modes[2].note) == (20, "operator", "b was left behind")
    assert found.unreadable == 0


def test_paths_publications_functions_and_floods_have_their_spans() -> None:
    found = history(
        [
            row("publish", "p/v", 5, entity="x", edge="a", variable_id=1, rate_num=30, rate_den=1000),
            *path(10, 1, 7, "a", "b", "c"),
            *path(20, 1, 8, "a", "d", "c"),
            row("path_removed", "b", 30, paths=[{"variable_id": 1, "path": 7}]),
            row("place", "b", 40, variable_id=9, name="p/sum", calculator="sum", trigger="all", inputs=["p/v", "p/w"]),
            row("displace", "b", 60, variable_id=9),
            row("flood", "a", 45, variable_id=1, name="p/v", levels=[1] * 16),
            row("flood", "a", 50, variable_id=1, name="p/v", levels=[0] * 16),
            row("unpublish", "p/v", 90, entity="x", edge="a", variable_id=1),
        ],
        100,
    )
    assert found.published == [Published(5, 90, "p/v", 1, "a", 30, 1000)]
    assert Hop(11, 30, "b", 1, 7, "a", "c", (0,), 0xFFFF) in found.hops
    assert found.functions == [Function(40, 60, "p/sum", "b", "sum", ("p/v", "p/w"))]
    assert [(flood.from_ns, flood.to_ns, flood.router) for flood in found.floods] == [(45, 50, "a")]
    assert set(routes(found.hops, {1: ["c", "b"], 2: ["c"]})) == {
        (1, "c", 7, ("a", "b", "c")),
        (1, "c", 8, ("a", "d", "c")),
    }


def test_what_cannot_be_read_changes_nothing_else() -> None:
    sound = subscribe(100, "desk", "p/v")
    bad = [
        ("subscribe", "p/w", 110, "{"),
        ("subscribe", "p/w", 111, "[]"),
        ("subscribe", "p/w", 112, None),
        ("subscribe", "p/w", 113, '{"entity": "x", "granted": [1, 2]}'),
        ("regrant", "p/w", 114, '{"entity": "x", "granted": [null]}'),
        ("mode", "leaf", 115, '{"mode": 99}'),
        ("path", "a", 116, '{"paths": [{"variable_id": "x"}]}'),
        ("unsubscribe", "p/w", 117, '{"entity": "x"}'),
        ("something new", "x", 118, "{}"),
        subscribe(119, "huge", "p/w", variable_id=1 << 70),
        subscribe(120, "fine", "p/w", rate=(1 << 40, 1 << 40)),
        subscribe(121, "never", "p/w", granted=[grant(0)]),
    ]
    found = history([*bad, sound], 200)
    assert [(term.entity, term.from_ns, term.to_ns) for term in found.terms] == [("desk", 100, 200)]
    assert found.unreadable == 10
    assert history([], 5).terms == []
    assert history([subscribe(100, "desk", "p/v")], 50).terms == []  # from the future
