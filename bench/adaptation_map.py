"""How long a cost update takes in a map of a thousand links, beside the bare shortest-path call on the same graph."""

from __future__ import annotations

import random
import time

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address, VertexId
from chappe.measure.cost import Metrics
from chappe.wire.mesh import LinkAdvert, LinkFact, Statement, encode_advert

NODES, LINKS = 300, 1000
UPDATES = 200
SECOND = 1_000_000_000
APART_NS = SECOND // 2  # between two updates: what nobody tells again is forgotten after 180 s


def absorb() -> tuple[float, float]:
    """Median ms of (an update and the routes after it, the bare library call), measured in turn."""
    rng = random.Random(7)
    pairs = _pairs(rng)
    costs = {pair: rng.uniform(1, 50) for pair in pairs}
    state, now_ns = _filled(pairs, costs)
    sequences = dict.fromkeys(range(NODES), 1)
    own, library = [], []
    target = VertexId(0, _name(NODES - 1))
    for _ in range(UPDATES):
        a, b = pairs[rng.randrange(len(pairs))]
        costs[a, b] = rng.uniform(1, 50)
        now_ns += APART_NS
        adverts = []
        for node in (a, b):
            sequences[node] += 1
            adverts.append(_advert(node, pairs, costs, sequences[node]))
        begun = time.perf_counter()
        for advert in adverts:
            state.receive(_name(1), advert, now_ns)
        state.routes.route("default", target)
        own.append(time.perf_counter() - begun)
        matrix = _matrix(pairs, costs)
        begun = time.perf_counter()
        dijkstra(matrix, indices=0)
        library.append(time.perf_counter() - begun)
        state.tick(now_ns)
    return float(np.median(own)) * 1e3, float(np.median(library)) * 1e3


def _name(number: int) -> str:
    return f"n{number:03}"


def _pairs(rng: random.Random) -> list[tuple[int, int]]:
    """A ring, so that all is connected, and chords; node 0 has a link to node 1."""
    pairs = {(number, (number + 1) % NODES) for number in range(NODES)}
    while len(pairs) < LINKS:
        a, b = rng.sample(range(1, NODES), 2)
        if (b, a) not in pairs:
            pairs.add((a, b))
    return sorted(pairs)


def _id(pair: tuple[int, int]) -> bytes:
    return pair[0].to_bytes(8, "big") + pair[1].to_bytes(8, "big")


def _advert(node: int, pairs: list[tuple[int, int]], costs: dict[tuple[int, int], float], sequence: int) -> Statement:
    facts = tuple(
        LinkFact(_id(pair), _name(pair[1] if pair[0] == node else pair[0]), 0, "tcp", False, costs[pair], 0.0, 0.0)
        for pair in pairs
        if node in pair
    )
    advert = LinkAdvert(origin=_name(node), level=0, scope="", originator=_name(node), sequence=sequence, links=facts)
    return Statement(body=encode_advert(advert))


def _filled(pairs: list[tuple[int, int]], costs: dict[tuple[int, int], float]) -> tuple[LinkState, int]:
    """The map of node 0, with all that the others tell."""
    now_ns = SECOND
    state = LinkState(Parts(Address((), _name(0)), Settings(), random.Random(1)))
    for pair in pairs:
        if 0 in pair:
            other = pair[1] if pair[0] == 0 else pair[0]
            state.up(_name(other), Address((), _name(other)), _id(pair), "tcp", now_ns)
            state.measured(_id(pair), Metrics(costs[pair], jitter=0.0, loss=0.0), now_ns)
    for node in range(1, NODES):
        state.receive(_name(1), _advert(node, pairs, costs, 1), now_ns)
    for _ in range(5):
        now_ns += SECOND
        state.tick(now_ns)
    if len(state.vertex_ids()) != NODES - 1:
        raise ValueError(f"the map of the bench has {len(state.vertex_ids())} nodes, not {NODES - 1}")
    return state, now_ns


def _matrix(pairs: list[tuple[int, int]], costs: dict[tuple[int, int], float]) -> csr_array:
    rows = [a for a, b in pairs] + [b for a, b in pairs]
    columns = [b for a, b in pairs] + [a for a, b in pairs]
    values = [costs[pair] for pair in pairs] * 2
    return csr_array((values, (rows, columns)), shape=(NODES, NODES))
