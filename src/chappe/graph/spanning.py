"""A minimum spanning tree over the links of a map, for what is to be copied to everybody once (MR-132)."""

from __future__ import annotations

from collections.abc import Mapping

import rustworkx


def spanning_tree(links: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The links of least total cost that connect all that can be connected; of each part its own tree.

    Of equal trees it is always the same one: links are taken in the order of their costs, then of their names.
    """
    names = sorted({name for pair in links for name in pair})
    number = {name: place for place, name in enumerate(names)}
    graph: rustworkx.PyGraph[None, tuple[float, tuple[str, str]]] = rustworkx.PyGraph()
    graph.add_nodes_from([None] * len(names))
    ordered = sorted((cost, pair) for pair, cost in links.items())
    graph.add_edges_from([(number[a], number[b], (place, (a, b))) for place, (_, (a, b)) in enumerate(ordered)])
    tree = rustworkx.minimum_spanning_edges(graph, weight_fn=lambda edge: float(edge[0]))
    return {pair: links[pair] for _, _, (_, pair) in sorted(tree, key=lambda edge: edge[2])}
