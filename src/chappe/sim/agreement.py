"""Whether the network maps of a mesh say what is true, and how long it takes until they do after a change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chappe.linkstate.units import VertexId, level_between
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire import control
from chappe.wire.mesh import InterestAdvert

FIRST_S = 0.001  # after a change
SLOWER = 1.25  # each look at the maps is so much later than the one before
GIVEN_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One node whose map is not what the mesh is."""

    node: str
    lacks: frozenset[str]
    dreams: frozenset[str]  # what it has and the mesh has not

    def __str__(self) -> str:
        return f"{self.node} lacks {sorted(self.lacks)[:5]}, dreams of {sorted(self.dreams)[:5]}"


def disagreements(network: Network) -> Iterator[Disagreement]:
    """Nodes whose map lacks a link that its place should see, or has one that is not there; the mesh must be whole.

    One after the other: who only wants to know whether there are any need not look at a thousand maps.
    """
    by_scope: dict[tuple[str, ...], set[bytes]] = {}
    names: dict[bytes, str] = {}
    for (a, b), link in network.links.items():
        ends = network.nodes[a], network.nodes[b]
        found = link_id(ends[0], b) if link.connected and ends[0].running and ends[1].running else None
        if found is not None:
            level = level_between(ends[0].address, ends[1].address)
            unit = ends[0].address.unit
            by_scope.setdefault(unit[: len(unit) - level], set()).add(found)
            names[found] = link.name
    for node in network.running():
        unit = node.address.unit
        expected = set().union(*(by_scope.get(unit[:depth], set()) for depth in range(len(unit) + 1)))
        known = known_links(node)
        if known != expected:
            lacks = frozenset(names[link] for link in expected - known)
            dreams = frozenset(names.get(link, link.hex()) for link in known - expected)
            yield Disagreement(node.name, lacks, dreams)


def link_id(node: Node, peer: str) -> bytes | None:
    """The id of the link to a neighbour, once both ends have said MeshJoin."""
    if node.member is None or peer not in node.ports:
        return None
    link = node.member.links.by_port.get(node.ports[peer])
    return link.id if link is not None and link.joined else None


def known_links(node: Node) -> set[bytes]:
    """Ids of the links in a node's map."""
    assert node.member is not None
    return {bytes.fromhex(row["link"]) for row in node.member.state.map_rows()}


@dataclass(frozen=True, slots=True)
class State:
    """What a node keeps of the mesh."""

    adverts: int
    links: int  # of its map
    routes: int  # destinations that it has a route to
    patterns: int  # of interest, in all advertisements
    bytes: int  # of all advertisements as they are sent

    @property
    def entries(self) -> int:
        return self.adverts + self.links + self.routes + self.patterns


def state_of(node: Node) -> State:
    """How much that is."""
    assert node.member is not None
    state = node.member.state
    entries = state.database.entries.values()
    adverts = [entry.advert for entry in entries]
    patterns = sum(len(advert.patterns) for advert in adverts if isinstance(advert, InterestAdvert))
    size = sum(len(control.encode(entry.statement)) for entry in entries)
    return State(len(adverts), len(state.map_rows()), len(state.vertex_ids()), patterns, size)


class Convergence:
    """Times from a change of a node until every node of its cluster that it can be reached from knows it."""

    def __init__(self, network: Network, every: int = 1) -> None:
        self.times_s: list[tuple[float, str, float]] = []  # when, what, how long
        self.given_up: list[tuple[float, str, str]] = []
        self.abandoned = 0  # the node changed again meanwhile
        self._network = network
        self._every = every
        self._count = 0
        self._generation: dict[str, int] = {}
        self._clusters: dict[tuple[str, ...], list[Node]] = {}
        for node in network.nodes.values():
            self._clusters.setdefault(node.address.unit, []).append(node)
        network.changes.append(self._changed)

    def _changed(self, what: str, whom: str) -> None:
        if what not in ("crash", "restart"):
            return
        generation = self._generation[whom] = self._generation.get(whom, 0) + 1
        self._count += 1
        if self._count % self._every == 0:
            now_ns = self._network.clock.now_ns
            self._network.clock.after(FIRST_S, self._look, what, whom, generation, now_ns, FIRST_S)

    def _look(self, what: str, whom: str, generation: int, since_ns: int, waited_s: float) -> None:
        if self._generation[whom] != generation:
            self.abandoned += 1
            return
        clock = self._network.clock
        started_s = clock.seconds - waited_s
        if self._known(what == "restart", self._network.nodes[whom]):
            self.times_s.append((started_s, what, (clock.now_ns - since_ns) / 1e9))
        elif waited_s > GIVEN_UP_S:
            self.given_up.append((started_s, what, whom))
        else:
            pause_s = waited_s * (SLOWER - 1)
            clock.after(pause_s, self._look, what, whom, generation, since_ns, waited_s + pause_s)

    def _known(self, is_there: bool, changed: Node) -> bool:
        cluster = [node for node in self._clusters[changed.address.unit] if node.running and node.member is not None]
        if is_there:
            near = _near(changed)
            return all(_knows(node, changed) for node in cluster if node.name in near)
        return not any(_knows(node, changed) for node in cluster)


def _knows(node: Node, other: Node) -> bool:
    """Whether another node of the cluster is in its map."""
    assert node.member is not None
    return bool(node.member.state.resolve(VertexId(0, other.name)))


def _near(start: Node) -> set[str]:
    """Nodes of the cluster that can be reached inside it."""
    found = {start.name}
    ahead = [start]
    while ahead:
        node = ahead.pop()
        for link in node.connections.values():
            other = link.other(node)
            if link.possible and other.address.unit == start.address.unit and other.name not in found:
                found.add(other.name)
                ahead.append(other)
    return found
