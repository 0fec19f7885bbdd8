"""Inputs, duplicates, flooding, modes, the last value and the cost of the status table."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from chappe.engine._engine import Engine
from chappe.engine._status import StatusTable, TableError, UnknownVariableError
from chappe.errors import ChappeError
from tests.support.decisions import decide, engine_with

ALL = 0xFFFF
SECOND = 10**9
IN, A, B, C, D = 0, 1, 2, 3, 4


def record(variable: int, created: int, options: int = 0, value: int = 0) -> bytes:
    return struct.pack(">qIB3xq", created, variable, options, value) + b"\x01" * (24 * options)


def verdict(engine: Engine, port: int, created: int, variable: int = 1, wall_ns: int = 0) -> str:
    return decide(engine, port, record(variable, created), wall_ns)[0]


@pytest.fixture(params=["close", "sparse"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_with(5, request.param)


@pytest.fixture
def table(engine: Engine) -> StatusTable:
    return engine.status


@pytest.fixture
def routed(table: StatusTable) -> StatusTable:
    """Variable 1, every 10 ns from IN; A wants every event, B every second."""
    table.set_variable(1, 1, 10, [IN])
    table.setup_path(1, A, 1, [10], [3], ALL)
    table.setup_path(1, B, 2, [20], [5], ALL)
    return table


@pytest.mark.spec("GS-069")
def test_what_the_table_does_not_know_or_permit_is_dropped(engine: Engine, routed: StatusTable) -> None:
    routed.set_variable(2, 1, 10, [IN])
    routed.setup_path(2, A, 1, [10], [3], 0b10)
    assert verdict(engine, IN, 0, variable=3) == "UNKNOWN"
    assert verdict(engine, IN, 0, variable=1 << 31) == "UNKNOWN"
    assert verdict(engine, IN, 0, variable=2) == "NOT_IN_MODE"
    assert verdict(engine, A, 0, variable=1) == "NOT_PERMITTED"
    routed.slot = 1
    assert verdict(engine, IN, 0, variable=2) == "FORWARD"


def test_inputs_come_and_go(engine: Engine, routed: StatusTable) -> None:
    routed.add_input(1, C)
    assert routed.describe(1)["inputs"] == [IN, C]
    assert verdict(engine, C, 0) == "FORWARD"
    assert routed.remove_input(1, IN)
    assert not routed.remove_input(1, IN)
    assert verdict(engine, IN, 10) == "NOT_PERMITTED"
    assert verdict(engine, C, 10) == "FORWARD"


@pytest.mark.spec("GS-102")
def test_the_first_of_redundant_copies_passes_in_any_order(engine: Engine, routed: StatusTable) -> None:
    assert [verdict(engine, IN, 0) for _ in range(2)] == ["FORWARD", "FORWARD"]  # one input: nothing to compare
    routed.add_input(1, C)
    stamps = [50, 10, 40, 20, 30]
    assert [verdict(engine, C, stamp) for stamp in stamps] == ["FORWARD"] * 5
    assert [verdict(engine, IN, stamp) for stamp in stamps] == ["DUPLICATE"] * 5


def test_a_full_window_refuses_what_is_older_than_all_in_it(engine: Engine, routed: StatusTable) -> None:
    routed.add_input(1, C)
    for stamp in range(100, 100 + 64 * 2, 2):
        assert verdict(engine, IN, stamp) == "FORWARD"
    assert verdict(engine, C, 99) == "STALE"
    assert verdict(engine, C, 101) == "FORWARD"  # late, not old: it takes the place of stamp 100
    assert verdict(engine, C, 101) == "DUPLICATE"
    assert verdict(engine, C, 100) == "STALE"
    routed.remove_input(1, IN)
    routed.add_input(1, IN)  # begins anew, as after forged stamps
    assert verdict(engine, C, 100) == "FORWARD"


@pytest.mark.spec("GS-102", "GS-103")
def test_a_flood_reaches_its_scope_as_alerts_and_routes_above_it(engine: Engine, routed: StatusTable) -> None:
    for port, level in ((IN, 1), (A, 1), (C, 2), (D, 3)):
        routed.set_level(port, level)
    routed.setup_path(1, D, 3, [20], [1], ALL)
    routed.set_flooding(1, 2, 0b1)
    assert decide(engine, IN, record(1, 0), 0) == ("FLOODED", [(A, 0), (B, 3), (C, 0), (D, 1)], [])
    assert decide(engine, IN, record(1, 10), 0) == ("FLOODED", [(A, 0), (C, 0)], [(B, 3), (D, 1)])
    # Copies come back over every port of the scope; only the first counts, whatever its way.
    assert [verdict(engine, port, 10) for port in (IN, A, C, D)] == ["DUPLICATE"] * 4
    assert verdict(engine, C, 30) == "FLOODED"
    assert verdict(engine, B, 30) == "NOT_PERMITTED"
    routed.slot = 1
    assert verdict(engine, C, 40) == "NOT_PERMITTED"
    assert verdict(engine, IN, 40) == "FORWARD"
    routed.slot = 0
    routed.clear_flooding(1, 0b1)
    assert verdict(engine, IN, 40) == "FORWARD"


@pytest.mark.spec("GS-103")
def test_a_variable_without_paths_can_be_flooded(engine: Engine, table: StatusTable) -> None:
    table.set_variable(1, 1, 10, [])
    table.set_level(A, 1)
    table.set_level(B, 1)
    table.set_level(C, 4)
    table.set_flooding(1, 3, ALL)
    assert decide(engine, B, record(1, 7), 0) == ("FLOODED", [(A, 0)], [])
    assert decide(engine, C, record(1, 8), 0) == ("FLOODED", [(A, 0), (B, 0)], [])
    table.set_level(A, 0)
    assert decide(engine, C, record(1, 17), 0) == ("FLOODED", [(B, 0)], [])
    assert verdict(engine, A, 27) == "NOT_PERMITTED"


@pytest.mark.spec("GS-106")
def test_a_stamp_from_the_far_future_silences_nothing(engine: Engine, routed: StatusTable) -> None:
    routed.set_level(A, 1)
    routed.set_flooding(1, 1, ALL)
    wall = 1_700_000_000 * SECOND
    for forged in (2**63 - 1, wall + 2 * SECOND + 1):
        assert verdict(engine, IN, forged, wall_ns=wall) == "FUTURE"
    assert verdict(engine, IN, wall + 2 * SECOND, wall_ns=wall) == "FLOODED"
    assert verdict(engine, IN, wall, wall_ns=wall) == "FLOODED"
    routed.future_tolerance_ns = 5
    assert verdict(engine, IN, wall + 6, wall_ns=wall) == "FUTURE"
    assert verdict(engine, IN, wall + 5, wall_ns=wall) == "FLOODED"
    assert verdict(engine, IN, -(2**63), wall_ns=2**63 - 1) == "FLOODED"
    assert verdict(engine, IN, 2**63 - 1, wall_ns=-(2**63)) == "FUTURE"


@pytest.mark.spec("GS-110")
def test_each_of_sixteen_modes_has_its_own_terms(engine: Engine, table: StatusTable) -> None:
    table.set_variable(1, 1, 10, [IN])
    intervals = [10 * (mode + 1) for mode in range(16)]
    mask = 0b1010_1010_1010_1011
    assert table.setup_path(1, A, 1, intervals, [mode % 7 for mode in range(16)], mask & ~1) == 2
    table.setup_path(1, B, 2, [10], [3], 0b1)
    for mode in range(16):
        table.slot = mode
        answer = decide(engine, IN, record(1, 10 * (mode + 1)), 0)
        if mode == 0:
            assert answer == ("FORWARD", [(B, 2)], [])
        elif mask >> mode & 1:
            assert answer == ("FORWARD", [(A, (mode % 7 + 1) // 2)], [])
            assert decide(engine, IN, record(1, 10 * (mode + 2)), 0)[1] == []
        else:
            assert answer[0] == "NOT_IN_MODE"


@pytest.mark.spec("GS-112")
def test_the_temporary_table_holds_paths_of_both_modes_on_old_terms(engine: Engine, table: StatusTable) -> None:
    for variable in (1, 2, 5000):
        table.set_variable(variable, 1, 10, [IN])
        table.setup_path(variable, A, 1, [20, 40] + [10] * 14, [3, 1] + [3] * 14, 0b11)
        table.setup_path(variable, B, 2, [10], [3], 0b01)
        table.setup_path(variable, C, 3, [10], [3], 0b10)
    table.set_variable(3, 1, 10, [IN])
    table.setup_path(3, A, 1, [10], [3], 0b01)
    table.set_variable(4, 1, 10, [IN])
    table.set_flooding(4, 2, 0b01)
    table.set_flooding(4, 1, 0b10)
    table.set_variable(6, 1, 10, [IN])
    table.set_flooding(6, 2, 0b01)
    slices, start = 0, 0
    while start >= 0:
        start = table.prepare(0, 1, start, 2)
        slices += 1
        assert verdict(engine, IN, 0, variable=3) == "FORWARD"  # the old mode runs on meanwhile
    assert slices == 3
    table.slot = 16
    for variable in (1, 2, 5000):
        assert decide(engine, IN, record(variable, 20), 0) == ("FORWARD", [(A, 2)], [])
        assert decide(engine, IN, record(variable, 10), 0) == ("FORWARD", [], [(A, 2)])
    assert verdict(engine, IN, 0, variable=3) == "NOT_IN_MODE"
    assert table.describe(4)["flooding"] == {0: 2, 1: 1, 16: 2}
    assert verdict(engine, IN, 0, variable=6) == "NOT_IN_MODE"
    # What is set up during the change follows the same rule.
    table.setup_path(3, B, 9, [30], [3], 0b11)
    assert decide(engine, IN, record(3, 30), 0) == ("FORWARD", [(B, 2)], [])
    with pytest.raises(TableError, match="in use"):
        table.prepare(2, 3, 0, 10)
    table.slot = 1
    assert decide(engine, IN, record(1, 40), 0) == ("FORWARD", [(A, 1), (C, 2)], [])


def test_the_newest_record_is_kept_at_the_edge(engine: Engine, routed: StatusTable) -> None:
    assert routed.last(1) is None
    first, newer = record(1, 100, options=2), record(1, 110)
    decide(engine, IN, first, 0)
    assert routed.last(1) == first
    decide(engine, IN, newer, 0)
    decide(engine, IN, record(1, 105, options=1), 0)
    assert routed.last(1) == newer
    decide(engine, C, record(1, 500), 0)
    assert routed.last(1) == newer
    assert routed.last(77) is None
    routed.set_variable(2, 1, 10, [IN])
    assert verdict(engine, IN, 5, variable=2) == "FORWARD"
    assert routed.last(2) == record(2, 5)  # the first watcher sees the present value
    inner = engine_with(1, edge=False)
    inner.status.set_variable(1, 1, 10, [IN])
    decide(inner, IN, record(1, 0), 0)
    assert inner.status.last(1) is None


def test_removing_a_port_in_slices(table: StatusTable) -> None:
    for variable in (1, 2, 3, 1 << 22, 2**32 - 1):
        table.set_variable(variable, 1, 10, [IN, A])
        table.setup_path(variable, A, 1, [10], [3], ALL)
        table.setup_path(variable, B, 2, [10], [3], ALL)
    table.set_level(A, 1)
    assert table.remove_port(A, 0, 2) == 3
    assert table.remove_port(A, 3, 100) == -1
    assert table.variables(0, 100) == [1, 2, 3, 1 << 22, 2**32 - 1]
    assert table.variables(2, 2) == [2, 3]
    for variable in table.variables(0, 100):
        described = table.describe(variable)
        assert (described["inputs"], described["paths"], list(described["modes"][0])) == ([IN], {2: B}, [B])
        assert described["windowed"] is False


def test_everything_is_given_back(routed: StatusTable) -> None:
    fresh = StatusTable(edge=True).memory_bytes()
    before = routed.memory_bytes()
    for variable in range(2, 3000):
        routed.set_variable(variable, variable, 10**6, [IN, A, B + variable])
        routed.setup_path(variable, A, 1, [variable * 10**6], [3], ALL)
        routed.set_flooding(variable, 1, 0b100)
    assert routed.sets() > 100
    for variable in routed.variables(0, 10**6):
        routed.drop_variable(variable)
    assert routed.entries() == routed.sets() == 0
    assert before > fresh
    kept = routed.memory_bytes()
    for variable in range(2, 3000):
        routed.set_variable(variable, variable, 10**6, [IN, A, B + variable])
        routed.drop_variable(variable)
    assert routed.memory_bytes() == kept


@pytest.mark.parametrize("layout", ["close", "sparse"])
def test_no_allocator_call_in_steady_state(layout: str) -> None:
    engine = engine_with(8, layout)
    table = engine.status
    for variable in range(1, 200):
        table.set_variable(variable, 1, 10, [IN, A])
        for port in range(8):
            table.setup_path(variable, port, port, [10 * (1, 2, 3, 4, 6, 10, 5, 7)[port]], [3], ALL)
    table.set_level(A, 1)
    table.set_flooding(7, 1, ALL)

    def play(start: int) -> None:
        for created in range(start, start + 4200, 10):
            for variable in (1, 2, 7, 199):
                decide(engine, IN, record(variable, created, options=1), created)

    play(0)
    before = engine.allocations
    play(4200)
    assert before > 0
    assert engine.allocations == before


def test_a_table_is_small() -> None:
    empty = StatusTable(edge=True)
    assert empty.memory_bytes() < 16 * 1024
    table = StatusTable(edge=True)
    count = 50_000
    for variable in range(1, count + 1):
        table.set_variable(variable, 30, SECOND, [IN])
        table.setup_path(variable, A + variable % 7, 1, [SECOND // 3], [3], ALL)
    assert table.sets() == 7
    assert table.memory_bytes() / count <= 64 + 40


BAD: list[tuple[Callable[[StatusTable], object], str]] = [
    (lambda t: t.set_variable(0, 1, 10), "variable 0"),
    (lambda t: t.set_variable(2**32, 1, 10), "2\\*\\*32"),
    (lambda t: t.set_variable(5, 1, 0), "den > 0"),
    (lambda t: t.set_variable(5, -1, 10), "num >= 0"),
    (lambda t: t.set_variable(5, 11, 10), "at most 1/1"),
    (lambda t: t.set_variable(5, 1, 10, [-1]), "port -1"),
    (lambda t: t.add_input(1, 1 << 24), "port"),
    (lambda t: t.setup_path(1, A, 9, [10], [3], 0), "mode mask 0"),
    (lambda t: t.setup_path(1, A, 9, [10], [3], 1 << 16), "mode mask"),
    (lambda t: t.setup_path(1, A, 9, [-1], [3], ALL), "interval -1"),
    (lambda t: t.setup_path(1, A, 9, [10], [7], ALL), "priority 7"),
    (lambda t: t.setup_path(1, A, 9, [10, 20], [3], ALL), "2 intervals"),
    (lambda t: t.setup_path(1, A, 9, [10], [], ALL), "0 priorities"),
    (lambda t: t.setup_path(1, A, 2**32, [10], [3], ALL), "32 bits"),
    (lambda t: t.setup_path(1, A, 9, [10 * (2**31 + 1)], [3], ALL), "2\\*\\*31 periods"),
    (lambda t: t.setup_path(1, A, 9, [10] * 15 + [2**62], [3], ALL), "2\\*\\*31 periods"),
    (lambda t: t.set_flooding(1, 0, ALL), "level 0"),
    (lambda t: t.set_flooding(1, 1, 0), "mode mask 0"),
    (lambda t: t.set_level(A, 256), "level 256"),
    (lambda t: t.prepare(0, 16, 0, 10), "mode 16"),
    (lambda t: t.prepare(0, 1, 0, 0), "at least 1"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_a_bad_change_is_refused_and_changes_nothing(
    routed: StatusTable, change: Callable[[StatusTable], object], text: str
) -> None:
    before = routed.describe(1), routed.entries(), routed.sets()
    with pytest.raises(TableError, match=text) as caught:
        change(routed)
    assert isinstance(caught.value, ChappeError)
    assert (routed.describe(1), routed.entries(), routed.sets()) == before


def test_a_rate_that_a_path_cannot_live_with_is_refused(table: StatusTable) -> None:
    table.set_variable(1, 1, 10**9, [IN])
    table.setup_path(1, A, 1, [2**40], [3], ALL)
    with pytest.raises(TableError, match="shorter interval"):
        table.set_variable(1, 1, 1)
    assert table.describe(1)["rate"] == (1, 10**9)


def test_an_unknown_variable_is_named(table: StatusTable) -> None:
    for change in (
        lambda: table.setup_path(8, A, 1, [10], [3], ALL),
        lambda: table.terminate_path(8, 1),
        lambda: table.set_flooding(8, 1, 1),
        lambda: table.drop_variable(8),
        lambda: table.describe(8),
        lambda: table.add_input(-1, A),
    ):
        with pytest.raises(UnknownVariableError, match=r"^variable (8|-1) is not in the status table; enter it with"):
            change()


def test_a_layout_must_exist() -> None:
    with pytest.raises(ValueError, match="'close' or 'sparse'"):
        StatusTable(layout="dense")
