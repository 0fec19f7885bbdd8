"""Peer updates: numbers that follow from them, what is refused, what is told again."""

from __future__ import annotations

import math

import pytest

from chappe.cells.adverts import CEILING, MOST_CANDIDATES, MOST_ENTRIES, apply, checked, combined, differences, sane
from chappe.errors import ProtocolError
from chappe.wire.celladverts import Candidate, Entry

S, X, A, B, C = (letter.encode() * 8 for letter in "sxabc")


def entry(*candidates: Candidate, name: str = "x", cell: bytes = X, stamp: int = 1) -> Entry:
    return Entry(name, cell, stamp, candidates)


@pytest.mark.spec("BF-13")
@pytest.mark.parametrize(
    ("excluded", "direct", "expected"),
    [
        ((), 0.0, 100 + 30 + 7),
        ({B}, 0.0, 100 + 7),
        ({A, B, C}, 0.0, 0),
        ({A, B, C}, 40.0, 40),
        ({A}, 40.0, 40 + 30 + 7),
    ],
)
def test_bandwidth_of_a_sender_without_the_neighbourhood_of_the_receiver(
    excluded: set[bytes], direct: float, expected: float
) -> None:
    caps = {(S, A): 100.0, (S, B): 300.0}  # A is limited by the way to it, B by what it says, C by nothing known
    candidates = [Candidate(A, 500.0), Candidate(B, 30.0), Candidate(C, 7.0)]
    result = combined(S, X, candidates, excluded, lambda a, b: caps.get((a, b), CEILING), direct)
    assert result == expected


@pytest.mark.spec("BF-13")
def test_the_link_to_the_destination_counts_once() -> None:
    candidates = [Candidate(X, CEILING), Candidate(A, 5.0)]
    assert combined(S, X, candidates, (), lambda a, b: 40.0, 40.0) == 45
    assert combined(S, X, candidates, (), lambda a, b: 40.0) == 45


def test_a_cell_reaches_itself_with_all_there_is() -> None:
    assert combined(X, X, (), (), lambda a, b: 1.0) == CEILING


def test_a_sum_is_no_more_than_can_be() -> None:
    candidates = [Candidate(A, CEILING), Candidate(B, CEILING)]
    assert combined(S, X, candidates, (), lambda a, b: CEILING) == CEILING


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, 0), (math.inf, CEILING), (-math.inf, 0), (-1.0, 0), (1e300, CEILING), (1e12, CEILING), (12.5, 12.5),
    ],
)  # fmt: skip
def test_numbers_of_others_are_made_sane(value: float, expected: float) -> None:
    assert sane(value) == expected
    (result,) = checked([entry(Candidate(A, value))])
    assert result == entry(Candidate(A, expected))


@pytest.mark.spec("BF-02")
@pytest.mark.parametrize(
    "bad",
    [
        entry(name="fr.*"),
        entry(name=""),
        entry(name="x" * 256),
        entry(name="\udcff"),
        entry(cell=b"short"),
        entry(cell=b""),
        entry(Candidate(b"123456789", 1.0)),
        entry(Candidate(A, 1.0), Candidate(A, 2.0)),
        entry(*(Candidate(bytes([number]) * 8, 1.0) for number in range(MOST_CANDIDATES + 1))),
        entry(stamp=-1),
        entry(stamp=2**63),
    ],
)
def test_what_no_cell_would_send_is_refused(bad: Entry) -> None:
    with pytest.raises(ProtocolError, match="peer update"):
        checked([entry(), bad])


def test_too_many_entries_are_refused_before_they_are_read() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        checked([entry(name="*")] * (MOST_ENTRIES + 1))


@pytest.mark.spec("BF-12")
@pytest.mark.parametrize(
    ("now", "told"),
    [
        (entry(Candidate(A, 100.0), Candidate(B, 50.0)), False),
        (entry(Candidate(B, 50.0), Candidate(A, 100.0)), False),
        (entry(Candidate(A, 109.0), Candidate(B, 46.0)), False),
        (entry(Candidate(A, 112.0), Candidate(B, 50.0)), True),
        (entry(Candidate(A, 100.0), Candidate(B, 0.0)), True),
        (entry(Candidate(A, 100.0)), True),
        (entry(Candidate(A, 100.0), Candidate(C, 50.0)), True),
        (entry(Candidate(A, 100.0), Candidate(B, 50.0), stamp=2), True),
        (entry(Candidate(A, 100.0), Candidate(B, 50.0), cell=C), True),
    ],
)
def test_only_news_is_told(now: Entry, told: bool) -> None:
    sent = {"x": entry(Candidate(A, 100.0), Candidate(B, 50.0))}
    assert differences(sent, {"x": now}).changed == ((now,) if told else ())


@pytest.mark.spec("BF-12")
def test_new_and_removed_names_are_told() -> None:
    sent, now = {"x": entry(), "y": entry(name="y")}, {"y": entry(name="y"), "z": entry(name="z")}
    difference = differences(sent, now)
    assert difference == ((entry(name="z"),), ("x",))
    apply(sent, difference)
    assert sent == now
