"""A router of a managed cloud: a simulated node, the management links to its brokers, and a record of its paths."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.core.paths import PathTable
from chappe.sim.managed.client import StatusClient
from chappe.sim.managed.functions import Functions
from chappe.sim.managed.links import ManagementLink
from chappe.sim.node import Node
from chappe.wire import management
from chappe.wire.base import Message


@dataclass(frozen=True, slots=True)
class _ToBroker:
    """The end of a management link at a router."""

    router: Router
    link: ManagementLink

    def send(self, message: Message) -> None:
        self.link.send(self.router, message)

    def end(self) -> None:
        self.link.end()


class Router:
    """A node that its brokers manage. `installed` are the paths in its table, each with the time since when."""

    def __init__(self, node: Node, role: str, functions: Functions) -> None:
        self.node = node
        self.name = node.name
        self.role = role
        self.functions = functions  # that brokers placed here
        self.down: list[tuple[int, int]] = []  # from, until: when it did not run
        self.links: list[ManagementLink] = []
        self.installed: dict[tuple[int, int], tuple[management.Path, int]] = {}
        self._stopped_ns = node.now_ns
        self._sent_before: dict[str, int] = {}  # in earlier lives
        self._ports: dict[ManagementLink, int] = {}
        self._numbers: dict[int, set[int]] = {}  # of the paths of each variable

    @property
    def running(self) -> bool:
        return self.node.running

    @property
    def paths(self) -> PathTable:
        return self.node.core.paths

    def paths_of(self, variable_id: int) -> list[tuple[management.Path, int]]:
        """The paths of one variable in its table, each with the time since when it is there."""
        return [self.installed[variable_id, number] for number in self._numbers.get(variable_id, ())]

    def client(self, name: str) -> StatusClient:
        """A new client of this edge."""
        return StatusClient(self.node.client(name))

    # --- life

    def start(self) -> None:
        self.down.append((self._stopped_ns, self.node.now_ns))
        self.installed, self._numbers, self._ports = {}, {}, {}
        self.node.start()
        for link in self.links:
            link.dial()

    def stop(self) -> None:
        """The process is gone with everything it held."""
        for peer in self.node.ports:
            self._sent_before[peer] = self.sent(peer)
        self.node.stop()
        self.functions.clear()
        self._stopped_ns = self.node.now_ns
        for link in self.links:
            link.end()
        for channel in self.node.connections.values():
            channel.silence(self.node)

    def was_down(self, from_ns: int, until_ns: int) -> bool:
        """Whether it did not run at any time between these."""
        if not self.running and self._stopped_ns <= until_ns:
            return True
        return any(start < until_ns and end > from_ns for start, end in self.down)

    def sent(self, peer: str) -> int:
        """Status events that went to a peer in all lives of this router."""
        before = self._sent_before.get(peer, 0)
        if not self.running or not self.node.expects(peer):
            return before
        return before + self.node.engine.port_counters(self.node.ports[peer])["status_out"]

    # --- brokers

    def linked(self, link: ManagementLink, peer: str, dialled: bool) -> None:
        self._ports[link] = self.node.open_manager(_ToBroker(self, link), peer)

    def unlinked(self, link: ManagementLink) -> None:
        port = self._ports.pop(link, None)
        if port is not None:
            self.node.close_manager(port)

    def heard(self, link: ManagementLink, message: Message) -> None:
        port = self._ports.get(link)
        if port is not None:
            self.node.hear(port, message)
            self._observe(message)

    def _observe(self, message: Message) -> None:
        """Remember since when each path is in the table."""
        match message:
            case management.Setup():
                for path in message.paths:
                    key = (path.variable.variable_id, path.path)
                    known = self.installed.get(key)
                    if known is None or known[0] != path:
                        self.installed[key] = (path, self.node.now_ns)
                        self._numbers.setdefault(key[0], set()).add(key[1])
            case management.Teardown():
                for key in message.paths:
                    if self.installed.pop(key, None) is not None:
                        self._numbers[key[0]].discard(key[1])
            case management.Reset():
                self.installed, self._numbers = {}, {}
