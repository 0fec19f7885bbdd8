"""The cheapest path within a latency bound: labels of (cost, latency), dominated ones dropped."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from chappe.graph.graph import Graph, Node, Path


def cheapest(
    graph: Graph, costs: Mapping[tuple[Node, Node], float], source: Node, target: Node, bound: int
) -> Path | None:
    """The path of least cost whose weight is `bound` or less; of equal ones the shortest. Exact.

    Labels leave the heap by ascending cost, so at each node only one of less weight than all before it is of use.
    """
    if source not in graph.index or target not in graph.index:
        return None
    behind, after = graph.distances_to(target), graph.after
    lightest: dict[Node, int] = {}
    heap: list[tuple[float, int, Path]] = [(0.0, 0, (source,))]
    while heap:
        cost, weight, path = heappop(heap)
        node = path[-1]
        if node == target:
            return path
        if weight >= lightest.get(node, weight + 1):
            continue
        lightest[node] = weight
        for head, more in after[node]:
            reached = weight + more
            if head in behind and reached + behind[head] <= bound and reached < lightest.get(head, reached + 1):
                heappush(heap, (cost + costs[node, head], reached, (*path, head)))
    return None
