"""The source's tables of routes through our own network map: with assigned costs, and with costs that were measured."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from bench.tables_source import Pair, Table
from chappe.events.member_settings import MemberSettings
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import SECOND, Settings
from chappe.linkstate.units import Address, VertexId
from chappe.machine import Send
from chappe.measure.cost import Metrics
from chappe.sim.link import Quality
from chappe.sim.network import Network
from chappe.wire import control

Way = tuple[tuple[str, ...], float]
UNIT_MS = 10.0  # a cost of 1 in tables 3 to 5, where it is a delay: those are far above what counts as no change
ATTENTIVE = Settings(gain=0.0, gain_ms=0.01)  # the best way, as the source has it, however little it is better
SETTLE_S = 20.0


class Assigned:
    """LinkState objects of one cluster; their messages are encoded as on a wire and take no time."""

    def __init__(self, costs: dict[Pair, float], settings: Settings) -> None:
        self._now_ns = SECOND
        self._queues: dict[Pair, deque[bytes]] = {}
        self._links: dict[Pair, bytes] = {}
        rng = random.Random(1)
        names = sorted({name for pair in costs for name in pair})
        self._addresses = {name: Address.parse("", name) for name in names}
        self._nodes = {
            name: LinkState(Parts(self._addresses[name], settings, random.Random(rng.random())))
            for name in names
        }  # fmt: skip
        for a, b in costs:
            self._links[a, b] = link = rng.randbytes(16)
            for one, other in ((a, b), (b, a)):
                self._put(one, self._nodes[one].up(other, self._addresses[other], link, "tcp", self._now_ns))
        self.cost(costs)

    def cost(self, costs: dict[Pair, float]) -> None:
        """Links cost that from now on, say both their ends; then time passes until nothing holds a route back."""
        for pair, cost in costs.items():
            for name in pair:
                metrics = Metrics(latency_ms=cost, jitter=0.0, loss=0.0)
                self._put(name, self._nodes[name].measured(self._links[pair], metrics, self._now_ns))
        self._run(4 * SECOND)

    def way(self, source: str, target: str) -> Way:
        return _way(self._nodes[source], source, target)

    def _put(self, name: str, outputs: Iterable[object]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self._queues.setdefault((name, str(output.to)), deque()).append(control.encode(output.message))

    def _run(self, for_ns: int) -> None:
        end_ns = self._now_ns + for_ns
        while True:
            while waiting := [ends for ends, queue in self._queues.items() if queue]:
                source, target = waiting[0]
                message = control.decode(self._queues[source, target].popleft())
                self._put(target, self._nodes[target].receive(source, message, self._now_ns))
            next_ns = min(state.next_ns() for state in self._nodes.values())
            if next_ns > end_ns:
                break
            self._now_ns = max(self._now_ns, next_ns)
            for name, state in self._nodes.items():
                if state.next_ns() <= self._now_ns:
                    self._put(name, state.tick(self._now_ns))
        self._now_ns = end_ns


class Measured:
    """Simulated nodes on links whose delay is the cost: what they route by is what they measured."""

    def __init__(self, costs: dict[Pair, float], settings: Settings, unit_ms: float) -> None:
        member = MemberSettings(costs=False, map=settings)
        self._unit_ms = unit_ms
        self.network = Network(4, settings=member)
        for name in sorted({name for pair in costs for name in pair}):
            self.network.add(name)
        for (a, b), cost in costs.items():
            self.network.join(a, b, Quality(delay_ms=cost * unit_ms))
        self.network.start()
        self.network.run(SETTLE_S)

    def cost(self, costs: dict[Pair, float]) -> None:
        """Links become so slow; then a while passes."""
        for (a, b), cost in costs.items():
            self.network.link(a, b).change(Quality(delay_ms=cost * self._unit_ms))
        self.network.run(SETTLE_S)

    def way(self, source: str, target: str) -> Way:
        member = self.network.nodes[source].member
        assert member is not None
        nodes, cost = _way(member.state, source, target)
        return nodes, cost / self._unit_ms


def _way(state: LinkState, source: str, target: str) -> Way:
    route = state.routes.route("default", VertexId(0, target))
    if route is None:
        return (source,), float("nan")
    return (source, *(vertex_id.name for vertex_id in route.vertex_ids)), route.cost


def judge(
    tables: Iterable[Table], simulated: bool, unit_ms: float = 1.0, usual: bool = False
) -> list[tuple[str, bool]]:
    """Each entry of the tables, and whether it came out as printed; the links of one table become those of the next.

    `usual`: with the hysteresis that a mesh has, else without.
    """
    found: list[tuple[str, bool]] = []
    mesh: Assigned | Measured | None = None
    settings = Settings() if usual else replace(ATTENTIVE)
    for table in tables:
        if mesh is None:
            mesh = Measured(table.costs, settings, unit_ms) if simulated else Assigned(table.costs, settings)
        else:
            mesh.cost(table.costs)
        for (source, target), (hop, cost) in table.hops.items():
            nodes, mine = mesh.way(source, target)
            right = len(nodes) > 1 and nodes[1] == hop and abs(mine - cost) < 1e-6
            found.append((f"{table.name}, {source} to {target}: {'-'.join(nodes)} at {mine:g}, {hop}/{cost:g}", right))
        for (source, target), (way, cost) in table.ways.items():
            nodes, mine = mesh.way(source, target)
            right = nodes == way and abs(mine - cost) < 1e-6
            found.append((f"{table.name}, {'-'.join(nodes)} at {mine:g}, {'-'.join(way)} at {cost:g}", right))
    return found
