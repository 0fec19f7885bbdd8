"""A small broker whose state is a number, to test what runs brokers; as a program: a node that runs it.

`AddRouter` counts one up and is answered when that is durable; each router that has joined is told the number. `Join`
and `Child` are answered by `Lead`. `RemoveRouter` fails. With a parent, each number is claimed there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from chappe.machine import Address, Change, Connected, Disconnected, Effect, Input, Persist, Send
from chappe.status.topology import Topology
from chappe.wire.base import Done, Failed, Message
from chappe.wire.management import AddRouter, Child, Claim, Join, Lead, RemoveRouter, Withdrawn


class CounterBroker:
    """Keeps `count` and one item a request."""

    def __init__(self, role: str, topology: Topology | None = None) -> None:
        self.role = role
        self.epoch = 0
        self.count = 0
        self.joined: set[Address] = set()
        self.connections: list[str] = []
        self.heard: list[tuple[Address, Message]] = []
        self.ticks = 0

    def restore(self, items: Iterable[Change]) -> None:
        for item in items:
            if item.kind == "counter" and item.value is not None:
                self.count = int(item.value)

    def lead(self, epoch: int, now_ns: int) -> list[Effect]:
        self.epoch = epoch
        return self._hello() if "+parent" in self.connections else []

    def receive(self, address: Address, message: Input, now_ns: int) -> list[Effect]:
        match message:
            case Connected():
                self.connections.append(f"+{address}")
                return self._hello() if address == "parent" and self.epoch else []
            case Disconnected():
                self.connections.append(f"-{address}")
                self.joined.discard(address)
                return []
        self.heard.append((address, message))
        match message:
            case Join() | Child():
                self.joined.add(address)
                return [Send(address, Lead(role=self.role, epoch=self.epoch, finds=True))]
            case AddRouter():
                return self._count(address, message)
            case Claim():
                return [Send(address, Done(id=message.id))]
            case RemoveRouter():
                return [Send(address, Failed(id=message.id, code="unknown", reason=f"no router {message.name}"))]
        return []

    def tick(self, now_ns: int) -> list[Effect]:
        self.ticks += 1
        return []

    def next_tick(self) -> int:
        return 0

    def rows(self, what: str) -> list[dict[str, Any]]:
        if what != "count":
            raise KeyError(f"{what!r} cannot be listed; count can")
        return [{"count": self.count, "epoch": self.epoch}]

    def _hello(self) -> list[Effect]:
        return [Send("parent", Child(id=1, role=self.role, epoch=self.epoch, mode=0, issuer=b"c"))]

    def _count(self, address: Address, request: AddRouter) -> list[Effect]:
        self.count += 1
        number = str(self.count).encode()
        changes = (Change("counter", "count", number), Change("request", request.name, number))
        told = [
            Send(router, Withdrawn(variable_id=self.count, reason=request.name))
            for router in sorted(self.joined, key=str)
        ]
        asked = [Send("parent", Claim(id=1_000 + self.count, publisher=request.name, cloud=self.role))]
        return [Persist(changes), Send(address, Done(id=request.id)), *told, *asked]


def main() -> int:
    from chappe.core.sections import Config
    from chappe.runtime import build
    from chappe.runtime.broker.role import BrokerRole
    from chappe.runtime.process import main as run

    def role_of(config: Config, process: bytes) -> build.MakeRoleProcess:
        name, manages = config.node.name, config.manages
        assert manages is not None
        return lambda sessions, access: BrokerRole(name, process, manages, sessions, access, make=CounterBroker)

    build.role_of = role_of
    return run()


if __name__ == "__main__":
    sys.exit(main())
