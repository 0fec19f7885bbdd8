"""Which links a cell wants, which it gives up, and what it states of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from chappe.cells.directory import Cell, Directory
from chappe.cells.link_updates import LinkUpdates
from chappe.cells.multicast import Seen, spans, widest_tree
from chappe.cells.names import cell_id
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.passive import KEPT_NS, PassiveBandwidth
from chappe.cells.reachability import Reachability
from chappe.cells.settings import SECOND, CellSettings
from chappe.cells.topology import Topology
from chappe.cells.trie import Trie
from chappe.errors import ProtocolError
from chappe.wire.celladverts import Entry
from chappe.wire.cells import CellLinks, CellRecord

ME, A, B, C, D = (letter.encode() * 8 for letter in "mabcd")


class World:
    """Cells `c00`, `c01` … with names in that order, each as many hops away as its number says."""

    def __init__(self, count: int, **settings: int) -> None:
        self.directory, self.trie = Directory(ME, 1000), Trie()
        for at in range(count):
            address, name = f"c{at:02}", f"n.{at:02}"
            id = cell_id(address)
            self.directory.insert(CellRecord(id, 1, address, ("tcp://h:1",), names=((name, 1),)), at, 0, 10)
            self.trie.insert(ME, Entry(name, id, 1), 0)
        self.settings = CellSettings(**settings)
        self.topology = Topology(ME, self.settings, self.directory, self.trie, random.Random(3))

    def wanted(self, *names: str, possible: Callable[[str], bool] = lambda name: True) -> dict[str, str]:
        def can(cell: Cell) -> bool:
            return possible(cell.name)

        found = self.topology.wanted(names, can)
        return {cell.name: why for id, why in found.items() if (cell := self.directory.get(id)) is not None}


@pytest.mark.spec("BF-06")
def test_the_nearest_on_both_sides_of_each_name_are_wanted() -> None:
    world = World(20, neighbours=2, random=0, far=0)
    assert sorted(world.wanted("n.05x")) == ["c04", "c05", "c06", "c07"]
    assert sorted(world.wanted("n.05x", "n.15x")) == ["c04", "c05", "c06", "c07", "c14", "c15", "c16", "c17"]
    assert sorted(world.wanted("a")) == ["c00", "c01"]
    assert world.wanted() == {}


@pytest.mark.spec("BF-07")
def test_the_next_ones_take_the_place_of_those_that_cannot_be_had() -> None:
    world = World(20, neighbours=2, random=0, far=0)
    found = world.wanted("n.05x", possible=lambda name: name not in ("c04", "c06"))
    assert sorted(found) == ["c03", "c05", "c07", "c08"]


@pytest.mark.spec("BF-08", "BF-09")
def test_random_and_far_ones_stay_until_they_cannot_be_had() -> None:
    world = World(30, neighbours=1, random=2, far=1)
    first = world.wanted("n.05x")
    assert list(first.values()).count("random") == 2
    far = next(name for name, why in first.items() if why == "far")
    assert far == max(f"c{at:02}" for at in range(30) if f"c{at:02}" not in first or first[f"c{at:02}"] == "far")
    assert all(world.wanted("n.05x") == first for _ in range(5))
    second = world.wanted("n.05x", possible=lambda name: name != far)
    assert far not in second
    assert list(second.values()).count("far") == 1
    assert {name for name, why in second.items() if why == "random"} == {
        name for name, why in first.items() if why == "random"
    }


def test_links_are_bounded() -> None:
    world = World(200, neighbours=4, random=0, far=0, most_links=10)
    assert len(world.wanted(*(f"n.{at}x" for at in range(10, 99, 3)))) == 10


@pytest.mark.spec("BF-07")
def test_who_does_not_answer_is_left_alone_for_longer_each_time() -> None:
    reach = Reachability(CellSettings())
    reach.dialled(A, 0)
    assert reach.next_ns({A}) == 5 * SECOND
    assert reach.given_up({A}, 4 * SECOND) == []
    assert reach.given_up({A}, 5 * SECOND) == [A]
    assert not reach.permits(A, 34 * SECOND)
    assert reach.permits(A, 35 * SECOND)
    reach.dialled(A, 35 * SECOND)
    assert reach.given_up({A}, 40 * SECOND) == [A]
    assert not reach.permits(A, 99 * SECOND)
    assert reach.permits(A, 100 * SECOND)
    reach.connected(A)
    assert reach.permits(A, 41 * SECOND)


# --- link updates


def updates(radius: int = 2) -> tuple[LinkUpdates, Neighbourhood]:
    near = Neighbourhood(ME, radius)
    stated = LinkUpdates(ME, radius, near, 0)
    stated.own({A: 100.0, B: 100.0})
    return stated, near


@pytest.mark.spec("BF-10", "BF-11")
def test_an_update_is_passed_on_within_the_radius_and_once() -> None:
    stated, near = updates()
    changed, following = stated.receive(A, CellLinks(A, 1, 1, ((C, 50.0), (ME, 70.0))), 100)
    assert changed
    assert following == CellLinks(A, 1, 0, ((C, 50.0), (ME, 70.0)))
    assert near.hops == {A: 1, B: 1, C: 2}
    assert stated.receive(B, CellLinks(A, 1, 0, ((C, 50.0),)), 100) == (False, None)
    assert stated.receive(A, CellLinks(C, 1, 0, ((D, 50.0),)), 100)[1] is None
    assert stated.to_pass_on() == [CellLinks(A, 1, 0, ((C, 50.0), (ME, 70.0)))]


def test_an_update_that_comes_again_from_nearer_is_passed_on_again() -> None:
    stated, _ = updates(radius=3)
    assert stated.receive(B, CellLinks(C, 1, 0, ((D, 1.0),)), 100)[1] is None
    assert stated.receive(A, CellLinks(C, 1, 1, ((D, 1.0),)), 100)[1] == CellLinks(C, 1, 0, ((D, 1.0),))


def test_own_links_are_told_when_they_change_by_more_than_a_tenth() -> None:
    stated, _ = updates()
    assert stated.own({A: 105.0, B: 100.0}) is None
    told = stated.own({A: 120.0, B: 100.0})
    assert told is not None
    assert (told.sequence, told.hops_left, dict(told.links)) == (2, 1, {A: 120.0, B: 100.0})
    assert stated.own({A: 120.0, B: math.nan}) is not None
    assert stated.own({A: 120.0, B: math.nan}) is None
    assert stated.own({A: 120.0, B: math.nan}, repeat=True) is not None


def test_links_of_this_cell_are_nobody_elses_to_state() -> None:
    stated, near = updates()
    with pytest.raises(ProtocolError):
        stated.receive(A, CellLinks(ME, 1, 0, ()), 100)
    with pytest.raises(ProtocolError):
        stated.receive(A, CellLinks(A, 101, 1, ()), 100)
    stated.receive(A, CellLinks(C, 1, 0, ((ME, 1e9),)), 100)  # a link that this cell does not have
    stated.receive(A, CellLinks(A, 1, 1, ((C, 1.0),)), 100)
    assert near.bandwidth(C, ME) is None


def test_cells_beyond_the_radius_are_forgotten() -> None:
    stated, near = updates()
    stated.receive(A, CellLinks(A, 1, 1, ((C, 1.0),)), 100)
    stated.own({B: 100.0})
    for _ in range(5):
        stated.sweep()
    assert near.hops == {B: 1}
    assert stated.to_pass_on() == []


# --- bandwidth of busy links


class Ports:
    """An engine with one port."""

    def __init__(self) -> None:
        self.waiting, self.bytes_out = 0, 0

    def pending(self, port: int) -> int:
        return self.waiting

    def port_counters(self, port: int) -> dict[str, int]:
        return {"bytes_out": self.bytes_out}


@pytest.mark.spec("BF-11")
def test_what_a_saturated_link_carries_replaces_what_trains_said() -> None:
    ports = Ports()
    passive = PassiveBandwidth(ports)  # type: ignore[arg-type]
    passive.add(1, 0)
    assert passive.bandwidth(1, 5e6, 0) == 5e6
    ports.bytes_out, ports.waiting = 1_000_000, 100
    passive.look(SECOND)  # nothing had waited before
    assert passive.bandwidth(1, 5e6, SECOND) == 5e6
    ports.bytes_out = 3_000_000
    passive.look(2 * SECOND)
    assert passive.bandwidth(1, 5e6, 2 * SECOND) == 2e6
    ports.bytes_out = 6_000_000
    passive.look(3 * SECOND)
    assert passive.bandwidth(1, 5e6, 3 * SECOND) == pytest.approx(2.3e6)
    assert passive.bandwidth(1, 5e6, 4 * SECOND + KEPT_NS) == 5e6
    assert passive.bandwidth(1, math.nan, 4 * SECOND + KEPT_NS) == pytest.approx(2.3e6)
    passive.remove(1)
    assert passive.bandwidth(1, 5e6, 5 * SECOND) == 5e6


# --- multicast


@pytest.mark.spec("BF-40")
def test_the_tree_takes_the_widest_links_and_both_directions_count() -> None:
    arcs = {}
    for one, other, width in ((ME, A, 10.0), (ME, B, 1.0), (A, B, 5.0), (B, C, 2.0), (A, C, 9.0)):
        arcs[one, other], arcs[other, one] = width, width
    arcs[C, A] = 1.5  # one direction of it is narrow
    tree = widest_tree(ME, {A, B, C}, arcs)
    assert tree == {ME: {A}, A: {ME, B}, B: {A, C}, C: {B}}
    assert spans(tree, ME, {A, B, C})
    assert widest_tree(A, {ME, B, C}, arcs) == tree  # all come to the same
    assert not spans(widest_tree(ME, {A, D}, arcs), ME, {A, D})


@pytest.mark.spec("BF-28")
def test_what_was_seen_is_forgotten_in_order() -> None:
    seen = Seen(most=2)
    assert [seen.add((flow, 0)) for flow in (1, 1, 2, 3, 1)] == [True, False, True, True, True]
