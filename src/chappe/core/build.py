"""Puts a node together: the engine and every machine, each given what it needs."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chappe.core.access import Access, Reserved
from chappe.core.access_requests import AccessRequests
from chappe.core.cell_requests import CellRequests
from chappe.core.command_requests import CommandRequests
from chappe.core.commands import Commands, Configure, Functions
from chappe.core.control import Control
from chappe.core.edge import Edge
from chappe.core.finder import Finder
from chappe.core.mesh_requests import MeshRequests
from chappe.core.mesh_variables import ANYTHING, BACKGROUND
from chappe.core.node import NodeCore
from chappe.core.paths import PathTable
from chappe.core.peer_messages import PeerMessages
from chappe.core.peer_ports import PeerPorts
from chappe.core.registrations import Registrations
from chappe.core.roles import Role
from chappe.core.sections import Cells as CellSection
from chappe.core.sections import Config, Limits
from chappe.core.sessions import Sessions
from chappe.core.topic_requests import TopicRequests
from chappe.core.variable_requests import VariableRequests
from chappe.core.variables import Variables, static_routes
from chappe.engine._engine import Engine, ForwardingDecision
from chappe.engine.routes import ParcelRoute
from chappe.events.asked import Asked
from chappe.machine import Effect
from chappe.security.rules import RuleBook
from chappe.wire import feeds

if TYPE_CHECKING:  # a node that neither measures nor is a cell needs no NumPy
    from chappe.cells.machine import Cells
    from chappe.events.clients import MeshClients
    from chappe.events.member import Member
    from chappe.events.member_settings import MemberSettings
    from chappe.events.reporting import Reporter
    from chappe.linkstate.acceptance import Verify
    from chappe.linkstate.origination import Sign

MakeRole = Callable[[Sessions, Access], Role]


@dataclass(frozen=True, slots=True)
class Membership:
    """What the member of the mesh is made of, beside the configuration of its node."""

    settings: MemberSettings
    rng: random.Random
    sign: Sign | None = None
    verify: Verify | None = None
    reporter: Reporter | None = None
    decode: Callable[[bytes], Any] | None = None  # of advertisements, where their bytes are decoded already


@dataclass(frozen=True, slots=True)
class Cellhood:
    """What a cell is made of, beside the configuration of its node."""

    rng: random.Random
    urls: Callable[[], tuple[str, ...]] = tuple  # by which other cells can connect
    bandwidth: Callable[[int], float] | None = None  # of the link of a port, forth; None: what trains say


def build_node(
    config: Config,
    *,
    process: bytes,
    book: RuleBook,
    carry_out: Callable[[list[Effect]], None],
    configure: Configure,
    functions: Functions | None = None,
    role: MakeRole | None = None,
    membership: Membership | None = None,
    cellhood: Cellhood | None = None,
    seed: int | None = None,
) -> NodeCore:
    """A node without I/O.

    `process` is the number of this process; `carry_out` gets effects of what the engine asks while it is fed.
    `configure(channels)` gives the node these links when a broker says so. `seed` keys the hashes of the engine.
    """
    name, node = config.node.name, config.node
    sessions = Sessions()
    access = Access(config.address, book, sessions, _reserved(membership))

    def authorize(port: int, kind: str, topic: bytes) -> bool:
        allowed = access.authorize(port, kind, topic)
        if not allowed:
            carry_out(access.denials())
        return allowed

    def plan_route(kind: str, topic: bytes) -> ForwardingDecision:
        assert member is not None
        return member.decisions.plan_route(kind, topic)

    def forward_route(port: int, source_route: bytes, kind: str, topic: bytes) -> ForwardingDecision:
        assert member is not None
        return member.decisions.forward_route(port, source_route, kind, topic)

    def parcel_routes(destination: bytes) -> list[ParcelRoute]:
        assert cells is not None
        return cells.parcel_routes(destination)

    meshed = membership is not None and membership.settings.mesh
    engine = Engine(
        layout=node.layout, authorize=authorize, plan_route=plan_route if meshed else None,
        forward_route=forward_route if meshed else None,
        parcel_routes=parcel_routes if config.cells is not None else None, seed=seed, **engine_limits(config.limits),
    )  # fmt: skip
    engine.topics.place(config.address)
    engine.status.slot = node.mode
    ports = PeerPorts(engine)
    away_ns = round(node.away_s * 1e9)

    def seek(pattern: str, on: bool) -> None:
        if member is not None and meshed:
            member.discovery.seek(pattern, on)

    def asks(port: int, address: str, origin: str) -> Asked:
        return Asked.YES if member is None else member.discovery.asks(port, address, origin)

    variables = Variables(
        engine, config.leaf, static_routes(config), ports.get, away_ns, access.neighbours.watches,
        config.address if meshed else "", seek, asks, ANYTHING if config.broker is None else BACKGROUND,
    )  # fmt: skip
    paths = PathTable(engine, variables, ports.get, access.neighbours, ports.names)
    commands = Commands(engine, paths, configure, functions)
    edge: Edge | None = None
    if config.broker is not None:
        edge = Edge(name, process, config.broker.name, away_ns, commands.fence, sessions, variables)
    member: Member | None = None
    mesh: MeshClients | None = None
    if membership is not None:
        member, mesh = _join(config, engine, access, membership, variables)
    cells: Cells | None = None
    if config.cells is not None and cellhood is not None:
        cells = _cell(config, config.cells, engine, cellhood, member)
    registrations = Registrations(variables, edge, sessions, lambda: commands.modes.mode, meshed)
    finder = Finder(variables, sessions, access, config.limits, edge)
    control = Control(
        sessions, variables, commands, registrations, CommandRequests(name, commands, access, sessions),
        VariableRequests(
            registrations, variables, commands, access, config.limits,
            finder,
        ),
        TopicRequests(config.address, engine.topics, access, mesh, config.limits), MeshRequests(name, mesh, access),
        AccessRequests(name, access), CellRequests(name, cells, access),
        PeerMessages(variables, registrations, access, edge, finder, config.limits),
    )  # fmt: skip
    return NodeCore(
        name, engine, sessions, access, ports, variables, paths, commands, control, edge,
        role(sessions, access) if role is not None else None, member, mesh, cells,
        config.measure is not None and config.measure.clients,
    )  # fmt: skip


def engine_limits(limits: Limits) -> dict[str, Any]:
    """What the engine needs of `[limits]` for all ports together."""
    return {
        "memory_bytes": limits.memory_bytes or _memory_budget(), "max_routed_topics": limits.forwarding_entries,
        "account_topics": limits.identity_topics, "account_bytes": limits.identity_queue_bytes,
    }  # fmt: skip


def _memory_budget() -> int:
    """What the engine of a node may hold unless the file says: half of the machine's memory, 1 GiB at most."""
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2, 1 << 30)


