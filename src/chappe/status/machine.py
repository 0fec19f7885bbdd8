"""What is special to brokers among machines: state that outlives them, leadership, rows for operators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from chappe.machine import Change, Effect, Input, Machine

Address = str
"""The addresses of a broker are names: `router/NAME`, `child/ROLE`, `parent`, `operator/NUMBER`."""

PARENT = "parent"


class Broker(Machine[Input], Protocol):
    """A leaf or inner broker: a machine that persists its state and leads under an epoch."""

    role: str
    epoch: int  # 0 until it leads

    def restore(self, items: Iterable[Change]) -> None:
        """The durable state as it was last committed; called once, before `lead`."""

    def lead(self, epoch: int, now_ns: int) -> list[Effect]:
        """It is the active broker of its role from now on."""

    def rows(self, what: str) -> list[dict[str, Any]]:
        """What `chappe show WHAT` prints; KeyError names what can be asked for."""
