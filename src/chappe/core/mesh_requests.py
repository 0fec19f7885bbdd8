"""What clients ask of the mesh: to advertise what they publish (MR-133), and to measure links (MR-072)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.requests import bad_subscribe
from chappe.core.roles import Interest
from chappe.core.session import Session
from chappe.errors import RefusedError
from chappe.machine import Effect, Send
from chappe.security.patterns import topic_address
from chappe.wire import control
from chappe.wire.mesh import Pace

MOST = 4_096  # different topics and patterns that a node advertises
MOST_OF_ONE = 1_024  # of them for one identity, however many connections it has
Row = dict[str, Any]


class MeshRequests:
    """Answers them; `mesh` is None where the node neither measures nor is in a mesh."""

    def __init__(self, node: str, mesh: Interest | None, access: Access) -> None:
        self._node = node
        self._mesh = mesh
        self._access = access
        self._ports: dict[tuple[str, str], set[int]] = {}  # of the clients that publish it, by (kind, pattern)
        self._counts: Counter[tuple[str, str]] = Counter()  # by name and role of those clients
        self.answers: dict[type[control.Message], Callable[[Session, Any, int], list[Effect]]] = {
            control.Advertise: self._advertise,
            control.Unadvertise: self._unadvertise,
            control.Measure: self._measure,
            Pace: lambda session, request, now_ns: [],  # a node that measures nothing probes nobody
        }

    def gone(self, session: Session) -> None:
        """A client is gone, and with it what it advertised."""
        for key in session.advertised:
            self._leave(session, key)
        if session.advertised:
            self._publish()

    def rows(self) -> Iterator[Row]:
        """What is advertised at this node, and what the mesh says of the rest."""
        mesh = self._mesh
        own = sorted(self._ports)
        for kind, text in own:
            clients = len(self._ports.get((kind, text), ()))
            yield {"topic": text, "kind": kind, "at": self._node, "level": 0, "clients": clients}
        seen = set(own)
        for row in mesh.publications() if mesh is not None else ():
            if row["at"] != self._node or (row["kind"], row["topic"]) not in seen:
                yield row

    def _advertise(self, session: Session, request: control.Advertise, now_ns: int) -> list[Effect]:
        problem = bad_subscribe(control.Subscribe(id=0, pattern=request.pattern, kind=request.kind))
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._access.refusal(
            session, request, "publish", topic_address(request.kind, request.pattern), whole=True
        )
        if refusal is not None:
            return [refusal]
        key = (request.kind, request.pattern)
        full = self._full(session, key)
        if full:
            reason = f"{full}, the most allowed; advertise a pattern that covers several"
            return [failed(session.port, request, "limit", reason)]
        new = key not in self._ports
        self._ports.setdefault(key, set()).add(session.port)
        self._counts[_owner(session)] += key not in session.advertised
        session.advertised.add(key)
        if new:
            self._publish()
        return [Send(session.port, control.Done(id=request.id))]

    def _unadvertise(self, session: Session, request: control.Unadvertise, now_ns: int) -> list[Effect]:
        key = (request.kind, request.pattern)
        if key not in session.advertised:
            return [failed(session.port, request, "unknown", f"{request.pattern[:80]!r} is not advertised by you")]
        session.advertised.discard(key)
        if self._leave(session, key):
            self._publish()
        return [Send(session.port, control.Done(id=request.id))]

    def _full(self, session: Session, key: tuple[str, str]) -> str:
        """Whose limit keeps a client from advertising one more; empty if none does."""
        if key in session.advertised:
            return ""
        if self._counts[_owner(session)] >= MOST_OF_ONE:
            return f"{session.identity} advertises {MOST_OF_ONE} topics"
        return f"{self._node} advertises {MOST} topics" if key not in self._ports and len(self._ports) >= MOST else ""

    def _leave(self, session: Session, key: tuple[str, str]) -> bool:
        """True if nobody advertises it any more."""
        owner = _owner(session)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        ports = self._ports[key]
        ports.discard(session.port)
        if ports:
            return False
        del self._ports[key]
        return True

    def _publish(self) -> None:
        mesh = self._mesh
        if mesh is not None:
            mesh.advertised(self._ports)

    def _measure(self, session: Session, request: control.Measure, now_ns: int) -> list[Effect]:
        refusal = self._access.refusal(session, request, "control", f"{self._node}/Measure")
        if refusal is not None:
            return [refusal]
        mesh = self._mesh
        if mesh is None:
            reason = f"{self._node} measures no links: add [mesh] or [measure] to its file"
            return [failed(session.port, request, "unsupported", reason)]
        try:
            return mesh.measure(session.port, request, now_ns)
        except RefusedError as error:
            return [failed(session.port, request, error.code, str(error))]


def _owner(session: Session) -> tuple[str, str]:
    return session.identity.name, session.identity.role
