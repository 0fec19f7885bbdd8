"""Decisions of a main cell: candidates, shares, what is left out, and what is told to neighbours."""

from __future__ import annotations

import random

import pytest

from chappe.cells.adverts import CEILING
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.router import MOST_ROUTES, Router, RouterSettings
from chappe.cells.trie import Trie
from chappe.engine.routes import ParcelRoute
from chappe.wire.celladverts import Candidate, Entry

SECOND = 10**9
ME, A, B, C, D, X = (letter.encode() * 8 for letter in "mabcdx")


class Place:
    """One cell, and what others told it."""

    def __init__(self, *names: str, radius: int = 1, paths: int = 8) -> None:
        self.trie = Trie()
        self.near = Neighbourhood(ME, radius)
        self.names = set(names)
        self.router = Router(self.names, self.trie, self.near, random.Random(1), RouterSettings(paths=paths))

    def link(self, tail: bytes, **heads: float) -> None:
        self.near.set_links(tail, {head.encode() * 8: bandwidth for head, bandwidth in heads.items()})

    def hear(self, sender: bytes, name: str, cell: bytes, *candidates: tuple[bytes, float]) -> None:
        self.trie.insert(sender, Entry(name, cell, 1, tuple(Candidate(*one) for one in candidates)), 0)

    def shares(self, destination: str, now_ns: int = 0) -> dict[tuple[bytes, ...], float]:
        return {route.hops: pytest.approx(route.share) for route in self.router.routes(destination, now_ns)}


def two_ways() -> Place:
    """A and B are nearer to "x" than this cell, and told of ways beyond the neighbourhood."""
    place = Place("m")
    place.link(ME, a=100.0, b=500.0)
    place.hear(A, "w1", A)
    place.hear(B, "w2", B)
    place.hear(A, "x", X, (C, 300.0))
    place.hear(B, "x", X, (D, 200.0), (C, 100.0))
    return place


@pytest.mark.spec("BF-17")
def test_shares_are_those_of_bandwidth_limited_by_the_way_to_the_cell() -> None:
    place = two_ways()
    known = place.trie.find("x")
    assert known is not None
    assert place.router.bandwidths(known) == {A: 300.0, B: 300.0}
    assert place.router.candidates("x", 0) == {A: 100.0, B: 300.0}
    assert place.shares("x") == {(B,): 0.75, (A,): 0.25}


@pytest.mark.spec("BF-13", "BF-17")
def test_ways_through_the_own_neighbourhood_do_not_count_twice() -> None:
    place = two_ways()
    place.link(ME, a=100.0, b=500.0, c=1000.0)
    place.hear(C, "w3", C)
    place.hear(C, "x", X, (D, 50.0))
    assert place.shares("x") == {(B,): 0.8, (C,): 0.2}


@pytest.mark.spec("BF-18")
@pytest.mark.parametrize(("names", "cells"), [(["m"], {A, B}), (["m", "w15"], {B}), (["m", "w3"], set()), ([], {A, B})])
def test_candidates_are_strictly_nearer_than_every_own_name(names: list[str], cells: set[bytes]) -> None:
    place = two_ways()
    place.names.clear()
    place.names.update(names)
    assert set(place.router.candidates("x", 0)) == cells
    assert {route.hops[-1] for route in place.router.routes("x", 0)} == cells


@pytest.mark.spec("BF-18")
def test_a_cell_as_near_as_this_one_is_no_candidate() -> None:
    place = Place("b")
    place.link(ME, a=1.0)
    place.hear(A, "d", A)
    assert place.router.routes("c", 0) == []


@pytest.mark.spec("BF-01", "BF-24")
def test_a_cell_without_names_forwards_and_is_never_chosen() -> None:
    place = Place("m", radius=2)
    place.link(ME, a=10.0)
    place.link(A, b=10.0)
    place.hear(A, "x", B)
    assert place.shares("x") == {(A, B): 1.0}


