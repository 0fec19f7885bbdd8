"""A mesh of LinkState objects in memory: links that keep their order and nothing else, virtual time, true graphs."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable

import networkx as nx

from chappe.linkstate.changes import CostAdvertised, Notice, RoutesChanged
from chappe.linkstate.database import key_of
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import MS, SECOND, Settings
from chappe.linkstate.units import Address, VertexId, level_between, visible
from chappe.machine import Send
from chappe.measure.cost import Metrics
from chappe.wire import control
from chappe.wire.mesh import Key, Statement, decode_advert

WALL_NS = 1_767_225_600 * SECOND  # when virtual time begins


class LinkStates:
    """Nodes by name. Messages are encoded and decoded as on a wire, and delivered in any order that links allow."""

    def __init__(self, units: dict[str, str], settings: Settings | None = None, seed: int = 1) -> None:
        self.settings = settings or Settings()
        self.rng = random.Random(seed)
        self.addresses = {name: Address.parse(unit, name) for name, unit in units.items()}
        self.nodes: dict[str, LinkState] = {}
        self.links: dict[bytes, tuple[str, str]] = {}
        self.queues: dict[tuple[str, str], deque[bytes]] = {}
        self.now_ns = SECOND
        self.delivered = 0
        self.notices: list[tuple[str, Notice]] = []
        self.costs: list[tuple[str, CostAdvertised]] = []
        self.rerouted: list[tuple[str, RoutesChanged]] = []
        self.stated: dict[Key, set[int]] = defaultdict(set)  # sequences of all that nodes stated themselves
        self.skew_ns: dict[str, int] = {}  # how far the wall clock of a node is ahead
        self.slept_ns: dict[str, int] = {}  # for how long its monotonic clock stood still
        for name in self.addresses:
            self.start(name)

    def wall_ns(self, name: str) -> int:
        """What the wall clock of a node shows."""
        return WALL_NS + self.now_ns + self.skew_ns.get(name, 0)

    def mono_ns(self, name: str) -> int:
        """What its monotonic clock does."""
        return self.now_ns - self.slept_ns.get(name, 0)

    def sleep(self, name: str, for_ns: int) -> None:
        """A machine is suspended: its links go down, all others go on, and it wakes without having noticed."""
        cut = [(link, ends) for link, ends in self.links.items() if name in ends]
        state = self.nodes.pop(name)
        for link, (a, b) in cut:
            other = b if a == name else a
            self.links.pop(link)
            self.queues[a, b].clear()
            self.queues[b, a].clear()
            self.put(other, self.nodes[other].down(name, link, self.mono_ns(other)))
        self.run(for_ns)
        self.slept_ns[name] = self.slept_ns.get(name, 0) + for_ns
        self.nodes[name] = state
        for link, (a, b) in cut:
            self.put(name, state.down(b if a == name else a, link, self.mono_ns(name)))
            self.connect(a, b)

    # --- what happens to a mesh

    def start(self, name: str) -> LinkState:
        """A node starts, or starts anew without anything it knew."""
        rng = random.Random(self.rng.random())
        state = LinkState(Parts(self.addresses[name], self.settings, rng, wall=lambda: self.wall_ns(name)))
        self.nodes[name] = state
        return state

    def connect(self, a: str, b: str) -> bytes:
        """A link between two nodes comes up at both ends."""
        link = self.rng.randbytes(16)
        self.links[link] = (a, b)
        self.queues.setdefault((a, b), deque())
        self.queues.setdefault((b, a), deque())
        for one, other in ((a, b), (b, a)):
            self.put(one, self.nodes[one].up(other, self.addresses[other], link, "tcp", self.mono_ns(one)))
        return link

    def cut(self, link: bytes) -> None:
        """It goes down; what was under way on the last link of two nodes is lost."""
        a, b = self.links.pop(link)
        if not any({a, b} == set(ends) for ends in self.links.values()):
            self.queues[a, b].clear()
            self.queues[b, a].clear()
        for one, other in ((a, b), (b, a)):
            if one in self.nodes:
                self.put(one, self.nodes[one].down(other, link, self.mono_ns(one)))

    def kill(self, name: str) -> None:
        """A node is gone, its neighbours notice."""
        del self.nodes[name]
        for link in [link for link, ends in self.links.items() if name in ends]:
            self.cut(link)

    def measure(self, link: bytes, latency_ms: float, loss: float = 0.0, jitter: float = 0.0) -> None:
        """Both ends measure the same."""
        for name in self.links[link]:
            metrics = Metrics(latency_ms=latency_ms, jitter=jitter, loss=loss)
            self.put(name, self.nodes[name].measured(link, metrics, self.mono_ns(name)))

    # --- the network

    def put(self, name: str, outputs: Iterable[object]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                if isinstance(output.message, Statement):
                    advert = decode_advert(output.message.body)
                    self.stated[key_of(advert)].add(advert.sequence)
                self.queues[name, str(output.to)].append(control.encode(output.message))
            elif isinstance(output, Notice):
                self.notices.append((name, output))
            elif isinstance(output, CostAdvertised):
                self.costs.append((name, output))
            elif isinstance(output, RoutesChanged):
                self.rerouted.append((name, output))

    def step(self) -> bool:
        """Deliver one message of some link; False if there is none."""
        waiting = [ends for ends, queue in self.queues.items() if queue]
        if not waiting:
            return False
        source, target = self.rng.choice(waiting)
        message = control.decode(self.queues[source, target].popleft())
        if target in self.nodes:
            self.delivered += 1
            self.put(target, self.nodes[target].receive(source, message, self.mono_ns(target)))
        return True

    def run(self, for_ns: int) -> None:
        """Let time pass: every node is ticked when it asks to be, messages take no time."""
        end_ns = self.now_ns + for_ns
        while True:
            while self.step():
                pass
            due = [(state.next_ns() + self.slept_ns.get(name, 0), name) for name, state in self.nodes.items()]
            next_ns, _ = min(due, default=(end_ns + 1, ""))
            if next_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, next_ns)
            for at_ns, name in due:
                if at_ns <= self.now_ns:
                    self.put(name, self.nodes[name].tick(self.mono_ns(name)))
        self.now_ns = end_ns

    def settle(self) -> None:
        """Until nothing but refreshes happens: what nobody misses of a unit of units is told last."""
        self.run(3 * SECOND + 8 * self.settings.originate_most_ns)
        assert not any(self.queues.values())

    def tick(self, times: int = 1) -> None:
        """Tick every node some milliseconds later."""
        for _ in range(times):
            self.now_ns += 60 * MS
            for name, state in self.nodes.items():
                self.put(name, state.tick(self.mono_ns(name)))

    def use(self) -> None:
        """Every node asks for every way, so that it is in use."""
        for state in self.nodes.values():
            for vertex_id in state.vertex_ids():
                state.routes.route("default", vertex_id)

    # --- what is true

    def graph(self) -> nx.Graph:
        """All nodes and live links."""
        graph = nx.Graph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(self.links.values())
        return graph

    def reached_inside(self, name: str, level: int) -> set[str]:
        """Nodes that can be reached without leaving the own unit of a level (1: the cluster)."""
        me = self.addresses[name]
        inside = [other for other in self.nodes if level_between(me, self.addresses[other]) < level]
        return set(nx.node_connected_component(self.graph().subgraph(inside), name))

    def true_controller(self, name: str, level: int) -> str:
        return min(self.reached_inside(name, level))

    def visible(self, name: str, other: str) -> VertexId:
        return visible(self.addresses[name], self.addresses[other])

    def true_things(self, name: str) -> dict[str, VertexId]:
        """What each other node that can be reached is in the map of this one."""
        me, vertex_ids = self.addresses[name], {}
        near = {name}
        for level in range(me.depth + 1):
            wider = self.reached_inside(name, level + 1)
            if level == 0:
                vertex_ids |= {other: VertexId(0, other) for other in wider}
            else:
                path = {other: self.addresses[other].path(level) for other in wider - near}
                originator = {other: self.true_controller(other, level) for other in path}
                for other in path:
                    whole = path[other] != me.path(level) and all(
                        originator[third] == originator[other] for third in path if path[third] == path[other]
                    )
                    vertex_ids[other] = VertexId(level, path[other] if whole else f"{path[other]}@{originator[other]}")
            near = wider
        return vertex_ids

    def true_links(self, name: str) -> dict[bytes, frozenset[VertexId]]:
        """The links that the map of a node has, with their ends as it sees them."""
        vertex_ids = self.true_things(name)
        found = {}
        for link, (a, b) in self.links.items():
            level = level_between(self.addresses[a], self.addresses[b])
            if a in vertex_ids and b in vertex_ids and max(vertex_ids[a].level, vertex_ids[b].level) <= level:
                found[link] = frozenset((vertex_ids[a], vertex_ids[b]))
        return found

    def true_distances(self, name: str, costs: dict[bytes, float]) -> dict[VertexId, float]:
        """Least cost from a node to everything in its map, by networkx."""
        graph = nx.DiGraph()
        graph.add_node(VertexId(0, name))
        for link, ends in self.true_links(name).items():
            a, b = sorted(ends)
            for tail, head in ((a, b), (b, a)) if a.level == b.level else ((a, b),):
                cost = min(costs[link], graph.get_edge_data(tail, head, {"cost": costs[link]})["cost"])
                graph.add_edge(tail, head, cost=cost)
        distances: dict[VertexId, float] = nx.single_source_dijkstra_path_length(
            graph, VertexId(0, name), weight="cost"
        )
        return distances

    def check_maps(self) -> None:
        """Every map is what follows from the live links, at every level."""
        for name, state in self.nodes.items():
            vertex_ids = self.true_things(name)
            assert set(state.vertex_ids()) == set(vertex_ids.values()) - {VertexId(0, name)}, name
            assert set(state.members()) == self.reached_inside(name, 1), name
            for level in range(1, self.addresses[name].depth + 1):
                assert state.controller(level) == self.true_controller(name, level), (name, level)
            rows = {
                bytes.fromhex(row["link"]): frozenset(
                    (VertexId(row["level_a"], row["a"]), VertexId(row["level_b"], row["b"]))
                )
                for row in state.map_rows()
            }
            assert rows == self.true_links(name), name
            assert len(rows) == len(state.map_rows())
