"""The parts of a leaf broker, each made of those it uses: the one module that puts them together."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.status.condensation.placement import Functions
from chappe.status.condensation.remote_functions import RemoteFunctions
from chappe.status.condensation.remote_parts import RemoteParts
from chappe.status.flooding.leaf import LeafFlooding
from chappe.status.leaf.administration import CloudAdministration
from chappe.status.leaf.attachments import Attachments
from chappe.status.leaf.cancellations import Cancellations
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.entities import Entities
from chappe.status.leaf.function_admission import FunctionAdmission
from chappe.status.leaf.notices import Notices
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.path_segments import Segments
from chappe.status.leaf.publication_admission import PublicationAdmission
from chappe.status.leaf.publishers import Publishers
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.rate_change_checks import RateChangeChecks
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.subscription_admission import SubscriptionAdmission
from chappe.status.leaf.subscriptions import Subscriptions
from chappe.status.leaf.withdrawals import Withdrawals
from chappe.status.modes.machines import LeafModes
from chappe.status.names import NameSearch
from chappe.status.topology import Topology


@dataclass(frozen=True, slots=True)
class LeafParts:
    """Everything a leaf broker is made of; each part keeps one kind of state."""

    cloud: Cloud
    parent: ParentLink
    modes: LeafModes
    entities: Entities
    registry: Registry
    subscriptions: Subscriptions
    remote_subscriptions: RemoteSubscriptions
    segments: Segments
    publishers: Publishers
    flooding: LeafFlooding
    notices: Notices
    functions: Functions
    remote_functions: RemoteFunctions
    remote_parts: RemoteParts
    rate_changes: RateChanges
    cancellations: Cancellations
    withdrawals: Withdrawals
    attachments: Attachments
    publishing: PublicationAdmission
    subscribing: SubscriptionAdmission
    condensing: FunctionAdmission
    administration: CloudAdministration
    names: NameSearch


def leaf_parts(role: str, topology: Topology, number: int) -> LeafParts:
    """The parts of one leaf broker; `number` is the upper ten bits of the variable ids it issues."""
    cloud = Cloud(role, topology)
    parent = ParentLink(cloud, bool(topology.brokers[role].parent))
    entities = Entities(cloud)
    registry = Registry(cloud, number)
    subscriptions = Subscriptions(cloud)
    remote_subscriptions = RemoteSubscriptions(subscriptions, parent)
    segments = Segments(cloud, registry, subscriptions, parent)
    publishers = Publishers(cloud, parent)
    flooding = LeafFlooding(cloud, registry, parent)
    notices = Notices(cloud)
    remote_functions = RemoteFunctions(cloud, parent)
    remote_parts = RemoteParts(cloud, parent)
    functions = Functions(cloud, registry, subscriptions, remote_subscriptions, remote_parts)
    checks = RateChangeChecks(subscriptions, segments, flooding, functions)
    rate_changes = RateChanges(cloud, registry, subscriptions, entities, flooding, checks)
    cancellations = Cancellations(subscriptions, remote_subscriptions, rate_changes, notices)
    withdrawals = Withdrawals(
        cloud, registry, publishers, subscriptions, remote_subscriptions, segments, rate_changes, cancellations
    )
    attachments = Attachments(cloud, entities, withdrawals)
    names = NameSearch(cloud.outbox, registry.by_name)
    return LeafParts(
        cloud, parent, LeafModes(), entities, registry, subscriptions, remote_subscriptions, segments, publishers,
        flooding, notices, functions, remote_functions, remote_parts, rate_changes, cancellations, withdrawals,
        attachments,
        PublicationAdmission(cloud, entities, attachments, registry, publishers, functions, flooding,
                             remote_subscriptions, rate_changes, withdrawals, names),
        SubscriptionAdmission(cloud, parent, entities, attachments, registry, subscriptions, remote_subscriptions,
                              rate_changes, cancellations),
        FunctionAdmission(cloud, parent, attachments, registry, publishers, functions, remote_functions, rate_changes),
        CloudAdministration(cloud, topology, registry, flooding, parent),
        names,
    )  # fmt: skip
