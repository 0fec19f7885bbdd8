"""The parts of an inner broker, each made of those it uses: the one module that puts them together."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.status.allocation.allocation import Allocator
from chappe.status.condensation.inter_cloud import InterCloudFunctions
from chappe.status.flooding.inner import TreeFloods
from chappe.status.inner.administration import TreeAdministration
from chappe.status.inner.ancestor_reservations import AncestorReservations
from chappe.status.inner.calls import Calls
from chappe.status.inner.claims import Claims
from chappe.status.inner.inter_cloud import InterCloudSubscriptions
from chappe.status.inner.netview import NetView
from chappe.status.inner.rows import ListedParts
from chappe.status.modes.machines import InnerModes
from chappe.status.names import NameSearch
from chappe.status.outbox import Outbox
from chappe.status.topology import Topology


@dataclass(frozen=True, slots=True)
class InnerParts:
    """Everything an inner broker is made of; each part keeps one kind of state."""

    outbox: Outbox
    calls: Calls
    allocator: Allocator
    view: NetView
    claims: Claims
    inter_cloud: InterCloudSubscriptions
    ancestor_reservations: AncestorReservations
    functions: InterCloudFunctions
    flooding: TreeFloods
    modes: InnerModes
    administration: TreeAdministration
    listed: ListedParts
    names: NameSearch


def inner_parts(role: str, topology: Topology) -> InnerParts:
    """The parts of one inner broker."""
    outbox = Outbox()
    calls = Calls(outbox)
    allocator = Allocator(topology.latency_model)
    view = NetView(role, topology, allocator)
    has_parent = bool(topology.brokers[role].parent)
    claims = Claims(outbox, calls, has_parent)
    inter_cloud = InterCloudSubscriptions(outbox, calls, view, allocator, claims, has_parent)
    flooding = TreeFloods(outbox, calls, view, claims, has_parent)
    modes = InnerModes(view.height)
    return InnerParts(
        outbox, calls, allocator, view, claims, inter_cloud,
        AncestorReservations(outbox, calls, view, allocator),
        InterCloudFunctions(outbox, calls, view, claims, has_parent),
        flooding, modes,
        TreeAdministration(outbox, calls, view, claims, inter_cloud.decisions),
        ListedParts(role, view, allocator, claims, inter_cloud.decisions, flooding, modes),
        NameSearch(outbox, {}),
    )  # fmt: skip
