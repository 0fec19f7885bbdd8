"""What a cell tells at once, what waits for its turn, and what it stops telling."""

from __future__ import annotations

import random

import pytest

from chappe.cells.adverts import Difference
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.own_advert import AT_ONCE, OwnAdvert
from chappe.cells.router import Router
from chappe.cells.trie import Trie
from chappe.wire.celladverts import Candidate, Entry
from tests.support.overlays import updated

ME, A, B, X = (letter.encode() * 8 for letter in "mabx")


class Teller:
    def __init__(self) -> None:
        self.names = {"m"}
        self.trie = Trie()
        self.near = Neighbourhood(ME, 1)
        self.near.set_links(ME, {A: 1e9, B: 1e9})
        self.advert = OwnAdvert(Router(self.names, self.trie, self.near, random.Random(1)))
        self.hear(A, "w1", A)
        self.hear(B, "w2", B)

    def hear(self, sender: bytes, name: str, cell: bytes, *candidates: tuple[bytes, float], stamp: int = 1) -> None:
        self.trie.insert(sender, Entry(name, cell, stamp, tuple(Candidate(*one) for one in candidates)), 0)

    def leave(self, sender: bytes) -> None:
        for name in list(self.trie):
            self.trie.remove(sender, name)


@pytest.mark.spec("BF-04", "BF-12")
def test_names_are_told_when_they_come_and_when_they_go() -> None:
    teller = Teller()
    assert {entry.name for entry in updated(teller.advert, 1).changed} == {"m", "w1", "w2"}
    assert updated(teller.advert, 1) == Difference()
    teller.names.add("m2")
    assert updated(teller.advert, 1) == ((Entry("m2", ME, 1),), ())
    teller.names.remove("m")
    teller.leave(B)
    difference = updated(teller.advert, 1)
    assert set(difference.removed) == {"m", "w2"}
    assert set(teller.advert.entries) == {"m2", "w1"}


def test_own_names_are_told_again_with_a_new_stamp() -> None:
    teller = Teller()
    updated(teller.advert, 1)
    assert updated(teller.advert, 2) == ((Entry("m", ME, 2),), ())


@pytest.mark.spec("BF-12")
def test_names_without_a_candidate_are_told_at_once_and_other_news_in_turn() -> None:
    teller, many = Teller(), 8 * AT_ONCE
    for number in range(many):
        teller.hear(A, f"x{number:04}", X, (X, 100.0))
        teller.hear(B, f"x{number:04}", X, (X, 100.0))
    updated(teller.advert, 1)
    for number in range(many):
        teller.hear(A, f"x{number:04}", X, (X, 50.0))
    turns = [len(updated(teller.advert, 1).changed) for _ in range(many // AT_ONCE + 1)]
    assert sum(turns) == many
    assert max(turns) <= AT_ONCE
    teller.near.set_links(ME, {A: 1e9})
    teller.leave(B)
    assert len(updated(teller.advert, 1).changed) <= AT_ONCE
    teller.near.set_links(ME, {})
    teller.leave(A)
    assert len(updated(teller.advert, 1).removed) >= many


def test_a_cell_that_comes_near_is_told_of_without_a_word_from_anybody() -> None:
    teller = Teller()
    teller.hear(A, "x", X)
    updated(teller.advert, 1)
    assert teller.advert.entries["x"].candidates == ()
    teller.near.set_links(ME, {A: 1e9, B: 1e9, X: 1e9})
    updated(teller.advert, 1)
    assert [one.cell for one in teller.advert.entries["x"].candidates] == [X]
