"""Paths that share no node but their ends: least total weight by flow, or each within a bound (GS-085)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import rustworkx
from scipy.sparse.csgraph import yen

from chappe.graph.graph import Graph, Node, Path

SHORTEST_PATHS = 64
CHOICES = 100_000
STEPS = 20_000


def disjoint(
    graph: Graph, source: Node, target: Node, count: int, weights: Mapping[tuple[Node, Node], int] | None = None
) -> list[Path]:
    """Up to `count` paths that share only their ends, of least total weight; fewer if there are no more.

    Flow of least cost over nodes that are split in two, one shortest path of the residual graph at a time. `weights`
    count instead of those of the graph, for the arcs that are in it.
    """
    if source not in graph.index or target not in graph.index or source == target:
        return []
    residual = graph.split.copy()
    for (a, b), other in (weights or {}).items():
        if (a, b) in graph.arcs:
            residual.update_edge(2 * graph.index[a] + 1, 2 * graph.index[b], float(other))
    start, end = 2 * graph.index[source] + 1, 2 * graph.index[target]
    used: set[tuple[int, int]] = set()
    for turn in range(count):
        search = (
            rustworkx.digraph_dijkstra_shortest_paths if turn == 0 else rustworkx.digraph_bellman_ford_shortest_paths
        )
        found = search(residual, start, end, float)
        if end not in found:
            break
        nodes = list(found[end])
        for tail, head in pairwise(nodes):
            if (head, tail) in used:
                used.remove((head, tail))
            else:
                used.add((tail, head))
            if turn < count - 1:
                weight = residual.get_edge_data(tail, head)
                residual.remove_edge(tail, head)
                residual.add_edge(head, tail, -weight)
    return sorted(_follow(graph, used, start, end), key=graph.weight)


def _follow(graph: Graph, used: set[tuple[int, int]], start: int, end: int) -> Iterator[Path]:
    onward = {tail: head for tail, head in used if tail != start}
    for tail, head in used:
        if tail == start:
            path = [graph.nodes[start >> 1]]
            while head != end:
                path.append(graph.nodes[head >> 1])
                head = onward[onward[head]]
            yield (*path, graph.nodes[end >> 1])


def shortest(graph: Graph, source: Node, target: Node, count: int) -> list[Path]:
    """Up to `count` simple paths of least weight, ascending (Yen)."""
    if source not in graph.index or target not in graph.index or source == target:
        return []
    start, end = graph.index[source], graph.index[target]
    lengths, before = yen(graph.matrix, start, end, count, return_predecessors=True)
    paths = []
    for row in before[: len(lengths)]:
        path, at = [end], end
        while at != start:
            at = int(row[at])
            path.append(at)
        paths.append(tuple(graph.nodes[number] for number in reversed(path)))
    return sorted(paths, key=graph.weight)


def within(graph: Graph, source: Node, target: Node, count: int, bound: int) -> list[Path] | None:
    """`count` paths that share only their ends, each of weight `bound` or less, or None if there are none.

    That is hard in general: the flow of least total decides most cases, the shortest simple paths most of the rest, and
    a search of all paths, which gives up after many steps, what is left.
    """
    near = reachable(graph, source, target, bound)
    paths = disjoint(near, source, target, count)
    if len(paths) < count:
        return None
    if near.weight(paths[-1]) <= bound:
        return paths
    if sum(map(near.weight, paths)) > count * bound:
        return None
    chosen = choose(near, shortest(near, source, target, SHORTEST_PATHS), count, bound)
    return chosen or _search(near, source, target, count, bound)


def reachable(graph: Graph, source: Node, target: Node, bound: int) -> Graph:
    """Only those arcs that lie on some way from source to target of weight `bound` or less."""
    ahead, behind = graph.distances_from(source), graph.distances_to(target)
    return Graph({
        (a, b): weight for (a, b), weight in graph.arcs.items()
        if a in ahead and b in behind and ahead[a] + weight + behind[b] <= bound and b != source and a != target
    })  # fmt: skip


def choose(graph: Graph, paths: list[Path], count: int, bound: int | None = None) -> list[Path] | None:
    """The first `count` of these paths, in their order, that share only their ends; None if there are none."""
    if bound is not None:
        paths = [path for path in paths if graph.weight(path) <= bound]
    inner = [sum(1 << graph.index[name] for name in path[1:-1]) for path in paths]
    direct = {place for place, mask in enumerate(inner) if mask == 0}
    left = CHOICES

    def extend(chosen: list[int], taken: int, start: int) -> list[int] | None:
        nonlocal left
        if len(chosen) == count:
            return chosen
        for place in range(start, len(paths)):
            left -= 1
            if left < 0:
                return None
            if inner[place] & taken or (place in direct and direct.intersection(chosen)):
                continue
            found = extend([*chosen, place], taken | inner[place], place + 1)
            if found is not None:
                return found
        return None

    places = extend([], 0, 0)
    return None if places is None else [paths[place] for place in places]


def least_bound(graph: Graph, source: Node, target: Node, count: int) -> int | None:
    """The smallest bound found for `count` disjoint paths each; None if there are not so many."""
    paths = disjoint(graph, source, target, count)
    if len(paths) < count:
        return None
    best = graph.weight(paths[-1])
    candidates = shortest(graph, source, target, SHORTEST_PATHS)
    for end in range(count, len(candidates) + 1):
        if graph.weight(candidates[end - 1]) >= best:
            break
        if choose(graph, candidates[:end], count) is not None:
            return graph.weight(candidates[end - 1])
    return best


def _search(graph: Graph, source: Node, target: Node, count: int, bound: int) -> list[Path] | None:
    """Try every first path within the bound; what remains is a smaller problem of the same kind."""
    left = STEPS

    def simple(graph: Graph) -> Iterator[Path]:
        nonlocal left
        behind, after = graph.distances_to(target), graph.after
        stack: list[tuple[Path, int]] = [((source,), 0)]
        while stack and left > 0:
            left -= 1
            path, weight = stack.pop()
            if path[-1] == target:
                yield path
                continue
            for head, more in sorted(after.get(path[-1], ()), key=lambda arc: -behind.get(arc[0], bound)):
                if head not in path and weight + more + behind.get(head, bound + 1) <= bound:
                    stack.append(((*path, head), weight + more))

    def solve(graph: Graph, count: int) -> list[Path] | None:
        nonlocal left
        paths = disjoint(graph, source, target, count)
        if len(paths) < count or sum(map(graph.weight, paths)) > count * bound:
            return None
        if graph.weight(paths[-1]) <= bound:
            return paths
        for path in simple(graph):
            left -= len(graph.nodes)
            arcs = graph.without(set(path[1:-1])).arcs
            if len(path) == 2:
                arcs.pop(path, None)
            rest = solve(reachable(Graph(arcs), source, target, bound), count - 1)
            if rest is not None:
                return sorted([path, *rest], key=graph_weight)
        return None

    graph_weight = graph.weight
    return solve(graph, count) if count > 1 else None
