"""Puts the process of a node together: its machines, its links, and what carries out their effects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chappe.core.access import Access
from chappe.core.build import Cellhood, Membership, build_node
from chappe.core.node import NodeCore
from chappe.core.roles import RoleProcess
from chappe.core.sections import Config
from chappe.core.sessions import Sessions
from chappe.links._socket import clocks
from chappe.links.registry import Switches
from chappe.machine import Dial, HangUp
from chappe.runtime.background import Pacer
from chappe.runtime.feeds import Feeds
from chappe.runtime.functions import Functions
from chappe.runtime.gate import Gate
from chappe.runtime.links.alternates import Alternates
from chappe.runtime.links.carrier import Carrier
from chappe.runtime.links.channels import Channels
from chappe.runtime.links.connections import Connections
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.links.groups import Groups
from chappe.runtime.links.management import ManagementLinks
from chappe.runtime.links.peers import Peers
from chappe.runtime.listening import Listening
from chappe.runtime.reception import Reception
from chappe.runtime.renewal import Renewal
from chappe.runtime.rows import Facts
from chappe.runtime.shell import BROKER_BUDGET_NS, BUDGET_NS, Shell
from chappe.security.audit import AuditLog
from chappe.security.credentials import Credentials
from chappe.security.identity import Identity
from chappe.security.rules import RuleBook
from chappe.wire.control import Goodbye

if TYPE_CHECKING:  # a node that does not measure needs no NumPy
    from chappe.events.reports import Reports
    from chappe.runtime.mesh.driver import MeshDriver
    from chappe.runtime.mesh.signing import Verifier

MakeRoleProcess = Callable[[Sessions, Access], RoleProcess]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the process of a node consists of."""

    core: NodeCore
    role: RoleProcess | None
    mesh: MeshDriver | None
    connections: Connections
    peers: Peers
    channels: Channels
    carrier: Carrier
    datagrams: Datagrams
    alternates: Alternates
    management: ManagementLinks
    shell: Shell
    gate: Gate
    reception: Reception
    listening: Listening
    functions: Functions
    feeds: Feeds
    facts: Facts
    renewal: Renewal
    audit: AuditLog | None

    def follow_brokers(self, urls: Iterable[str]) -> None:
        """Keep a management link to each of these, and to no others."""
        for peer in self.management.follow(tuple(urls)):
            self.carrier.remove_peer(peer, "no longer in the configuration")


