"""Chappe: status and events across a wide area, with the quality each subscriber asked for.

    async with chappe.connect("tcp://127.0.0.1:7400") as client:
        client.publish("plant/alarm", b"valve 7")

Names are loaded when they are first used: importing the package alone loads no compiled module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chappe import errors
    from chappe.client import derived, extrapolation, sync
    from chappe.client._inbox import Message, Subscription
    from chappe.client._status import StatusEvent, StatusStream, Watch
    from chappe.client._variables import Variable, VariableGroup
    from chappe.client.arrivals import CellMessage
    from chappe.client.cells import Cell, Sent
    from chappe.client.client import Client
    from chappe.client.connecting import connect
    from chappe.client.derived import DerivedHolder, Maximum, Mean, Minimum, RateOfChange
    from chappe.client.extrapolation import Average, Averaged, Polynomial, Rational
    from chappe.client.groups import Group
    from chappe.client.quality import Granted, Qos
    from chappe.client.snapshots import Snapshot
    from chappe.client.topics import Long
    from chappe.client.violations import Violation
    from chappe.wire.addresses import Address
    from chappe.wire.management import Function, Input

__version__ = "0.1.0"

_HOMES = {
    "Address": "chappe.wire.addresses",
    "Average": "chappe.client.extrapolation",
    "Averaged": "chappe.client.extrapolation",
    "Cell": "chappe.client.cells",
    "CellMessage": "chappe.client.arrivals",
    "Client": "chappe.client.client",
    "DerivedHolder": "chappe.client.derived",
    "Function": "chappe.wire.management",
    "Granted": "chappe.client.quality",
    "Group": "chappe.client.groups",
    "Input": "chappe.wire.management",
    "Long": "chappe.client.topics",
    "Maximum": "chappe.client.derived",
    "Mean": "chappe.client.derived",
    "Message": "chappe.client._inbox",
    "Minimum": "chappe.client.derived",
    "Polynomial": "chappe.client.extrapolation",
    "Qos": "chappe.client.quality",
    "RateOfChange": "chappe.client.derived",
    "Rational": "chappe.client.extrapolation",
    "Sent": "chappe.client.cells",
    "Snapshot": "chappe.client.snapshots",
    "StatusEvent": "chappe.client._status",
    "StatusStream": "chappe.client._status",
    "Subscription": "chappe.client._inbox",
    "Variable": "chappe.client._variables",
    "VariableGroup": "chappe.client._variables",
    "Violation": "chappe.client.violations",
    "Watch": "chappe.client._status",
    "connect": "chappe.client.connecting",
}
_MODULES = {
    "derived": "chappe.client.derived",
    "errors": "chappe.errors",
    "extrapolation": "chappe.client.extrapolation",
    "sync": "chappe.sync",
}

__all__ = [
    "Address",
    "Average",
    "Averaged",
    "Cell",
    "CellMessage",
    "Client",
    "DerivedHolder",
    "Function",
    "Granted",
    "Group",
    "Input",
    "Long",
    "Maximum",
    "Mean",
    "Message",
    "Minimum",
    "Polynomial",
    "Qos",
    "RateOfChange",
    "Rational",
    "Sent",
    "Snapshot",
    "StatusEvent",
    "StatusStream",
    "Subscription",
    "Variable",
    "VariableGroup",
    "Violation",
    "Watch",
    "connect",
    "derived",
    "errors",
    "extrapolation",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'chappe' has no attribute {name!r}")
