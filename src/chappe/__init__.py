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
    from chappe.client import sync
    from chappe.client._inbox import Message, Subscription
    from chappe.client._status import StatusEvent, StatusStream, Watch
    from chappe.client._variables import Variable, VariableGroup
    from chappe.client.client import Client
    from chappe.client.connecting import connect
    from chappe.client.topics import Long

__version__ = "0.1.0"

_HOMES = {
    "Client": "chappe.client.client",
    "Long": "chappe.client.topics",
    "Message": "chappe.client._inbox",
    "StatusEvent": "chappe.client._status",
    "StatusStream": "chappe.client._status",
    "Subscription": "chappe.client._inbox",
    "Variable": "chappe.client._variables",
    "VariableGroup": "chappe.client._variables",
    "Watch": "chappe.client._status",
    "connect": "chappe.client.connecting",
}

__all__ = [
    "Client",
    "Long",
    "Message",
    "StatusEvent",
    "StatusStream",
    "Subscription",
    "Variable",
    "VariableGroup",
    "Watch",
    "connect",
    "errors",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("errors", "sync"):
        return import_module(f"chappe.{name}")
    raise AttributeError(f"module 'chappe' has no attribute {name!r}")
