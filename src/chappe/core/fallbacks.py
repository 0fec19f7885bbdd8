"""What clients of a managed node watch through the mesh, because the broker does not know it: nothing is promised."""

from __future__ import annotations

from chappe.core.search import BrokerSearch
from chappe.core.waiting import Name
from chappe.wire.control import Watch


class Fallbacks:
    """By client and by name. The broker is searched for each name, and names it when it knows it."""

    def __init__(self, search: BrokerSearch) -> None:
        self._search = search
        self._by_port: dict[int, dict[int, Name]] = {}  # port -> by id
        self._by_name: dict[Name, dict[int, tuple[int, Watch]]] = {}  # port -> id, and what was asked for

    def add(self, port: int, request: Watch, number: int) -> None:
        """A client watches that, by this id."""
        name = request.publisher, request.variable
        ports = self._by_name.get(name)
        if ports is None:
            ports = self._by_name[name] = {}
            self._search.await_name(name, True)
        before = ports.get(port)
        if before is not None and before[0] != number:  # the name has another id now
            del self._by_port[port][before[0]]
        ports[port] = number, request
        self._by_port.setdefault(port, {})[number] = name

    def discard(self, port: int, number: int) -> None:
        """It does so no more, if it did."""
        name = self._by_port.get(port, {}).pop(number, None)
        if name is not None:
            self._forget(port, name)
        if not self._by_port.get(port, True):
            del self._by_port[port]

    def gone(self, port: int) -> None:
        """The client is gone."""
        for name in self._by_port.pop(port, {}).values():
            self._forget(port, name)

    def has(self, port: int, number: int) -> bool:
        """Whether a client watches that without a promise."""
        return number in self._by_port.get(port, ())

    def number(self, port: int, name: Name) -> int:
        """The id by which a client watches a name without a promise, or 0."""
        known = self._by_name.get(name, {}).get(port)
        return known[0] if known is not None else 0

    def requests(self, name: Name) -> list[tuple[int, Watch]]:
        """Clients that watch that name without a promise, and what they asked for."""
        return [(port, request) for port, (_, request) in self._by_name.get(name, {}).items()]

    def _forget(self, port: int, name: Name) -> None:
        ports = self._by_name[name]
        del ports[port]
        if not ports:
            del self._by_name[name]
            self._search.await_name(name, False)
