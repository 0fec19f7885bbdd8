"""After other rules: whoever has asked under the old ones must ask again, or has to go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chappe.core.node import NodeCore
from chappe.runtime.links.connections import Connection, Connections

Lapsed = Callable[[Connection], str | None]


def recheck(
    core: NodeCore, connections: Connections, limit_rate: Callable[[int], None], lapsed: Lapsed
) -> Iterator[None]:
    """Rules are asked once per connection and address: ask them again about all of them, a few with each step."""
    for connection in connections:
        if connection.lost.is_set() or connection.session.internal:
            continue
        if connection.session.role == "client":
            limit_rate(connection.port)
        why = lapsed(connection)
        if why:
            connections.close(connection, why, "identity")
            continue
        yield
        if connection.session.role == "node":
            continue  # decided when the rules were replaced
        for problem in core.access.recheck(connection.session, core.engine):
            if problem:
                _end(connections, connection, problem)
                break
            yield
    for port, problem in core.access.recheck_variables(core.variables):
        connection_there = connections.by_port.get(port)
        if connection_there is not None:
            _end(connections, connection_there, problem)
        yield


def _end(connections: Connections, connection: Connection, problem: str) -> None:
    if not connection.lost.is_set():
        connections.close(connection, f"rules have changed: {problem}", "identity")
