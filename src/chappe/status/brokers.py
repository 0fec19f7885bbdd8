"""The broker of a role: leaf or inner, by its place in the tree."""

from __future__ import annotations

from chappe.status.inner.broker import InnerBroker
from chappe.status.leaf.broker import LeafBroker
from chappe.status.machine import Broker
from chappe.status.topology import Topology


def broker_of(role: str, topology: Topology) -> Broker:
    """The state machine of a role: a leaf if no broker is below it."""
    if topology.children(role):
        return InnerBroker(role, topology)
    return LeafBroker(role, topology, topology.number(role))
