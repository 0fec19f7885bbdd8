"""Costs that change at random over a larger map: the cache equals a computation from nothing, by networkx."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from chappe.linkstate.arcs import SMALL
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import MS, SECOND, Settings
from chappe.linkstate.units import Address, VertexId
from chappe.measure.cost import Metrics
from chappe.wire.mesh import LinkAdvert, LinkFact
from tests.support.statements import stated

EXACT = Settings(gain=0.0, gain_ms=0.0, hold_down=0.0, threshold=0.0, floor_ms=0.0)


class Told:
    """A node that hears the adverts of all others of a cluster from one neighbour."""

    def __init__(self, nodes: int, links: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.graph = nx.gnm_random_graph(nodes, links, seed)
        nx.set_edge_attributes(self.graph, {ends: self.rng.uniform(1, 50) for ends in self.graph.edges}, "cost")
        nx.set_edge_attributes(self.graph, {ends: self.rng.randbytes(16) for ends in self.graph.edges}, "id")
        self.sequence = 0
        self.now_ns = SECOND
        self.state = LinkState(Parts(Address((), "n0"), EXACT, random.Random(1)))
        for _, other, link in self.graph.edges(0, data=True):
            self.state.up(f"n{other}", Address((), f"n{other}"), link["id"], "tcp", self.now_ns)
        for node in self.graph:
            self.tell(node)

    def tell(self, node: int) -> None:
        """Its links cost what they do now."""
        self.sequence += 1
        facts = sorted(
            (
                LinkFact(link["id"], f"n{other}", 0, "tcp", False, link["cost"], 0.0, 0.0)
                for _, other, link in self.graph.edges(node, data=True)
            ),
            key=lambda fact: fact.id,
        )
        if node == 0:
            for fact in facts:
                metrics = Metrics(latency_ms=fact.latency_ms or 0.0, loss=0.0)
                self.state.measured(fact.id, metrics, self.now_ns)
            return
        name = f"n{node}"
        advert = LinkAdvert(origin=name, level=0, scope="", originator=name, sequence=self.sequence, links=tuple(facts))
        self.state.receive(f"n{next(iter(self.graph[0]))}", stated(advert), self.now_ns)

    def change(self, count: int) -> None:
        """Some links cost something else, and time passes."""
        for a, b in self.rng.sample(sorted(self.graph.edges), count):
            self.graph.edges[a, b]["cost"] = self.rng.uniform(1, 50)
            self.tell(a)
            self.tell(b)
        self.now_ns += 100 * MS
        self.state.tick(self.now_ns)

    def check(self) -> None:
        true = nx.single_source_dijkstra_path_length(self.graph, 0, weight="cost")
        assert len(self.state.vertex_ids()) == len(true) - 1
        for node, cost in true.items():
            if node:
                route = self.state.routes.route("default", VertexId(0, f"n{node}"))
                assert route is not None
                assert route.cost == pytest.approx(cost, abs=1e-4)


@pytest.mark.spec("MR-116")
@pytest.mark.spec("MR-114")
@pytest.mark.parametrize(("nodes", "links"), [(30, 60), (200, 700)])
@pytest.mark.parametrize("seed", range(3))
def test_after_every_change_ways_are_the_shortest(nodes: int, links: int, seed: int) -> None:
    told = Told(nodes, links, seed)
    assert (2 * links > SMALL) == (nodes == 200), "one of them by rustworkx, one by SciPy"
    told.check()
    for turn in range(40):
        told.change((1, 1, 1, 30)[turn % 4])
        told.check()
    assert told.state.routes.computed < 40, "some changes mattered to nobody"
