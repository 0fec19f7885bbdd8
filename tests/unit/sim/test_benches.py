"""What the simulated benches measure: the ideal is that of another library, and routing is seen to follow latencies."""

from __future__ import annotations

import math
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from bench import churn, routing
from chappe.sim.clock import Streams
from chappe.sim.codec import Codec
from chappe.sim.latencies import Latencies, walk
from chappe.sim.plan import Plan, topology
from chappe.wire import control
from chappe.wire.mesh import MeshJoin


def test_the_ideal_is_the_shortest_path_of_networkx_at_each_time() -> None:
    plan = topology("sndlib/polska")
    subject = routing.Subject(plan, walk(plan, 60, Streams(1).of("walk")), 60)
    found = routing.ideals(subject)
    table = subject.latencies.over(plan)
    for row in (0, 7, 11):
        graph = nx.Graph()
        for (a, b, _), ms in zip(plan.links, table[row], strict=True):
            graph.add_edge(a, b, weight=ms + routing.JITTER_MS)
        lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
        for at, a in enumerate(plan.nodes):
            for to, b in enumerate(plan.nodes):
                assert found[row, at, to] == pytest.approx(lengths[a][b])


def test_measured_routing_leaves_a_link_that_became_slow_and_hops_do_not() -> None:
    plan = Plan("square", ("a", "b", "c"), (("a", "b", 10.0), ("b", "c", 10.0), ("a", "c", 12.0)))
    times = np.array([0.0, 30.0])
    slow = Latencies(times, (("a", "b"), ("b", "c"), ("a", "c")), np.array([[10.0, 10.0, 12.0], [10.0, 10.0, 80.0]]))
    subject = routing.Subject(plan, slow, 60.0)
    measured, static = (routing.measure(subject, 3, performance) for performance in (True, False))
    assert measured.lost == static.lost == 0
    assert len(measured.ratios) == len(static.ratios) > 500
    assert measured.mean < 1.1
    assert static.mean > 1.3


def test_meshes_of_the_churn_bench_have_ten_things_a_level() -> None:
    assert churn.sizes(1000) == [10, 50, 100, 200, 500, 1000]
    assert churn.sizes(100) == [10, 20, 50, 100]
    assert [churn.depth_of(nodes) for nodes in (10, 50, 100, 200, 1000)] == [1, 2, 2, 3, 3]
    assert [churn.outermost(nodes) for nodes in (50, 100, 200, 500, 1000)] == [5, 10, 2, 5, 10]
    network = churn.mesh(200, seed=3)
    clusters = Counter(node.address.unit for node in network.nodes.values())
    assert len(clusters) == 20
    assert max(clusters.values()) <= 14


def test_an_exponent_tells_a_logarithm_from_growth_with_the_number_of_nodes() -> None:
    sizes = (50, 100, 200, 500, 1000)
    assert churn._exponent([(size, 7.0 * size) for size in sizes]) == pytest.approx(1.0)
    assert churn._exponent([(size, math.log(size)) for size in sizes]) == pytest.approx(0.19, abs=0.01)


def test_a_message_is_encoded_and_decoded_once() -> None:
    codec = Codec(kept=4)
    message = MeshJoin(name="a", unit="u", link=bytes(16))
    frame = codec.encode(message)
    assert frame is codec.encode(message)
    assert frame[4:] == control.encode(message)
    heard = codec.decode(frame[4:])
    assert heard == message
    assert codec.decode(frame[4:]) is heard
    for number in range(20):
        other = MeshJoin(name=f"n{number}", unit="u", link=bytes(16))
        assert codec.decode(codec.encode(other)[4:]) == other
