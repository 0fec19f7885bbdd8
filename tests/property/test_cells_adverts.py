"""Differences of adverts against full ones, and the bandwidth that avoids the receiver's neighbourhood."""

from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cells.adverts import CEILING, apply, checked, combined, differences
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.trie import Trie
from chappe.errors import ProtocolError
from chappe.wire.celladverts import Candidate, Entry

CELLS = [bytes([number]) * 8 for number in range(1, 8)]
cells = st.sampled_from(CELLS)
bandwidths = st.floats(0, 1e12)
candidates = st.lists(st.builds(Candidate, cells, bandwidths), max_size=4, unique_by=lambda one: one.cell).map(tuple)
names = st.sampled_from("abcdef")
entries = st.builds(Entry, names, cells, st.integers(0, 2), candidates)
adverts = st.lists(entries, max_size=6).map(lambda several: {entry.name: entry for entry in several})


@pytest.mark.spec("BF-12")
@given(st.lists(adverts, max_size=6))
def test_who_hears_differences_knows_what_one_knows_who_hears_full_adverts(steps: list[dict[str, Entry]]) -> None:
    sent: dict[str, Entry] = {}
    heard: dict[str, Entry] = {}
    trie, sender = Trie(), CELLS[0]
    for now in steps:
        difference = differences(sent, now)
        apply(sent, difference)
        apply(heard, difference)
        for name in difference.removed:
            trie.remove(sender, name)
        for entry in difference.changed:
            trie.insert(sender, entry, 0)
        assert heard == sent
        assert heard.keys() == now.keys()
        for name, entry in now.items():
            theirs = {one.cell: one.bandwidth for one in heard[name].candidates}
            ours = {one.cell: one.bandwidth for one in entry.candidates}
            assert (heard[name].cell, heard[name].stamp, theirs.keys()) == (entry.cell, entry.stamp, ours.keys())
            assert all(math.isclose(ours[cell], theirs[cell], rel_tol=0.1) for cell in ours)
        assert {name: known.statements[sender] for name in trie if (known := trie.find(name))} == {
            name: entry.candidates for name, entry in heard.items()
        }


@pytest.mark.spec("BF-13")
@given(
    st.dictionaries(st.tuples(cells, cells), st.floats(1, 1e9), max_size=30),
    st.integers(1, 3),
    candidates,
    cells,
)
def test_the_bandwidth_is_that_of_the_formula(
    links: dict[tuple[bytes, bytes], float], radius: int, said: tuple[Candidate, ...], destination: bytes
) -> None:
    me = CELLS[0]
    near = Neighbourhood(me, radius)
    for tail in CELLS:
        near.set_links(tail, {b: value for (a, b), value in links.items() if a == tail})
    for sender in near.members:
        others = near.members - {sender}
        known = nx.DiGraph()
        known.add_nodes_from(CELLS)
        for (a, b), value in links.items():  # the part of the graph that is known: links of cells within the radius
            if a != b and a in near.members and a not in others and b not in others:
                known.add_edge(a, b, capacity=value)

        def cap(cell: bytes, graph: nx.DiGraph = known, sender: bytes = sender) -> float:
            flow: float = nx.maximum_flow_value(graph, sender, cell) if sender != cell else 0
            return flow if flow > 0 else CEILING

        direct = links.get((sender, destination), 0.0) if sender != destination else 0.0
        expected = direct + sum(
            min(one.bandwidth, cap(one.cell))
            for one in said
            if one.cell not in near.members and not (direct and one.cell == destination)
        )
        if sender == destination:
            expected = CEILING
        result = combined(sender, destination, said, near.members, near.cap, near.bandwidth(sender, destination) or 0.0)
        assert result == pytest.approx(min(expected, CEILING))


anything = st.builds(
    Entry,
    st.text(max_size=300),
    st.binary(max_size=10),
    st.integers(),
    st.lists(st.builds(Candidate, st.binary(max_size=10), st.floats()), max_size=12).map(tuple),
)


@given(st.lists(st.one_of(anything, entries), max_size=5))
def test_whatever_a_neighbour_says_is_refused_or_made_sane(said: list[Entry]) -> None:
    try:
        result = checked(said)
    except ProtocolError:
        return
    trie = Trie()
    for entry in result:
        assert all(0 <= one.bandwidth <= CEILING for one in entry.candidates)
        trie.insert(CELLS[0], entry, 0)
        known = trie.find(entry.name)
        assert known is None or 0 <= known.score(0, trie.settings) <= 1
