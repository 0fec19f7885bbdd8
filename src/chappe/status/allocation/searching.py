"""The thorough search: every hop at its present load, for when the usual paths are full, crowded or too slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice

from chappe.graph.cheapest import cheapest
from chappe.graph.disjoint import disjoint, within
from chappe.graph.graph import Graph, Path
from chappe.status.allocation.path_request import FoundPaths, PathRequest
from chappe.status.allocation.resources import Blocked
from chappe.status.allocation.weights import Weights

ROUNDS = 8
ENTRIES = 64


class Search:
    """One search for one request; `check` says whether paths hold together that hold one by one."""

    def __init__(
        self,
        weights: Weights,
        request: PathRequest,
        check: Callable[[PathRequest, Sequence[Path]], FoundPaths | Blocked],
    ) -> None:
        self._weights = weights
        self._request = request
        self._check = check

    def run(self, room: int) -> FoundPaths | Blocked | None:
        """Paths whose hops take `room` or less, or what stood against the last choice; None if there was none."""
        request = self._request
        without: set[str] = set()
        last: Blocked | None = None
        for _ in range(ROUNDS):
            answer = self._choose(self._graph(without), room)
            if answer is None or isinstance(answer, FoundPaths):
                return answer or last
            last = answer
            if answer.excess_ns:
                room -= answer.excess_ns
            elif answer.obstacle == f"router/{request.target}":
                return self._entries(room) or last
            elif answer.obstacle == f"router/{request.source}" or answer.obstacle in without:
                return last
            else:
                without.add(answer.obstacle)
        return last

    def _choose(self, graph: Graph, room: int) -> FoundPaths | Blocked | None:
        """The cheapest choice that holds, or what stood against the last one."""
        last: Blocked | None = None
        for chosen in self._choices(graph, room):
            answer = self._check(self._request, chosen)
            if isinstance(answer, FoundPaths):
                return answer
            last = answer
        return last

    def _choices(self, graph: Graph, room: int) -> Iterator[Sequence[Path]]:
        request = self._request
        if request.redundancy == 1:
            path = cheapest(graph, self._weights.cost, request.source, request.target, room)
            if path is not None:
                yield [path]
            return
        cheap = disjoint(self._costs(graph), request.source, request.target, request.redundancy)
        if len(cheap) < request.redundancy:
            return
        if all(graph.weight(path) <= room for path in cheap):
            yield sorted(cheap, key=graph.weight)
        bounded = within(graph, request.source, request.target, request.redundancy, room)
        if bounded is not None:
            yield bounded

    def _costs(self, graph: Graph) -> Graph:
        if graph is self._weights.by_latency:
            return self._weights.by_cost
        return Graph({hop: self._weights.cost[hop] for hop in graph.arcs})

    def _entries(self, room: int) -> FoundPaths | None:
        """The target has no room for so many new copies: try to enter it where the stream does already."""
        request, latency, cost = self._request, self._weights.latency, self._weights.cost
        entries = [hop for hop in latency if hop[1] == request.target]
        new = [hop for hop in entries if cost[hop] > 1]
        for size in range(min(len(new), request.redundancy) - 1, -1, -1):
            if len(entries) - len(new) + size < request.redundancy:
                break
            for allowed in islice(combinations(new, size), ENTRIES):
                barred = set(new).difference(allowed)
                answer = self._choose(Graph({hop: ns for hop, ns in latency.items() if hop not in barred}), room)
                if isinstance(answer, FoundPaths):
                    return answer
        return None

    def _graph(self, without: set[str]) -> Graph:
        if not without:
            return self._weights.by_latency
        return Graph({
            (a, b): weight for (a, b), weight in self._weights.latency.items()
            if without.isdisjoint((f"router/{a}", f"router/{b}", f"channel/{a}/{b}"))
        })  # fmt: skip
