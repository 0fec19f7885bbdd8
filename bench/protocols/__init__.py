"""The protocols that the load generator speaks: handshakes and ready-made frames; the loops are compiled."""

from __future__ import annotations

import importlib
from typing import cast

from bench.protocols.common import Frames, Link, Protocol
from chappe.errors import ChappeError

NAMES = ("chappe", "status", "relay", "nats", "mqtt", "resp", "zmtp")

__all__ = ["NAMES", "Frames", "Link", "Protocol", "protocol"]


def protocol(name: str) -> Protocol:
    """The module that speaks that protocol."""
    if name not in NAMES:
        raise ChappeError(f"the load generator does not speak {name!r}; it knows {', '.join(NAMES)}")
    return cast(Protocol, importlib.import_module(f"bench.protocols.{name}"))
