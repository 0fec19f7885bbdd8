"""One cloud in memory: a leaf broker, its routers, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from chappe.status.leaf.broker import LeafBroker
from chappe.status.leaf.path_setup import hops
from chappe.status.leaf.state import GRANTED, read
from chappe.status.machine import Broker
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.wire.base import Message, Qos
from chappe.wire.management import Entity
from tests.support.modelrouter import ModelRouter
from tests.support.plane import Plane

LEAF = "leaf"
NUMBER = 7


def topology_of(lines: str, inner: str = "", **channel: Any) -> Topology:
    """A cloud of routers named by one letter: `a-b-c a-d-c` are channels; those in `inner` are not edges."""
    pairs: dict[tuple[str, str], None] = {}
    for line in lines.split():
        for one, other in pairwise(line.split("-")):
            pairs[min(one, other), max(one, other)] = None
    names = sorted({name for pair in pairs for name in pair} or set(lines.split()))
    return Topology(
        broker=(BrokerSpec(name=LEAF, listen=("tcp://127.0.0.1:1",), number=NUMBER),),
        router=tuple(RouterSpec(name=name, cloud=LEAF, listen=f"tcp://127.0.0.1:{n}", edge=name not in inner)
                     for n, name in enumerate(names, 2)),
        channel=tuple(ChannelSpec(between=pair, **channel) for pair in pairs),
    )  # fmt: skip


class Cloud:
    """A plane with one leaf broker that leads, and all its routers."""

    def __init__(self, lines: str, inner: str = "", choose: Callable[[int], int] | int = 0, **channel: Any) -> None:
        topology = topology_of(lines, inner, **channel)
        self.start(topology, lambda role: LeafBroker(role, topology, NUMBER), choose)
        self.plane.start(LEAF)
        self.plane.start_routers()
        self.plane.settle()

    def start(self, topology: Topology, make: Callable[[str], Broker], choose: Callable[[int], int] | int = 0) -> None:
        self.plane = Plane(topology, make, choose)

    @property
    def leaf(self) -> LeafBroker:
        broker = self.plane.broker(LEAF)
        assert isinstance(broker, LeafBroker)
        return broker

    def router(self, name: str) -> ModelRouter:
        return self.plane.routers[name]

    def client(self, router: str, name: str) -> Entity:
        """An end-entity that is attached there; the same one for the same name."""
        edge = self.router(router)
        return edge.entities.get(name) or edge.attach(name)

    def publish(self, router: str, variable: str, *interval: int, client: str = "", **fields: Any) -> Message:
        entity = self.client(router, client or f"publisher.{router}")
        return self.ask(router, self.router(router).publish(entity, variable, *interval, **fields))

    def unpublish(self, router: str, variable_id: int, client: str = "") -> Message:
        entity = self.client(router, client or f"publisher.{router}")
        return self.ask(router, self.router(router).unpublish(entity, variable_id))

    def subscribe(self, router: str, variable: str, *qos: Qos, client: str = "", **fields: Any) -> Message:
        entity = self.client(router, client or f"viewer.{router}")
        return self.ask(router, self.router(router).subscribe(entity, variable, *qos, **fields))

    def unsubscribe(self, router: str, variable_id: int, client: str = "") -> Message:
        entity = self.client(router, client or f"viewer.{router}")
        return self.ask(router, self.router(router).unsubscribe(entity, variable_id))

    def restart(self) -> None:
        """The broker process is killed and another one begins with what was committed."""
        self.plane.kill(LEAF)
        self.plane.start(LEAF)
        self.plane.settle()

    def ask(self, router: str, request: int) -> Message:
        """The answer to a request that was sent by a router."""
        self.plane.settle()
        return self.router(router).answers[request]

    def check(self) -> None:
        """The tables of connected routers are exactly what the durable state says, and so are the reservations."""
        check(self.plane, LEAF)


def check(plane: Plane, role: str, process: str = "") -> None:
    """Tables of routers, loads and durable state of a role are the same; nothing doubled, nothing half allocated."""
    items = read(plane.stores[role].load())
    leaf = plane.broker(process or role)
    assert isinstance(leaf, LeafBroker)
    expected: dict[str, dict[tuple[int, int], object]] = {name: {} for name in leaf.parts.cloud.topology_state.routers}
    for subscription in items["subscription"].values():
        assert subscription.state == GRANTED, subscription
        assert subscription.held is None
        if not subscription.remote:
            for router, path, _ in hops(subscription.variable, subscription.grants, subscription.segments):
                assert expected[router].setdefault((path.variable.variable_id, path.path), path) is path
    for reservation in items["reservation"].values():
        for router, path, _ in hops(reservation.variable, reservation.grants, reservation.segments):
            assert expected[router].setdefault((path.variable.variable_id, path.path), path) is path
    for name, paths in expected.items():
        assert plane.routers[name].paths == paths, name
    assert not items["leftover"]
    assert not items["notice"]
    fresh = LeafBroker(role, plane.topology, NUMBER)
    fresh.restore(plane.stores[role].load())
    ours = {row["resource"]: row["load"] for row in leaf.parts.cloud.allocator.loads()}
    assert ours == {row["resource"]: row["load"] for row in fresh.parts.cloud.allocator.loads()}
    names = {(s.entity, s.function, s.publisher, s.name) for s in items["subscription"].values()}
    assert len(names) == len(items["subscription"])
