"""Records of cells: which one counts, who has failed, whose a name is."""

from __future__ import annotations

import pytest

from chappe.cells.directory import AHEAD_MS, Directory
from chappe.cells.names import cell_id
from chappe.wire.cells import CellRecord

ME = cell_id("me")
NOW_MS = 1_000_000


def record(address: str, sequence: int, *names: tuple[str, int], alive: bool = True) -> CellRecord:
    return CellRecord(cell_id(address), sequence, address, ("tcp://h:1",), names=names, alive=alive)


def directory(most: int = 10) -> Directory:
    return Directory(ME, most)


def test_the_newer_record_counts_and_is_passed_on_once() -> None:
    known = directory()
    assert known.insert(record("a", 5, ("x", 1)), 3, 0, NOW_MS) == "new"
    assert known.insert(record("a", 5, ("x", 1)), 2, 1, NOW_MS) == "old"
    assert known.insert(record("a", 4, ("y", 1)), 1, 1, NOW_MS) == "old"
    cell = known.get(cell_id("a"))
    assert cell is not None
    assert (cell.name, cell.hops) == ("a", 2)  # the same record by a shorter way
    assert known.insert(record("a", 6, ("y", 1)), 1, 1, NOW_MS) == "new"
    assert known.owners("x") == []
    assert known.owners("y") == [(1, cell_id("a"))]


def test_of_two_with_one_sequence_the_failed_one_counts_and_a_newer_one_undoes_it() -> None:
    known = directory()
    known.insert(record("a", 5, ("x", 1)), 1, 0, NOW_MS)
    failed = known.failed(cell_id("a"))
    assert failed is not None
    assert (failed.alive, failed.sequence, failed.names) == (False, 5, ())
    assert known.failed(cell_id("a")) is None
    assert known.insert(record("a", 5, ("x", 1)), 1, 0, NOW_MS) == "old"
    assert known.owners("x") == []
    assert known.insert(record("a", 6, ("x", 1)), 1, 0, NOW_MS) == "new"
    assert known.insert(record("a", 6, alive=False), 1, 0, NOW_MS) == "new"
    assert cell_id("a") not in known


@pytest.mark.parametrize(
    "wrong",
    [
        CellRecord(b"12345678", 1, "a"),
        record("a", NOW_MS + AHEAD_MS + 1),
        record("a", 1, ("with*", 1)),
        record("a", 1, ("twice", 1), ("twice", 2)),
        record("a", 1, ("é" * 200, 1)),
    ],
)
def test_a_record_that_no_cell_would_make_is_invalid(wrong: CellRecord) -> None:
    known = directory()
    assert known.insert(wrong, 1, 0, NOW_MS) == "invalid"
    assert len(known) == 0


def test_the_own_record_and_one_of_another_address_with_a_known_id_are_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = directory()
    assert known.insert(record("me", 9), 1, 0, NOW_MS) == "self"
    known.insert(record("a", 1), 1, 0, NOW_MS)
    monkeypatch.setattr("chappe.cells.directory.cell_id", lambda address: cell_id("a"))
    assert known.insert(CellRecord(cell_id("a"), 2, "b"), 1, 0, NOW_MS) == "collision"


def test_of_two_owners_the_later_one_is_first_then_the_smaller_id() -> None:
    known = directory()
    known.insert(record("a", 1, ("x", 5)), 1, 0, NOW_MS)
    known.insert(record("b", 1, ("x", 7)), 1, 0, NOW_MS)
    known.insert(record("c", 1, ("x", 5)), 1, 0, NOW_MS)
    rest = sorted([cell_id("a"), cell_id("c")])
    assert known.owners("x") == [(7, cell_id("b")), (5, rest[0]), (5, rest[1])]


def test_it_is_bounded_and_forgets_who_is_silent() -> None:
    known = directory(most=3)
    for at in range(5):
        known.insert(record(f"a{at}", 1), 1, at, NOW_MS)
    assert len(known) == 3
    assert known.full == 2
    assert [cell.name for cell in known.expire(2)] == ["a0", "a1"]
    assert known.insert(record("a4", 1), 1, 9, NOW_MS) == "new"


def test_names_are_bounded_together() -> None:
    known = directory(most=3)
    many = [(f"x{at}", 1) for at in range(12)]
    assert known.insert(record("a", 1, *many[:6]), 1, 0, NOW_MS) == "new"
    assert known.insert(record("b", 1, *many[:7]), 1, 0, NOW_MS) == "old"
    assert known.insert(record("b", 1, *many[:6]), 1, 0, NOW_MS) == "new"
    assert known.insert(record("a", 2, *many[:7]), 1, 0, NOW_MS) == "old"
    assert known.insert(record("a", 2), 1, 0, NOW_MS) == "new"
    assert known.insert(record("b", 2, *many), 1, 0, NOW_MS) == "new"
