"""What other nodes and the broker that leads say unasked: variables that came or went, grants that changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from chappe.core.access import Access
from chappe.core.edge import Edge
from chappe.core.finder import Finder
from chappe.core.registrations import Registrations
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.core.variables import Variables
from chappe.machine import Effect
from chappe.wire import control, management
from chappe.wire.cells import CELLS
from chappe.wire.mesh import MESH, MeshJoin

log = structlog.get_logger(__name__)

Answer = Callable[[Session, Any, int], list[Effect]]


class PeerMessages:
    """Carries it out; where a broker sets up paths, announcements count only of what comes through the mesh."""

    def __init__(
        self, variables: Variables, registrations: Registrations, access: Access, edge: Edge | None, finder: Finder,
        limits: Limits,
    ) -> None:  # fmt: skip
        self.limits = limits
        self._variables = variables
        self._registrations = registrations
        self._access = access
        self._edge = edge
        self._finder = finder
        self.of_nodes: dict[type[control.Message], Answer] = {
            control.Announce: self._announce,
            control.Retract: self._retract,
            control.Demand: self._demand,
            control.Goodbye: self._goodbye,
            control.Failed: self._goodbye,
            **dict.fromkeys((*MESH, *CELLS), self._meshless),
        }
        self.of_brokers: dict[type[control.Message], Answer] = {
            management.Withdrawn: self._withdrawn,
            management.Regranted: self._regranted,
            management.Names: self._names,
            control.Goodbye: self._goodbye,
        }

    def _announce(self, session: Session, message: control.Announce, now_ns: int) -> list[Effect]:
        if self._edge is not None and not (self._variables.mesh.address and message.origins):
            log.error("announcement ignored: paths of this node come from its broker", link=session.name)
            return []
        taken = self._within_limit(session, self._access.announced(session, message.variables))
        origins = dict(zip((each.variable_id for each in message.variables), message.origins, strict=False))
        refused = self._variables.announced(session.port, taken, [origins.get(each.variable_id, "") for each in taken])
        for reason in refused[:10]:
            log.error("announcement refused", link=session.name, reason=reason)
        effects: list[Effect] = []
        if self._registrations.awaited:
            for variable in taken:
                entry = self._variables.directory.named(variable.publisher, variable.variable)
                if entry is not None:
                    effects += self._registrations.appeared(entry)
        return effects

    def _within_limit(self, session: Session, variables: tuple[control.Variable, ...]) -> tuple[control.Variable, ...]:
        """What a neighbour has announced before, and as many new variables as there is room for."""
        known, most, taken = self._variables.announced_ids(session.port), self.limits.announced, []
        room = most - len(known)
        if room >= len(variables):
            return variables
        for variable in variables:
            new = variable.variable_id not in known
            if new and room <= 0:
                reason = (
                    f"{session.name} announces {most} variables, the most taken of one neighbour (limits.announced)"
                )
                self._access.refuse_neighbour(session, "register", f"{variable.publisher}/{variable.variable}", reason)
                continue
            room -= new
            taken.append(variable)
        return tuple(taken)

    def _retract(self, session: Session, message: control.Retract, now_ns: int) -> list[Effect]:
        self._variables.retracted(session.port, message.variable_ids, now_ns)
        return []

    def _demand(self, session: Session, message: control.Demand, now_ns: int) -> list[Effect]:
        for reason in self._variables.demanded(session.port, message.wanted)[:10]:
            log.error("demand refused", link=session.name, reason=reason)
        return []

    def _meshless(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        if isinstance(message, MeshJoin):
            log.info("a neighbour is in a mesh, this node is not: add [mesh] to its file", link=session.name)
        return []

    def _goodbye(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        log.info("message of the other side", link=session.name, message=str(message)[:500])
        return []

    # --- the broker that leads

    def _withdrawn(self, session: Session, message: management.Withdrawn, now_ns: int) -> list[Effect]:
        return self._registrations.withdrawn(message) if self._led_by(session) else []

    def _regranted(self, session: Session, message: management.Regranted, now_ns: int) -> list[Effect]:
        return self._registrations.regranted(message) if self._led_by(session) else []

    def _names(self, session: Session, message: management.Names, now_ns: int) -> list[Effect]:
        if self._led_by(session):
            self._finder.named(message.variables)
            return self._registrations.named(message.variables, now_ns)
        return []

    def _led_by(self, session: Session) -> bool:
        return self._edge is not None and self._edge.leader == session.port
