"""Whole overlays that exchange adverts: every parcel arrives, and every decision comes strictly nearer (RQ-04)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from chappe.cells.adverts import differences
from chappe.cells.trie import TrieSettings
from tests.support.overlays import Overlay, random_names


def check_progress(overlay: Overlay, trace: list[bytes], destination: str) -> None:
    """No lexicographic violation: every main cell is strictly nearer; only the first one may have no name."""
    gaps = overlay.gaps(trace, destination)
    for before, after in pairwise(gaps):
        assert after is not None
        assert before is None or after < before


def all_names(overlay: Overlay) -> list[str]:
    return sorted(name for cell in overlay.cells.values() for name in cell.names)


@pytest.mark.spec("BF-03", "BF-17", "BF-18", "BF-24")
@pytest.mark.parametrize("radius", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_every_unicast_arrives_and_every_decision_is_strictly_nearer(seed: int, radius: int) -> None:
    rng = random.Random(seed)
    overlay = Overlay(random_names(60, rng), rng, radius=radius)
    overlay.exchange(8)
    for _ in range(150):
        destination, start = rng.choice(all_names(overlay)), rng.choice(list(overlay.cells))
        trace = list(overlay.walk(start, destination))
        check_progress(overlay, trace, destination)
        assert trace[-1] == overlay.owner(destination)


@pytest.mark.spec("BF-18", "BF-19")
@pytest.mark.parametrize("rounds", range(3))
def test_parcels_arrive_while_most_names_are_unknown(rounds: int) -> None:
    rng = random.Random(rounds)
    overlay = Overlay(random_names(60, rng), rng)
    overlay.exchange(1 + rounds)  # after the first update a cell knows its neighbours
    for _ in range(100):
        destination, start = rng.choice(all_names(overlay)), rng.choice(list(overlay.cells))
        trace = list(overlay.walk(start, destination))
        check_progress(overlay, trace, destination)
        assert trace[-1] == overlay.owner(destination)


@pytest.mark.spec("BF-15", "BF-16", "BF-19")
def test_parcels_arrive_where_few_names_are_kept() -> None:
    rng = random.Random(7)
    overlay = Overlay(random_names(60, rng), rng, settings=TrieSettings(names=30))
    for _ in range(8):
        overlay.exchange(1)
        for cell in overlay.cells.values():
            near = {name for other in cell.near.neighbours for name in overlay.cells[other].names}
            cell.trie.trim(overlay.now_ns, near)
            assert len(cell.trie) <= 45
    for _ in range(150):
        destination, start = rng.choice(all_names(overlay)), rng.choice(list(overlay.cells))
        trace = list(overlay.walk(start, destination))
        check_progress(overlay, trace, destination)
        assert trace[-1] == overlay.owner(destination)


@pytest.mark.spec("BF-01", "BF-24")
def test_a_cell_without_names_sends_and_forwards_but_decides_only_for_itself() -> None:
    rng = random.Random(3)
    names = random_names(40, rng)
    names[:8] = [set() for _ in range(8)]
    overlay = Overlay(names, rng)
    overlay.exchange(8)
    nameless = {cell.id for cell in overlay.cells.values() if not cell.names}
    secondary: set[bytes] = set()
    for _ in range(150):
        destination, start = rng.choice(all_names(overlay)), rng.choice(sorted(nameless))
        trace = list(overlay.walk(start, destination))
        check_progress(overlay, trace, destination)
        assert not nameless & set(trace[1:])
        assert trace[-1] == overlay.owner(destination)
        for cell in trace[:-1]:
            for route in overlay.cells[cell].router.routes(destination, 0):
                secondary.update(route.hops[:-1])
    assert nameless & secondary


@pytest.mark.spec("BF-25", "BF-26")
@pytest.mark.parametrize("seed", range(3))
def test_a_message_to_a_prefix_comes_inside_and_reaches_all(seed: int) -> None:
    rng = random.Random(seed)
    overlay = Overlay(random_names(60, rng), rng)
    overlay.exchange(8)
    for prefix in ("a", "b", "cx", "dy.", "é", ""):
        inside = {cell.id for cell in overlay.cells.values() if any(name.startswith(prefix) for name in cell.names)}
        if not inside:
            continue
        start = rng.choice(list(overlay.cells))
        trace = list(overlay.walk(start, prefix + "*"))
        check_progress(overlay, trace, prefix + "*")
        assert trace[-1] in inside
        at = start
        while at not in inside:
            at = overlay.cells[at].router.path_toward(prefix, overlay.now_ns)[-1]
        reached, waiting = set[bytes](), [at]
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting += overlay.neighbours_with(at, prefix)
        assert reached == inside


@pytest.mark.spec("BF-04")
def test_a_name_that_goes_is_routed_to_nobody_and_one_that_comes_is_found() -> None:
    rng = random.Random(11)
    overlay = Overlay(random_names(24, rng, least=2), rng)
    overlay.exchange(8)
    cell = rng.choice(list(overlay.cells.values()))
    gone = rng.choice(sorted(cell.names))
    cell.names.remove(gone)
    cell.names.add(gone + "!")
    overlay.stamp += 1
    overlay.exchange(1)
    heard_before_ns = overlay.now_ns
    overlay.exchange(8)
    for other in overlay.cells.values():
        for known in [other.trie.find(name) for name in other.trie]:
            if known is not None and known.refreshed_ns < heard_before_ns:
                other.trie.discard(known.name)  # as the records of cells would say
    overlay.exchange(1)
    assert all(gone not in other.trie for other in overlay.cells.values())
    for _ in range(50):
        start = rng.choice(list(overlay.cells))
        trace = list(overlay.walk(start, gone + "!"))
        check_progress(overlay, trace, gone + "!")
        assert trace[-1] == cell.id


@pytest.mark.spec("BF-12")
def test_what_is_told_in_differences_is_what_would_be_told_in_full() -> None:
    rng = random.Random(13)
    overlay = Overlay(random_names(30, rng), rng)
    for _ in range(6):
        overlay.exchange(2)
        for cell in overlay.cells.values():  # links change, without a word about names
            overlay.links[cell.id] = {other: rng.uniform(1e4, 1e8) for other in overlay.links[cell.id]}
        overlay.flood_links()
    overlay.exchange(30)
    for cell in overlay.cells.values():
        full = {name: cell.router.entry(known) for name in cell.trie if (known := cell.trie.find(name)) is not None}
        told = {name: entry for name, entry in cell.advert.entries.items() if name not in cell.names}
        assert differences(told, full) == ((), ())
        for neighbour in overlay.links[cell.id]:
            other = overlay.cells[neighbour]
            heard = {name for name in other.trie if cell.id in other.trie.find(name).statements}  # type: ignore[union-attr]
            assert heard == cell.advert.entries.keys() - other.names
