"""A whole managed deployment in one process: brokers, routers, channels, clients, and failures in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from chappe.sim.clock import Clock, Streams
from chappe.sim.link import Quality
from chappe.sim.managed.broker import BrokerProcess, Make
from chappe.sim.managed.channel import Channel
from chappe.sim.managed.links import ManagementLink
from chappe.sim.managed.router import Router
from chappe.sim.managed.store import RoleStore
from chappe.status.brokers import broker_of
from chappe.status.topology import Topology
from chappe.wire.base import Answer, Request

MANAGEMENT_MS = 5.0


class ManagedNetwork:
    """Made from a topology; nothing runs yet. Each url of a broker is a process of its role, as in a deployment."""

    def __init__(
        self, topology: Topology, seed: int, *, grain_ms: float = 1.0, lease_s: float = 5.0, make: Make = broker_of
    ) -> None:
        self.topology = topology
        self.clock = Clock(self._settle)
        self.streams = Streams(seed)
        self._touched: dict[Router, None] = {}
        self.stores = {spec.name: RoleStore(spec.name) for spec in topology.broker}
        self.brokers: dict[str, BrokerProcess] = {}
        self.routers: dict[str, Router] = {}
        self.channels: dict[tuple[str, str], Channel] = {}
        for spec in topology.broker:
            for place in range(len(spec.listen)):
                name = spec.process(place)
                self.brokers[name] = BrokerProcess(
                    name, spec.name, topology, self.clock, self.stores[spec.name], make, lease_s
                )
        for router in topology.router:
            self.routers[router.name] = Router(router.name, router.cloud, self.clock, self._touch)
        self._link()
        for channel in topology.channel:
            one, other = channel.between
            quality = Quality(delay_ms=channel.latency_ms)
            rng = self.streams.of("channel", one, other)
            ends = (self.routers[one], self.routers[other])
            made = Channel(self.clock, ends, quality, rng, max(1, round(grain_ms * 1e6)))
            self.channels[one, other] = made
            ends[0].channels[other] = ends[1].channels[one] = made

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
        self.clock.run(seconds)

    def leader(self, role: str) -> BrokerProcess | None:
        """The process that leads a role now."""
        return next((each for each in self.brokers.values() if each.role == role and each.leads), None)

    def operate(self, role: str, request: Request, answered: Callable[[Answer], None]) -> bool:
        """Ask the broker that leads a role; False if none does."""
        leader = self.leader(role)
        if leader is not None:
            leader.operate(request, answered)
        return leader is not None

    def channel(self, one: str, other: str) -> Channel:
        return self.channels.get((one, other)) or self.channels[other, one]

    def _touch(self, router: Router) -> None:
        self._touched[router] = None

    def _settle(self) -> None:
        while self._touched:
            touched, self._touched = self._touched, {}
            for router in touched:
                router.settle()