@pytest.mark.spec("BF-24")
def test_secondary_cells_may_be_farther_than_this_one() -> None:
    place = Place("m", radius=2)
    place.link(ME, a=10.0)
    place.link(A, b=10.0)
    place.hear(A, "a", A)
    place.hear(A, "x", B)
    assert place.shares("x") == {(A, B): 1.0}


@pytest.mark.spec("BF-17", "BF-18")
def test_the_destination_itself_is_a_candidate_when_it_is_near() -> None:
    place = two_ways()
    place.link(ME, a=100.0, b=500.0, x=200.0)
    place.link(B, x=100.0)
    # X: its link and the way by B; B: 300 beyond the neighbourhood and 100 over its own link
    assert place.router.candidates("x", 0) == {X: 300.0, A: 100.0, B: 400.0}


@pytest.mark.spec("BF-19")
def test_an_unknown_name_is_sought_where_the_nearest_known_one_is() -> None:
    place = two_ways()
    place.hear(A, "xx", X, (C, 900.0))
    assert place.shares("x1") == place.shares("x")
    assert set(place.shares("xy")) == {(A,)}
    uses = place.trie.find("xx")
    assert uses is not None
    assert uses.uses == 1


def test_an_unknown_name_nearest_to_this_cell_has_no_way() -> None:
    place = two_ways()
    assert place.router.routes("m1", 0) == []
    assert Place("m").router.routes("x", 0) == []


@pytest.mark.spec("BF-18", "BF-24")
def test_a_cell_that_a_neighbour_lists_is_a_candidate_when_it_is_near() -> None:
    place = Place("m", radius=2)
    place.link(ME, a=10.0, b=20.0)
    place.link(A, c=100.0)
    place.link(B, c=5.0)
    place.hear(A, "w", C)
    place.hear(A, "x", X, (C, 8.0))
    assert place.router.candidates("x", 0) == {C: 8.0}
    assert place.shares("x") == {(A, C): 10 / 15, (B, C): 5 / 15}


def test_where_nobody_told_of_a_way_the_nearer_cells_are_tried() -> None:
    place = Place("m")
    place.link(ME, a=10.0, b=30.0, c=1.0)
    place.hear(A, "w1", A)
    place.hear(B, "w2", B)
    place.hear(C, "a", C)
    place.hear(A, "x", X)
    assert place.router.candidates("x", 0) == {}
    assert place.shares("x") == {(B,): 0.75, (A,): 0.25}


@pytest.mark.spec("BF-22", "BF-23")
def test_paths_are_shared_by_their_capacity() -> None:
    place = Place("m", radius=2, paths=3)
    place.link(ME, a=300.0, b=200.0, x=280.0)
    place.link(A, x=250.0, b=100.0)
    place.link(B, x=260.0, a=50.0)
    place.hear(A, "x", X)
    assert place.shares("x") == {(X,): 280 / 730, (A, X): 250 / 730, (B, X): 200 / 730}


def test_at_most_64_routes_whose_shares_are_the_whole() -> None:
    place = Place("m", radius=2)
    cells = [bytes([number]) * 8 for number in range(1, 30)]
    place.near.set_links(ME, dict.fromkeys(cells, 10.0))
    for number, cell in enumerate(cells):
        place.near.set_links(cell, dict.fromkeys(cells, 1.0))
        place.trie.insert(cell, Entry(f"w{number}", cell, 1), 0)
        place.trie.insert(cell, Entry("x", X, 1, (Candidate(X, 5.0 + number),)), 0)
    routes = place.router.routes("x", 0)
    assert len(routes) == MOST_ROUTES
    assert sum(route.share for route in routes) == pytest.approx(1)
    assert routes == sorted(routes, key=lambda route: -route.share)


