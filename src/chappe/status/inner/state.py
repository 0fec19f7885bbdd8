"""What an inner broker keeps durable: the struct of each kind of item, and how a store is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from chappe.machine import Change
from chappe.status.flooding.inner import FloodItem, UnfloodItem
from chappe.status.inner.administration import ChildItem
from chappe.status.inner.ancestor_reservations import AncestorReservation
from chappe.status.inner.claims import ClaimItem
from chappe.status.inner.decisions import DecisionItem
from chappe.status.leaf.state import ChannelItem, Item, ModeItem

KINDS: dict[str, type[Item]] = {
    "child": ChildItem,
    "channel": ChannelItem,
    "claim": ClaimItem,
    "decision": DecisionItem,
    "flood": FloodItem,
    "unflood": UnfloodItem,
    "mode": ModeItem,
    "promise": AncestorReservation,
}


def read(items: Iterable[Change]) -> dict[str, dict[str, Any]]:
    """The items by kind and key; kinds that an inner broker does not keep are left out."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for change in items:
        if change.kind in KINDS and change.value is not None:
            found[change.kind][change.key] = msgspec.msgpack.decode(change.value, type=KINDS[change.kind])
    return found
