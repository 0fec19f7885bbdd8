"""The parts of `chappe bench tables`: every entry of the source's tables, and what its own simulator says."""

from __future__ import annotations

import pytest

from bench import tables, tables_sim
from bench.tables_routes import UNIT_MS, judge
from bench.tables_source import FIGURE_17, INTERVALS_MS, TABLE_1, TABLES_3_TO_5, TABLES_6_TO_8, Table


@pytest.mark.spec("MR-122")
@pytest.mark.parametrize("simulated", [False, True], ids=["assigned", "simulated"])
def test_all_entries_of_tables_3_to_5(simulated: bool) -> None:
    found = judge(TABLES_3_TO_5, simulated, UNIT_MS if simulated else 1.0)
    assert len(found) == 24
    assert [text for text, right in found if not right] == []


@pytest.mark.spec("MR-123")
@pytest.mark.parametrize("table", TABLES_6_TO_8, ids=lambda table: table.name)
@pytest.mark.parametrize("simulated", [False, True], ids=["assigned", "simulated"])
def test_the_ways_of_tables_6_to_8(table: Table, simulated: bool) -> None:
    found = judge([table], simulated)
    assert len(found) >= 4
    assert [text for text, right in found if not right] == []


def test_a_wrong_entry_is_found() -> None:
    wrong = Table("wrong", FIGURE_17, hops={("1", "12"): ("2", 2.0), ("1", "21"): ("3", 2.0)})
    assert [right for _, right in judge([wrong], simulated=False)] == [False, True]


@pytest.mark.spec("MR-121")
def test_the_simulated_cost_is_flat_down_to_50_ms() -> None:
    fast, slow = tables_sim.costs((0.5, 20.0, 90.0), (50, 1000), links=60)
    for delay_ms, (median, highest) in fast.items():
        assert median == pytest.approx(slow[delay_ms][0], rel=0.05)
        assert delay_ms <= median <= highest < delay_ms + 0.6


def test_what_the_source_printed() -> None:
    assert all(len(costs) == len(INTERVALS_MS) for costs in TABLE_1.values())
    assert [tables.printed(delay_ms, 50) for delay_ms in (0.5, 20.0, 90.0)] == ["300+", "900+", "4000+"]
    assert tables.printed(20.0, 100) == "93"
