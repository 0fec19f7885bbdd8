"""Broker processes whose role is a plain counter, and what talks to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

import chappe.runtime.build
from chappe.core.sections import Config
from chappe.runtime.broker.role import BrokerRole
from chappe.runtime.build import MakeRoleProcess
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.wire import management
from chappe.wire.base import Message
from tests.support.counterbroker import CounterBroker
from tests.support.wireclient import WireClient

LEASE_S = 1.5


def toml(
    place: int,
    ports: list[int],
    store: str,
    parents: list[int] | None = None,
    role: str = "west",
    lease_s: float = LEASE_S,
) -> str:
    """The file of one process of a role."""
    urls = [f"tcp://127.0.0.1:{port}" for port in ports]
    name = role if len(ports) == 1 else f"{role}-{place + 1}"
    above = [f"tcp://127.0.0.1:{port}" for port in parents or []]
    # A deployment insists on PostgreSQL for several processes; what counts for a process is `manages.store`.
    shared = 'store = "postgresql://somewhere/db"'
    root = f'[[manages.topology.broker]]\nname = "top"\nlisten = {above}\n{shared}' if above else ""
    return f"""
        [node]
        name = "{name}"
        [[listen]]
        url = "{urls[place]}"
        [metrics]
        address = "127.0.0.1:0"
        [manages]
        role = "{role}"
        store = "{store}"
        lease_s = {lease_s}
        {root}
        [[manages.topology.broker]]
        name = "{role}"
        listen = {urls}
        {shared if len(ports) > 1 else ""}
        {'parent = "top"' if above else ""}
    """


def counters(monkeypatch: pytest.MonkeyPatch) -> list[CounterBroker]:
    """Every node with [manages] of this process is a counter; these are all of them."""
    made: list[CounterBroker] = []

    def make(role: str, topology: object) -> CounterBroker:
        made.append(CounterBroker(role))
        return made[-1]

    def role_of(config: Config, process: bytes) -> MakeRoleProcess | None:
        name, manages = config.node.name, config.manages
        if manages is None:
            return None
        return lambda sessions, access: BrokerRole(name, process, manages, sessions, access, make)

    monkeypatch.setattr(chappe.runtime.build, "role_of", role_of)
    return made


@contextlib.asynccontextmanager
async def node_of(text: str) -> AsyncIterator[Node]:
    node = Node(parse(text), dev=True)
    await node.start()
    try:
        yield node
    finally:
        await node.stop(drain=False)


@contextlib.asynccontextmanager
async def connected(url: str, **hello: object) -> AsyncIterator[WireClient]:
    client = await WireClient.open(url, **hello)
    try:
        yield client
    finally:
        await client.close()


def role(node: Node) -> BrokerRole:
    assert isinstance(node.role, BrokerRole)
    return node.role


def leads(node: Node) -> bool:
    return role(node).state == "leading"


def told(client: WireClient, kind: type[Message]) -> list[Message]:
    return [message for message in client.told if isinstance(message, kind)]


def join(name: str) -> management.Join:
    return management.Join(router=name, issuer=b"i" * 16)