def build_parts(
    config: Config, *, dev: bool, process: bytes, credentials: Credentials, hurry: Callable[[], None],
    role: MakeRoleProcess | None = None,
) -> Parts:  # fmt: skip
    """The parts of a node that does not run yet. `hurry()` asks for a tick soon.

    Parts that call each other get functions that look the other one up here when they are called.
    """
    name = config.node.name
    audit = AuditLog(config.audit) if config.audit else None
    roles: list[RoleProcess] = []
    make_role = role or role_of(config, process)

    def remember(sessions: Sessions, access: Access) -> RoleProcess:
        assert make_role is not None
        roles.append(make_role(sessions, access))
        return roles[0]

    reports, verifier, membership = _membership(config, credentials, dev)
    functions = Functions(name, lambda raw, admit: listening.accept_worker(raw, admit))
    given = config.cells.urls if config.cells is not None else ()
    core = build_node(
        config, process=process, book=rules_of(config, dev), carry_out=lambda effects: shell.perform(effects),
        configure=lambda channels: channels_.configure(channels), functions=functions,
        role=remember if make_role is not None else None, membership=membership,
        cellhood=Cellhood(random.Random(), lambda: given or listening.for_nodes),
    )  # fmt: skip
    engine = core.engine
    clocks(engine)
    connections = Connections(engine, lambda connection, reason: carrier.ended(connection, reason), hurry)
    connections.transports.follow(switches_of(config))
    peers = Peers(
        name, process, engine, core.ports,
        lambda peer, raw, identity, agreement: carrier.carry_peer(peer, raw, identity, agreement),
        lambda: credentials.client, config.tls is not None, config.capabilities,
        lambda: tuple(str(address) for address in listening.addresses),
    )  # fmt: skip
    groups = Groups(
        engine, connections, connections.send, lambda port: core.variables.peer_up(port, False, engine.mono_ns)
    )
    datagrams = Datagrams(engine, connections, groups, connections.send)
    alternates = Alternates(engine, peers, datagrams, connections.transports)
    facts = Facts(core, connections, peers, functions.rows)
    counters = config.counters
    feeds = Feeds(core, counters.every_s if counters is not None else None, core.member is not None or bool(roles))
    mesh: MeshDriver | None = None

    def hasten() -> None:
        if mesh is not None:
            mesh.hasten()

    def dialling(effect: Dial | HangUp) -> None:
        if isinstance(effect, Dial):
            peers.keep(effect)
            return
        connection = peers.leave(effect.name)
        if connection is not None:
            connections.close(connection, "no cell wants it", message=Goodbye(reason=f"{name} has other neighbours"))

    shell = Shell(
        core, connections, audit, datagrams, alternates, facts.rows, feeds.publish_event, hasten, dialling,
        BROKER_BUDGET_NS if config.manages else BUDGET_NS,
    )  # fmt: skip
    if membership is not None:
        from chappe.runtime.mesh.driver import MeshDriver

        mesh = MeshDriver(core, config, connections, peers, shell.perform, reports, credentials, verifier)

    def linked(port: int, kind: str, peer: str) -> None:
        if mesh is not None:
            mesh.switch(port, kind, peer)

    carrier = Carrier(core, connections, peers, datagrams, shell, config.limits, linked)
    channels_ = Channels(config, peers, carrier.remove_peer, dev)
    gate = Gate(shell.accounts, Pacer(shell.data_bytes))
    reception = Reception(
        node=name, address=config.address, process=process, connections=connections, peers=peers, gate=gate,
        credentials=None if dev else credentials, limits=config.limits, mode=lambda: core.commands.modes.mode,
        open_client=carrier.open_client, restarted=carrier.restarted, capabilities=config.capabilities,
        stamps=config.mesh is not None, connected=core.sessions.connections,
        ready=mesh.joined if mesh is not None else None,
    )  # fmt: skip
    listening = Listening(reception, datagrams, gate, credentials)

    def objection(identity: Identity) -> str | None:
        decision = core.access.book.allows(identity, "control", f"{name}/Lead")
        return None if decision else decision.reason

    return Parts(
        core, roles[0] if roles else None, mesh, connections, peers, channels_, carrier, datagrams, alternates,
        ManagementLinks(peers, objection), shell, gate, reception, listening, functions, feeds, facts,
        Renewal(name, peers, connections), audit,
    )  # fmt: skip


def rules_of(config: Config, dev: bool) -> RuleBook:
    """Who may do what: in development everybody everything."""
    return RuleBook.open() if dev else RuleBook.of(config.rule)


def switches_of(config: Config) -> dict[str, Switches]:
    """What `[transport.KIND]` says is done for all links of a kind (MR-045)."""
    return {
        kind: Switches(
            entry.measure, None if entry.measure_s is None else round(entry.measure_s * 1e9),
            entry.detect, None if entry.heartbeat_s is None else round(entry.heartbeat_s * 1e9),
        )
        for kind, entry in config.transport.items()
    }  # fmt: skip


def role_of(config: Config, process: bytes) -> MakeRoleProcess | None:
    """The role that its configuration gives a node."""
    manages = config.manages
    if manages is None:
        return None
    from chappe.runtime.broker.role import BrokerRole  # a router needs no store and no planning

    return lambda sessions, access: BrokerRole(config.node.name, process, manages, sessions, access)


def _membership(
    config: Config, credentials: Credentials, dev: bool
) -> tuple[Reports | None, Verifier | None, Membership | None]:
    """What the member of the mesh is made of, where the node measures, is in one, or is a cell."""
    if config.mesh is None and config.measure is None and config.cells is None:
        return None, None, None
    from chappe.core.mesh_settings import report_settings, settings_of
    from chappe.core.sections import Measure
    from chappe.events.reports import Reports
    from chappe.measure import cost
    from chappe.runtime.mesh.signing import Signer, Verifier

    for name, formula in config.mesh.formula.items() if config.mesh is not None else ():
        if name not in cost.PROFILES:
            cost.register(name, formula)
    measure = config.measure or Measure()
    if config.cells is not None:
        measure = msgspec.structs.replace(measure, bandwidth=True)
    settings = settings_of(config.mesh, measure, config.capabilities)
    report = config.report
    reports = Reports(config.node.name, report_settings(report), settings.profile) if report is not None else None
    signs = config.mesh is not None and config.tls is not None and not dev
    verifier = Verifier(credentials) if signs else None
    sign = Signer(credentials) if signs else None
    return reports, verifier, Membership(settings, random.Random(), sign, verifier, reports)