def test_a_broken_path_is_left_out_for_a_time_and_longer_each_time() -> None:
    place = two_ways()
    assert place.shares("x") == {(B,): 0.75, (A,): 0.25}
    place.router.exclude("x", (B,), 0)
    assert place.shares("x", 1) == {(A,): 1.0}
    assert set(place.shares("xx", 1)) == {(A,), (B,)}  # another destination
    assert place.router.end_exclusions(29 * SECOND) == set()
    assert place.router.end_exclusions(30 * SECOND) == {"x"}
    assert place.router.end_exclusions(31 * SECOND) == set()
    assert len(place.shares("x", 30 * SECOND)) == 2
    place.router.exclude("x", (B,), 31 * SECOND)
    assert place.router.end_exclusions(90 * SECOND) == set()
    assert len(place.shares("x", 90 * SECOND)) == 1
    assert place.router.end_exclusions(91 * SECOND) == {"x"}
    now_ns = 1000 * SECOND
    place.router.end_exclusions(now_ns)
    place.router.exclude("x", (B,), now_ns)
    assert len(place.shares("x", now_ns + 30 * SECOND)) == 2  # forgotten after a quiet time


def test_a_destination_that_a_cell_has_got_has_no_broken_paths() -> None:
    place = two_ways()
    place.router.exclude("x", (B,), 0)
    place.router.exclude("xx", (B,), 0)
    place.router.readmit("x")
    assert set(place.shares("x", 1)) == {(A,), (B,)}
    assert set(place.shares("xx", 1)) == {(A,)}


def test_an_exclusion_lasts_ten_minutes_at_most() -> None:
    place = two_ways()
    for _ in range(20):
        place.router.exclude("x", (B,), 0)
    assert place.router.end_exclusions(599 * SECOND) == set()
    assert place.router.end_exclusions(600 * SECOND) == {"x"}


def test_without_any_path_left_there_is_no_way() -> None:
    place = two_ways()
    place.router.exclude("x", (A,), 0)
    place.router.exclude("x", (B,), 0)
    assert place.router.routes("x", 1) == []


@pytest.mark.spec("BF-25")
def test_a_prefix_is_approached_like_a_name() -> None:
    place = two_ways()
    assert place.shares("x*") == {(B,): 0.75, (A,): 0.25}
    assert {place.router.path_toward("x", 0) for _ in range(50)} == {(A,), (B,)}
    assert Place("m").router.path_toward("x", 0) == ()
    place.names.add("w0")
    assert place.router.routes("w*", 0) == []  # it is inside


@pytest.mark.spec("BF-12")
def test_what_is_told_of_a_name_are_the_nearer_cells_that_spoke_of_it() -> None:
    place = two_ways()
    place.hear(D, "x", X, (C, 1.0))  # no cell of the neighbourhood
    place.link(A, c=120.0)
    known = place.trie.find("x")
    assert known is not None
    assert place.router.entry(known) == Entry("x", X, 1, (Candidate(B, 300.0), Candidate(A, 120.0)))
    place.names.add("w15")
    assert place.router.entry(known).candidates == (Candidate(B, 300.0),)
    place.link(ME, a=100.0, b=500.0, x=1.0)
    assert place.router.entry(known).candidates[0] == Candidate(X, CEILING)


@pytest.mark.spec("BF-12")
def test_nobody_advertises_more_than_can_come_to_the_name_as_the_nearest_cell_says() -> None:
    place = two_ways()
    place.trie.insert(A, Entry("x", X, 1, (Candidate(C, 300.0),), 1e9), 0)
    place.trie.insert(B, Entry("x", X, 1, (Candidate(D, 200.0), Candidate(C, 100.0)), 150.0), 0)
    known = place.trie.find("x")
    assert known is not None
    assert place.router.entry(known) == Entry("x", X, 1, (Candidate(A, 150.0), Candidate(B, 150.0)), 150.0)
    place.link(A, m=40.0)
    place.link(B, m=50.0)
    assert place.router.own_entry("m", 1) == Entry("m", ME, 1, (), 90.0)


def test_a_route_is_what_the_engine_takes() -> None:
    assert two_ways().router.routes("x", 0)[0] == ParcelRoute(pytest.approx(0.75), (B,))
