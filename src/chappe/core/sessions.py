"""The connections of a node after their handshakes, and what each identity uses over all of its own."""

from __future__ import annotations

from collections.abc import Iterator

from chappe.core.session import Session, Usage


class Sessions:
    """Sessions by port. A session is known before its connection carries anything: the engine asks about its port."""

    def __init__(self) -> None:
        self._by_port: dict[int, Session] = {}
        self._usage: dict[str, Usage] = {}  # by the name of an identity

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_port.values()))

    def __len__(self) -> int:
        return len(self._by_port)

    def get(self, port: int) -> Session | None:
        return self._by_port.get(port)

    def has(self, session: Session) -> bool:
        """Whether that connection is still there."""
        return self._by_port.get(session.port) is session

    def usage(self, name: str) -> Usage:
        """What the clients of that identity have together; `open` follows at once."""
        return self._usage.setdefault(name, Usage())

    def connections(self, name: str) -> int:
        """How many connections the clients of that identity have at this node."""
        return self._usage[name].connections if name in self._usage else 0

    def neighbours(self) -> list[str]:
        """Names of the nodes that are connected now, brokers left out."""
        return [each.name for each in self._by_port.values() if each.role == "node" and not each.manager]

    def clients(self) -> list[Session]:
        return [each for each in self._by_port.values() if each.role == "client"]

    def open(self, session: Session) -> None:
        """A port has a connection whose identity is known."""
        self._by_port[session.port] = session
        session.usage.connections += 1

    def close(self, port: int) -> Session | None:
        """The connection of a port is over; what it had counts no more for its identity."""
        session = self._by_port.pop(port, None)
        if session is not None:
            session.release()
            if session.usage.nothing and self._usage.get(session.identity.name) is session.usage:
                del self._usage[session.identity.name]
        return session
