"""Python clients side by side: each as its own documentation would have it written."""

from __future__ import annotations

import importlib
import importlib.util
from typing import cast

from bench.clients.common import Client

MODULES = {
    "chappe": ("chappe_client", "chappe.client", "pip install ."),
    "nats-py": ("nats_py", "nats", "pip install nats-py"),
    "eclipse-zenoh": ("zenoh_router", "zenoh", "pip install eclipse-zenoh"),
    "eclipse-zenoh, no node": ("zenoh_direct", "zenoh", "pip install eclipse-zenoh"),
    "pyzmq": ("pyzmq", "zmq", "pip install pyzmq"),
    "aiomqtt": ("aiomqtt_client", "aiomqtt", "pip install aiomqtt"),
}

__all__ = ["MODULES", "Client", "client", "missing"]


def client(name: str) -> Client:
    return cast(Client, importlib.import_module(f"bench.clients.{MODULES[name][0]}"))


def missing() -> dict[str, str]:
    """Clients that cannot be imported, with the line that installs them."""
    return {name: line for name, (_, package, line) in MODULES.items() if importlib.util.find_spec(package) is None}
