"""A whole managed deployment in one process: brokers, routers, channels, clients, and failures in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from chappe.core.sections import BrokerLink, Config, NodeSection
from chappe.linkstate.units import Address
from chappe.sim.build import Design
from chappe.sim.clock import Clock
from chappe.sim.connection import Connection, Timing
from chappe.sim.link import Quality
from chappe.sim.managed.broker import BrokerProcess, Make
from chappe.sim.managed.functions import Functions
from chappe.sim.managed.links import ManagementLink
from chappe.sim.managed.router import Router
from chappe.sim.managed.store import RoleStore
from chappe.sim.network import Network
from chappe.status.brokers import broker_of
from chappe.status.topology import Topology
from chappe.wire.base import Answer, Request

MANAGEMENT_MS = 5.0
REDIAL_MS = 500.0
NOTICE_MS = 50.0  # until both ends know that a channel has failed, at most


class ManagedNetwork:
    """Made from a topology; nothing runs yet. Each url of a broker is a process of its role, as in a deployment."""

    def __init__(
        self, topology: Topology, seed: int, *, grain_ms: float = 1.0, lease_s: float = 5.0, make: Make = broker_of
    ) -> None:
        self.topology = topology
        timing = Timing(heartbeat_ms=NOTICE_MS, misses=1, redial_ms=REDIAL_MS, grain_ms=grain_ms, expected=True)
        self._network = Network(seed, timing=timing)  # of routers and their channels
        self.clock: Clock = self._network.clock
        self.streams = self._network.streams
        self.stores = {spec.name: RoleStore(spec.name) for spec in topology.broker}
        self.brokers: dict[str, BrokerProcess] = {}
        self.routers: dict[str, Router] = {}
        self.channels: dict[tuple[str, str], Connection] = {}
        for spec in topology.broker:
            for place in range(len(spec.listen)):
                name = spec.process(place)
                self.brokers[name] = BrokerProcess(
                    name, spec.name, topology, self.clock, self.stores[spec.name], make, lease_s
                )
        for router in topology.router:
            self.routers[router.name] = self._router(router.name, router.cloud)
        self._link()
        for channel in topology.channel:
            one, other = channel.between
            self.channels[one, other] = self._network.join(one, other, Quality(delay_ms=channel.latency_ms))

    def _router(self, name: str, cloud: str) -> Router:
        config = Config(node=NodeSection(name=name), broker=BrokerLink(name=cloud, urls=()))
        functions = Functions(self.clock, lambda: node.client("worker", internal=True))
        node = self._network.add_node(Address((), name), Design(config, functions=functions))
        return Router(node, cloud, functions)

    def _link(self) -> None:
        """Routers dial every process of their broker, brokers every process of their parent."""
        of_role: dict[str, list[BrokerProcess]] = {}
        for process in self.brokers.values():
            of_role.setdefault(process.role, []).append(process)
        above = [(process, self.topology.brokers[process.role].parent) for process in self.brokers.values()]
        below: list[tuple[Router | BrokerProcess, str]] = [(each, each.role) for each in self.routers.values()]
        for dialler, role in itertools.chain(below, above):
            for process in of_role.get(role, ()):
                rng = self.streams.of("management", dialler.name, process.name)
                link = ManagementLink(self.clock, dialler, process, rng, MANAGEMENT_MS)
                dialler.links.append(link)
                process.links.append(link)

    def start(self) -> None:
        """Everything runs; the first process of each role has the lease before the others ask."""
        for process in self.brokers.values():
            process.start()
        for router in self.routers.values():
            router.start()

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._network.run(seconds)

    def leader(self, role: str) -> BrokerProcess | None:
        """The process that leads a role now."""
        return next((each for each in self.brokers.values() if each.role == role and each.leads), None)

    def operate(self, role: str, request: Request, answered: Callable[[Answer], None]) -> bool:
        """Ask the broker that leads a role; False if none does."""
        leader = self.leader(role)
        if leader is not None:
            leader.operate(request, answered)
        return leader is not None

    def channel(self, one: str, other: str) -> Connection:
        return self._network.link(one, other)
