"""A whole tree of brokers with all its routers in memory, and the check that no path is half allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chappe.status.allocation.rates import event_bytes
from chappe.status.inner.broker import InnerBroker
from chappe.status.inner.decisions import DecisionItem
from chappe.status.leaf.broker import LeafBroker
from chappe.status.leaf.path_setup import hops
from chappe.status.leaf.state import GRANTED, read
from chappe.status.machine import Broker
from chappe.status.topology import Topology
from chappe.wire.base import Message, Qos
from tests.support.modelrouter import ModelRouter
from tests.support.plane import Plane


class Forest:
    """Everything is started, connected and settled."""

    def __init__(self, topology: Topology, choose: Callable[[int], int] | int = 0) -> None:
        self.topology = topology
        self.plane = Plane(topology, self._make, choose)
        for broker in topology.broker:
            self.plane.start(broker.name)
        self.plane.start_routers()
        self.plane.settle()
        self.active = {broker.name: broker.name for broker in topology.broker}

    def _make(self, role: str) -> Broker:
        if self.topology.children(role):
            return InnerBroker(role, self.topology)
        return LeafBroker(role, self.topology, self.topology.number(role))

    def inner(self, role: str) -> InnerBroker:
        broker = self.plane.broker(self.active[role])
        assert isinstance(broker, InnerBroker)
        return broker

    def leaf(self, role: str) -> LeafBroker:
        broker = self.plane.broker(self.active[role])
        assert isinstance(broker, LeafBroker)
        return broker

    def router(self, name: str) -> ModelRouter:
        return self.plane.routers[name]

    def publish(self, edge: str, name: str, **fields: Any) -> int:
        """Register `publisher/variable` at an edge; the id that was issued."""
        router = self.router(edge)
        publisher = name.partition("/")[0]
        entity = router.entities.get(publisher) or router.attach(publisher)
        request = router.publish(entity, name, **fields)
        self.plane.settle()
        return router.answers[request].variable_id  # type: ignore[attr-defined, no-any-return]

    def subscribe(self, edge: str, name: str, *qos: Qos, reader: str = "", **fields: Any) -> int:
        """Ask for a subscription; the number of the request."""
        router = self.router(edge)
        reader = reader or f"reader.{edge}"
        entity = router.entities.get(reader) or router.attach(reader)
        return router.subscribe(entity, name, *qos, **fields)

    def granted(self, edge: str, name: str, *qos: Qos, reader: str = "", **fields: Any) -> Message:
        """The answer to a subscription."""
        request = self.subscribe(edge, name, *qos, reader=reader, **fields)
        self.plane.settle()
        return self.router(edge).answers[request]

    def tables(self) -> dict[str, list[tuple[str, str]]]:
        """Where each router takes streams from and sends them to; routers without any are left out."""
        return {name: sorted((path.source, path.target) for path in router.paths.values())
                for name, router in sorted(self.plane.routers.items()) if router.paths}  # fmt: skip

    def decisions(self) -> dict[str, DecisionItem]:
        """What all inner brokers have decided, from their stores."""
        found: dict[str, DecisionItem] = {}
        for stored in self.plane.stores.values():
            for (kind, key), value in stored.items.items():
                if kind == "decision":
                    assert key not in found, f"{key} is allocated twice"
                    found[key] = msgspec.msgpack.decode(value, type=DecisionItem)
        return found

    def check(self) -> None:
        """Tables are exactly the granted subscriptions, at every leaf and across them."""
        decisions = self.decisions()
        seeking: set[str] = set()
        promised: dict[str, set[str]] = {}
        for role in self.topology.leaves:
            items = read(self.plane.stores[role].load())
            expected: dict[str, dict[tuple[int, int], object]] = {name: {} for name in self.topology.members(role)}
            segments = [(s.variable, s.grants, s.segments) for s in items["subscription"].values() if not s.remote]
            segments += [(r.variable, r.grants, r.segments) for r in items["reservation"].values()]
            for variable, grants, pieces in segments:
                for router, path, _ in hops(variable, grants, pieces):
                    assert expected[router].setdefault((variable.variable_id, path.path), path) is path
            for name, paths in expected.items():
                assert self.router(name).paths == paths, f"table of {name}"
            for subscription in items["subscription"].values():
                assert subscription.state == GRANTED, subscription
                if subscription.remote:
                    seeking.add(subscription.key)
            for key in items["reservation"]:
                promised.setdefault(key, set()).add(role)
        for role in self.topology.brokers:
            for kind, key in self.plane.stores[role].items:
                if kind == "promise":
                    assert self.inner(role).parts.ancestor_reservations.by_key[key].committed
                    promised.setdefault(key, set()).add(role)
        assert all(item.ended is None for item in decisions.values())
        assert {key: set(item.clouds) for key, item in decisions.items()} == promised
        assert decisions.keys() == seeking
        self._within_capacity()
        for broker in self.topology.broker:
            if self.topology.children(broker.name):
                self._same_loads(broker.name)

    def _within_capacity(self) -> None:
        """By the tables of routers alone: no channel of the deployment carries more than it can."""
        for channel in self.topology.channel:
            for a, b in (channel.between, channel.between[::-1]):
                streams: dict[int, float] = {}
                for path in self.router(a).paths.values():
                    if path.target == b:
                        load = event_bytes(path.variable) * 1e9 / path.intervals_ns[0]
                        number = path.variable.variable_id
                        streams[number] = max(load, streams.get(number, 0.0))
                assert sum(streams.values()) <= channel.bytes_per_s, f"{a} - {b}: {streams}"

    def _same_loads(self, role: str) -> None:
        """What the broker has reserved is what one that starts now would have."""
        fresh = InnerBroker(role, self.topology)
        fresh.restore(self.plane.stores[role].load())
        assert fresh.rows("loads") == self.inner(role).rows("loads")
