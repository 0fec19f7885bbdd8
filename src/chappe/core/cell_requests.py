"""Requests of clients about the names that they have at a cell (BF-04)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.roles import Names
from chappe.core.session import Session
from chappe.errors import RefusedError
from chappe.machine import Effect, Send
from chappe.security.patterns import cell_address
from chappe.wire import control

MOST = 1_024  # names in one request


class CellRequests:
    """Asks the rules who may have a name (`register` on `cell:NAME`); `names` is None where the node is no cell."""

    def __init__(self, node: str, names: Names | None, access: Access) -> None:
        self._node = node
        self._names = names
        self._access = access
        self.answers: dict[type[control.Message], Callable[[Session, Any, int], list[Effect]]] = {
            control.OwnNames: self._own,
        }

    def _own(self, session: Session, request: control.OwnNames, now_ns: int) -> list[Effect]:
        if self._names is None:
            reason = f"{self._node} is no cell: add a section [cells] to its file"
            return [failed(session.port, request, "unsupported", reason)]
        if len(request.add) + len(request.remove) > MOST:
            return [failed(session.port, request, "invalid", f"a request has at most {MOST} names")]
        for name in request.add:
            refusal = self._access.refusal(session, request, "register", cell_address(name))
            if refusal is not None:
                return [refusal]
        try:
            if request.remove:
                self._names.remove_names(session.port, request.remove)
                session.names.difference_update(request.remove)
            if request.add:
                self._names.add_names(session.port, request.add, str(session.identity))
                session.names.update(request.add)
        except RefusedError as error:
            self._access.count_refusal()
            return [failed(session.port, request, error.code or "limit", str(error))]
        return [Send(session.port, control.Done(id=request.id))]
