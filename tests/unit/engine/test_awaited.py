"""The first value of a variable that begins to be demanded, and copies of the newest one by another way."""

from __future__ import annotations

import struct

import pytest

from chappe.engine._engine import Engine
from chappe.wire.frames import Kind, encode_frame
from tests.support.decisions import decide, engine_with

ALL = 0xFFFF
IN, E1, E2, OTHER = 0, 1, 2, 3
PERIOD = 100


def record(variable: int, created: int) -> bytes:
    return struct.pack(">qIB3xq", created, variable, 0, 0)


def engine_of(layout: str = "close", edge: bool = True) -> Engine:
    """Two variables, each to one port at every third value and to another at every one."""
    engine = engine_with(10, layout, edge=edge)
    for variable in (1, 2):
        engine.status.set_variable(variable, 1, PERIOD, [IN])
        engine.status.setup_path(variable, E1, 1, [3 * PERIOD], [3], ALL)
        engine.status.setup_path(variable, E2, 2, [PERIOD], [3], ALL)
    return engine


def passed(engine: Engine, created: int, variable: int = 1, port: int = IN) -> list[int]:
    verdict, ports, _ = decide(engine, port, record(variable, created), created)
    return [to for to, _ in ports] if verdict == "FORWARD" else []


@pytest.mark.parametrize("layout", ["close", "sparse"])
def test_an_awaited_value_goes_to_all_ports_and_the_next_by_the_rule(layout: str) -> None:
    engine = engine_of(layout)
    assert passed(engine, PERIOD) == [E2]
    engine.status.await_value(1)
    assert engine.status.last(1) is None
    assert passed(engine, 2 * PERIOD) == [E1, E2]
    assert engine.status.last(1) == record(1, 2 * PERIOD)
    assert passed(engine, 4 * PERIOD) == [E2]
    assert passed(engine, 6 * PERIOD) == [E1, E2]


def test_awaited_values_among_others_of_one_frame_share_no_decision() -> None:
    for awaited in ((1,), (2,), (1, 2)):
        engine = engine_of()
        for variable in awaited:
            engine.status.await_value(variable)
        engine.feed(IN, encode_frame(Kind.STATUS, record(1, PERIOD) + record(2, PERIOD)))
        assert engine.port_counters(E2)["status_out"] == 2
        assert engine.port_counters(E1)["status_out"] == len(awaited)


def test_a_table_that_keeps_no_values_awaits_none() -> None:
    engine = engine_of(edge=False)
    engine.status.await_value(1)
    assert passed(engine, PERIOD) == [E2]


def test_an_older_value_than_one_of_another_life_is_the_present_one() -> None:
    engine = engine_of()
    assert passed(engine, 9 * PERIOD) == [E1, E2]
    engine.status.await_value(1)
    assert passed(engine, 5 * PERIOD) == [E1, E2]
    assert engine.status.last(1) == record(1, 5 * PERIOD)


def test_a_second_input_brings_no_copy_of_the_newest_value() -> None:
    engine = engine_of()
    assert passed(engine, 3 * PERIOD) == [E1, E2]
    engine.status.add_input(1, OTHER)
    assert passed(engine, 3 * PERIOD, port=OTHER) == []
    assert passed(engine, 4 * PERIOD, port=OTHER) == [E2]
    assert passed(engine, 4 * PERIOD) == []
    assert passed(engine, 2 * PERIOD) == [E2]  # one that is late, and was not here yet
