"""The graph of links around a cell, and the paths of the maximum flow in it."""

from __future__ import annotations

import math

import pytest

from chappe.cells.adverts import CEILING
from chappe.cells.neighbourhood import MOST_CELLS, MOST_LINKS, UNMEASURED, CellPath, Neighbourhood
from chappe.errors import ProtocolError

S, A, B, T, FAR = (letter.encode() * 8 for letter in "sabtf")


def example(radius: int = 2) -> Neighbourhood:
    """The one of section 4.2."""
    near = Neighbourhood(S, radius)
    near.set_links(S, {A: 300.0, B: 200.0, T: 280.0})
    near.set_links(A, {T: 250.0, B: 100.0, S: 1.0})
    near.set_links(B, {T: 260.0, A: 50.0})
    return near


@pytest.mark.spec("BF-20", "BF-21", "BF-22", "BF-23")
def test_paths_of_the_example_of_the_specification() -> None:
    near = example()
    assert near.capacity(T) == 780
    assert sorted(near.paths(T, 4)) == [
        CellPath((A, B, T), 50.0), CellPath((A, T), 250.0), CellPath((B, T), 200.0), CellPath((T,), 280.0),
    ]  # fmt: skip
    assert len(near.paths(T, 2)) == 2


@pytest.mark.spec("BF-20")
def test_both_directions_of_a_link_differ() -> None:
    near = example()
    assert near.bandwidth(A, B) == 100
    assert near.bandwidth(B, A) == 50
    assert near.bandwidth(B, S) is None
    assert near.arcs[A, B] == 100


@pytest.mark.spec("BF-20")
def test_the_neighbourhood_ends_at_the_radius() -> None:
    near = Neighbourhood(S, 2)
    near.set_links(S, {A: 1.0})
    near.set_links(A, {S: 1.0, B: 1.0})
    near.set_links(B, {T: 1.0})
    near.set_links(T, {FAR: 1.0})
    assert near.hops == {A: 1, B: 2}
    assert near.members == {A, B}
    assert set(near.neighbours) == {A}
    assert (B, T) not in near.arcs
    assert near.capacity(T) == 0
    assert near.paths(T, 8) == []
    assert near.bandwidth(B, T) == 1  # known, because B states it
    assert near.bandwidth(T, FAR) is None  # too far to be known


def test_a_cell_that_is_forgotten_has_no_links() -> None:
    near = example()
    near.forget(B)
    near.forget(FAR)
    assert near.members == {A, B, T}
    assert near.capacity(T) == 530


@pytest.mark.spec("BF-11")
def test_answers_follow_the_links() -> None:
    near = example()
    assert near.capacity(T) == 780
    generation = near.generation
    assert not near.set_links(B, {T: 260.0, A: 50.0})
    assert near.generation == generation
    assert near.set_links(S, {T: 10.0})
    assert near.generation > generation
    assert near.paths(T, 8) == [CellPath((T,), 10.0)]


def test_a_link_that_is_not_measured_yet_counts_with_little() -> None:
    near = Neighbourhood(S, 1)
    near.set_links(S, {A: math.nan})
    assert near.paths(A, 8) == [CellPath((A,), UNMEASURED)]


@pytest.mark.parametrize(
    ("value", "expected"), [(math.inf, CEILING), (-5.0, 0.0), (1e13, CEILING), (0.0, 0.0), (5e-324, 5e-324)]
)
def test_bandwidths_that_cannot_be(value: float, expected: float) -> None:
    near = example()
    near.set_links(A, {T: value})
    assert near.bandwidth(A, T) == expected
    assert 480 <= near.capacity(T) <= 780


def test_who_claims_everything_gets_no_more_than_leads_to_it() -> None:
    near = Neighbourhood(S, 2)
    near.set_links(S, {A: 100.0, B: 100.0})
    near.set_links(A, {T: 1e12})
    near.set_links(B, {T: 50.0})
    assert near.capacity(T) == pytest.approx(150)


@pytest.mark.parametrize("links", [{b"": 1.0}, {b"123456789": 1.0}])
def test_ids_of_another_length_are_refused(links: dict[bytes, float]) -> None:
    near = example()
    with pytest.raises(ProtocolError, match="cell id"):
        near.set_links(A, links)
    with pytest.raises(ProtocolError, match="cell id"):
        near.set_links(b"short", {})
    assert near.capacity(T) == 780


def test_the_links_of_a_cell_and_the_cells_are_bounded() -> None:
    near = Neighbourhood(S, 2)
    with pytest.raises(ProtocolError, match="at most"):
        near.set_links(A, {number.to_bytes(8): 1.0 for number in range(MOST_LINKS + 1)})
    for number in range(MOST_CELLS):
        near.set_links(number.to_bytes(8), {})
    with pytest.raises(ProtocolError, match="more than"):
        near.set_links(A, {})


def test_a_link_to_oneself_is_none() -> None:
    near = Neighbourhood(S, 2)
    near.set_links(S, {S: 5.0, A: 1.0})
    assert near.neighbours == {A: 1.0}


@pytest.mark.spec("BF-13")
def test_what_is_not_known_is_unlimited() -> None:
    near = example(radius=1)
    assert near.cap(A, T) == 250
    assert near.cap(A, FAR) == CEILING
    assert near.output(A) == 351
    assert near.output(T) == CEILING
    assert near.output(FAR) == CEILING