def _join(
    config: Config, engine: Engine, access: Access, membership: Membership, variables: Variables
) -> tuple[Member, MeshClients]:
    from chappe.events.clients import MeshClients
    from chappe.events.member import Member
    from chappe.events.parts import MemberParts
    from chappe.linkstate.units import Address

    section, rules = config.mesh, access.neighbours
    unit = section.unit if section is not None else ""
    member = Member(MemberParts(
        Address.parse(unit, config.node.name), engine, membership.settings, membership.rng,
        sign=membership.sign, verify=membership.verify, decode=membership.decode, withheld=rules.withheld,
        reporter=membership.reporter, source=variables.mesh,
    ))  # fmt: skip
    publications = [("s", pattern) for pattern in section.publications] if section is not None else []
    return member, MeshClients(member, publications, rules.publishes)


def _cell(config: Config, section: CellSection, engine: Engine, cellhood: Cellhood, member: Member | None) -> Cells:
    from chappe.cells.machine import Cells
    from chappe.cells.parts import CellParts
    from chappe.core.cell_settings import settings_of

    def trained(port: int) -> float:
        """What trains say of a link, NaN if nothing."""
        link = member.links.by_port.get(port) if member is not None else None
        return link.trains.estimate if link is not None and link.trains is not None else math.nan

    bandwidth = cellhood.bandwidth or trained
    return Cells(CellParts(config.address, engine, settings_of(section), cellhood.rng, cellhood.urls, bandwidth))


def _reserved(membership: Membership | None) -> Reserved:
    """Where only nodes publish: what they say of themselves."""
    if membership is None or not membership.settings.mesh:
        return feeds.reserved
    from chappe.events import notices

    return lambda kind, topic: feeds.reserved(kind, topic) or notices.reserved(kind, topic)
