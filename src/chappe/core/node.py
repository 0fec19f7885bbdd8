"""The machines of one node together: the one place where messages are dispatched to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chappe.core.access import Access
from chappe.core.commands import Commands
from chappe.core.control import Control
from chappe.core.edge import Edge
from chappe.core.paths import PathTable
from chappe.core.peer_ports import PeerPorts
from chappe.core.roles import Role
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.variables import Variables
from chappe.engine._engine import Engine
from chappe.machine import Address as Source
from chappe.machine import AuditWritten, Connected, Disconnected, Effect, FreePort, NodeInput, Suspected
from chappe.wire.cells import CELLS
from chappe.wire.mesh import MESH, Pace

if TYPE_CHECKING:  # a node that neither measures nor is a cell needs no NumPy
    from chappe.cells.machine import Cells
    from chappe.events.clients import MeshClients
    from chappe.events.member import Member


@dataclass(slots=True, eq=False)
class NodeCore:
    """A node without I/O. Its driver feeds the engine, gives it control messages and time, and carries out effects.

    A session is opened before its connection carries anything; `Connected` follows when it can be sent to, after
    `resume_port` of a peer's port. `Disconnected` follows `park_port` of a peer's, `close_port` of a client's port.
    """

    name: str
    engine: Engine
    sessions: Sessions
    access: Access
    ports: PeerPorts
    variables: Variables
    paths: PathTable
    commands: Commands
    control: Control
    edge: Edge | None = None
    role: Role | None = None
    member: Member | None = None
    mesh: MeshClients | None = None  # what clients ask of the member
    cells: Cells | None = None
    measures_clients: bool = False

    # --- dispatch

    def receive(self, source: Source, message: NodeInput, now_ns: int) -> list[Effect]:
        """Give it to the machine that it is for."""
        match message:
            case Connected():
                return self._connected(source, message, now_ns)
            case Disconnected():
                return self._disconnected(source, message, now_ns)
            case Suspected():
                return self.member.receive(source, message, now_ns) if self.member is not None else []
            case AuditWritten():
                return (self.role or self.control).receive(source, message, now_ns)
        assert isinstance(source, int)
        session = self.sessions.get(source)
        if session is None:
            return []
        if self.role is not None and self.role.takes(message):
            return self.role.receive(source, message, now_ns)
        if session.manager:
            if self.edge is not None and self.edge.takes(message):
                return self.edge.receive(source, message, now_ns)
        elif self.cells is not None and session.role == "node" and isinstance(message, CELLS):
            return self.cells.receive(source, message, now_ns)
        elif self.member is not None and isinstance(message, MESH if session.role == "node" else Pace):
            return self.member.receive(source, message, now_ns)
        return self.control.receive(source, message, now_ns)

    def _connected(self, source: Source, connected: Connected, now_ns: int) -> list[Effect]:
        assert isinstance(source, int)
        session = self.sessions.get(source)
        if session is None:  # a data link beside a connection
            return self.member.receive(source, connected, now_ns) if self.member is not None else []
        effects = self.role.receive(source, connected, now_ns) if self.role is not None else []
        effects += self.control.receive(source, connected, now_ns)
        if self.edge is not None:
            effects += self.edge.receive(source, connected, now_ns)
        if self.member is not None and self._measured(session):
            joining = connected if session.role == "node" else msgspec.structs.replace(connected, joins=False)
            effects += self.member.receive(source, joining, now_ns)
        if self.cells is not None and session.role == "node" and not session.manager:
            effects += self.cells.receive(source, connected, now_ns)
        return effects

    def _disconnected(self, source: Source, ended: Disconnected, now_ns: int) -> list[Effect]:
        assert isinstance(source, int)
        effects: list[Effect] = []
        session = self.sessions.get(source)
        if session is not None:
            if self.role is not None:
                effects += self.role.receive(source, ended, now_ns)
            effects += self.control.receive(source, ended, now_ns)
            if self.edge is not None:
                effects += self.edge.receive(source, ended, now_ns)
            self.sessions.close(source)
            if self.mesh is not None and session.role == "client":
                self.mesh.gone(source)
            if self.cells is not None and session.role == "client":
                self.cells.gone(source)
        if self.member is not None:
            effects += self.member.receive(source, ended, now_ns)
        if self.cells is not None:
            effects += self.cells.receive(source, ended, now_ns)
        if ended.final:
            self.paths.port_gone(source, now_ns)
            self.variables.peer_gone(source, now_ns)
            effects.append(FreePort(source))
        return effects

    def refusals_of(self, neighbour: str) -> int:
        """How much of what a neighbour said was not believed."""
        return self.member.state.refused.get(neighbour, 0) if self.member is not None else 0

    def _measured(self, session: Session) -> bool:
        if session.role == "node":
            return not session.manager
        return self.measures_clients and not session.internal

    # --- time

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return self.control.busy or (self.cells is not None and self.cells.busy)

    def collect(self) -> None:
        """Take what the engine got for cells; the driver calls it with each batch of messages."""
        if self.cells is not None:
            self.cells.collect()

    def work(self) -> list[Effect]:
        """A slice of what would take too long for one call; again while `busy`."""
        effects = self.control.flush() + self.control.work()
        return effects + self.cells.work() if self.cells is not None else effects

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due, but for the member of the mesh: that has times of its own."""
        effects = self.role.tick(now_ns) if self.role is not None else []
        if self.edge is not None:
            effects += self.edge.tick(now_ns)
        if self.cells is not None:
            effects += self.cells.tick(now_ns)
        return effects + self.control.tick(now_ns)

    def next_tick(self) -> int:
        """When `tick` has something to do."""
        next_ns = self.control.next_tick()
        if self.edge is not None:
            next_ns = min(next_ns, self.edge.next_tick())
        if self.role is not None:
            next_ns = min(next_ns, self.role.next_tick())
        if self.cells is not None:
            next_ns = min(next_ns, self.cells.next_tick())
        return next_ns
