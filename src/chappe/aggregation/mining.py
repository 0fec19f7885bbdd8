"""Finds bottlenecks in the history and the detours around them (MR-102)."""

from __future__ import annotations

from typing import Any

import rustworkx

from chappe.aggregation.access import EVERYTHING, View
from chappe.aggregation.averages import averages, bottlenecks
from chappe.store.records import RecordStore

Row = dict[str, Any]


def detours(
    store: RecordStore,
    *,
    metric: str = "cost",
    factor: float = 2.0,
    since_ns: int = 0,
    until_ns: int = 1 << 62,
    view: View = EVERYTHING,
) -> list[Row]:
    """For each bottleneck the best route between its ends without it, and whether that route is better.

    advice: `avoid` if the detour is better, `keep` if it is not, `add a link` if there is none.
    """
    since = {"since_ns": since_ns, "until_ns": until_ns, "view": view}
    graph, places = _graph(averages(store, by=("link", "node", "peer"), **since), metric)  # type: ignore[arg-type]
    found = []
    for slow in bottlenecks(store, metric=metric, factor=factor, **since):  # type: ignore[arg-type]
        detour, cost = _around(graph, places, slow)
        advice = "add a link" if detour is None else ("avoid" if cost < slow[metric] else "keep")
        found.append({**slow, "around": detour or [], "around_cost": cost if detour else None, "advice": advice})
    return found


def _graph(means: list[Row], metric: str) -> tuple[rustworkx.PyDiGraph[str, tuple[str, float]], dict[str, int]]:
    graph: rustworkx.PyDiGraph[str, tuple[str, float]] = rustworkx.PyDiGraph()
    places: dict[str, int] = {}
    for row in means:
        if row[metric] is None or not row["peer"]:
            continue
        one, other = (places.setdefault(name, len(places)) for name in (row["node"], row["peer"]))
        while graph.num_nodes() < len(places):
            graph.add_node("")
        graph.add_edge(one, other, (row["link"], float(row[metric])))
        graph.add_edge(other, one, (row["link"], float(row[metric])))
    for name, place in places.items():
        graph[place] = name
    return graph, places


def _around(
    graph: rustworkx.PyDiGraph[str, tuple[str, float]], places: dict[str, int], slow: Row
) -> tuple[list[str] | None, float]:
    if slow["node"] not in places or slow["peer"] not in places:
        return None, float("inf")
    source, target = places[slow["node"]], places[slow["peer"]]

    def weight(edge: tuple[str, float]) -> float:
        return float("inf") if edge[0] == slow["link"] else edge[1]

    paths = rustworkx.dijkstra_shortest_paths(graph, source, target=target, weight_fn=weight)
    if target not in paths:
        return None, float("inf")
    detour = [graph[place] for place in paths[target]]
    costs = rustworkx.dijkstra_shortest_path_lengths(graph, source, weight, goal=target)
    cost = float(costs[target])
    return (None, cost) if cost == float("inf") else (detour, cost)
