"""Real nodes in a measuring mesh, joined by real sockets, directly or through relays that make links slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chappe.links.delays import DelayRelay
from chappe.linkstate.units import VertexId
from chappe.runtime.node import Node
from tests.support.nodes import NodeProcess, eventually, free_port, running

INTERVAL_S = 0.2
WINDOW = 8  # round trips without which no outlier can be told from a change


@dataclass(slots=True)
class Plan:
    """Which nodes there are, where they lie and which of them have a link."""

    links: Sequence[tuple[str, str]]
    units: Mapping[str, str] = field(default_factory=dict)
    mesh: str = ""  # further lines of [mesh]
    interval_s: float = INTERVAL_S
    more: str = ""  # further sections
    node: str = ""  # further lines of [node]
    heartbeat_s: float = 0.2
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.names:
            self.ports[name] = free_port()

    @property
    def names(self) -> list[str]:
        return sorted({name for link in self.links for name in link})

    def toml(self, name: str, relays: Mapping[tuple[str, str], DelayRelay] | None = None) -> str:
        """The file of a node; of a link the first one dials."""
        text = f'[node]\nname = "{name}"\n{self.node}\n[[listen]]\nurl = "tcp://127.0.0.1:{self.ports[name]}"\n'
        for a, b in self.links:
            if name not in (a, b):
                continue
            other = b if name == a else a
            text += f'[[peer]]\nname = "{other}"\nheartbeat_s = {self.heartbeat_s}\nreconnect_max_s = 0.2\n'
            if name == a:
                relay = (relays or {}).get((a, b))
                text += f'url = "tcp://127.0.0.1:{relay.port if relay else self.ports[b]}"\n'
        text += f'[mesh]\nunit = "{self.units.get(name, "")}"\n{self.mesh}\n[measure]\ninterval_s = {self.interval_s}\n'
        return text + self.more


@contextlib.asynccontextmanager
async def relayed(
    plan: Plan, delays_ms: Mapping[tuple[str, str], float]
) -> AsyncIterator[dict[tuple[str, str], DelayRelay]]:
    """A relay for each of these links."""
    async with contextlib.AsyncExitStack() as stack:
        relays = {}
        for (a, b), delay_ms in delays_ms.items():
            relay = DelayRelay(plan.ports[b], delay_ms / 1e3)
            relays[a, b] = await stack.enter_async_context(relay)
        yield relays


@contextlib.asynccontextmanager
async def mesh(
    plan: Plan, relays: Mapping[tuple[str, str], DelayRelay] | None = None
) -> AsyncIterator[dict[str, Node]]:
    """Nodes in this process that know all of the mesh that they should."""
    async with running(*(plan.toml(name, relays) for name in plan.names)) as nodes:
        found = dict(zip(plan.names, nodes, strict=True))
        await eventually(lambda: all(joined(plan, node) for node in found.values()))
        yield found


@contextlib.asynccontextmanager
async def processes(
    plan: Plan, folder: Path, relays: Mapping[tuple[str, str], DelayRelay] | None = None
) -> AsyncIterator[dict[str, NodeProcess]]:
    """Nodes in processes of their own."""
    found: dict[str, NodeProcess] = {}
    try:
        for name in plan.names:
            path = folder / f"{name}.toml"
            path.write_text(plan.toml(name, relays))
        started = await asyncio.gather(*(NodeProcess.start("--dev", folder / f"{name}.toml") for name in plan.names))
        found = dict(zip(plan.names, started, strict=True))
        yield found
    finally:
        await asyncio.gather(*(process.end() for process in found.values()))


def joined(plan: Plan, node: Node) -> bool:
    """Whether a node sees every other node of its cluster and every unit of others."""
    assert node.mesh is not None
    me = plan.units.get(node.name, "")
    others = {name for name in plan.names if plan.units.get(name, "") == me}
    seen = {vertex_id.name for vertex_id in node.mesh.member.state.vertex_ids()}
    clusters = {unit for unit in plan.units.values() if unit.rpartition("/")[0] == me.rpartition("/")[0] and unit != me}
    return others - {node.name} <= seen and clusters <= seen


def way(node: Node, to: str, level: int = 0, profile: str = "default") -> list[str]:
    """Names on the way in use from a node to another one."""
    assert node.mesh is not None
    route = node.mesh.member.state.routes.route(profile, VertexId(level, to))
    return [] if route is None else [str(vertex_id) for vertex_id in route.vertex_ids]


def wants(node: Node, topic: str) -> set[str]:
    """Who wants a topic, as a node sees it."""
    assert node.mesh is not None
    return {str(vertex_id) for vertex_id in node.mesh.member.state.wanting("s", topic.encode())}


def quiet(node: Node) -> bool:
    """Whether a node has applied all that it knows."""
    assert node.mesh is not None
    return node.mesh.member.next_tick() > 0


def settled(nodes: Mapping[str, Node], delays_ms: Mapping[tuple[str, str], float], slack_ms: float = 3.0) -> bool:
    """Whether what both ends of each link measured is what their relay does, the noise of the start over."""
    for (a, b), delay_ms in delays_ms.items():
        for me, other in ((a, b), (b, a)):
            rows = {row["name"]: row for row in _rows(nodes[me])}
            mean_ms = rows[other]["mean_ms"] if other in rows else None
            if mean_ms is None or not delay_ms <= mean_ms <= delay_ms + slack_ms or rows[other]["window"] < WINDOW:
                return False
    return True


def _rows(node: Node) -> list[dict[str, Any]]:
    assert node.mesh is not None
    return node.mesh.page_rows("links")
