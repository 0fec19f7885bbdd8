"""Variables that clients look for by pattern: names of those known here or to the broker, and of those that come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.directory import Entry
from chappe.core.edge import Edge
from chappe.core.requests import bad_find
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.variables import Variables
from chappe.machine import Effect, Send
from chappe.security.patterns import AddressPattern
from chappe.status.names import address_of
from chappe.wire import control
from chappe.wire.base import Done

COMPARED = 250  # names with patterns, in one turn of the loop: about a millisecond
NAMED_AT_ONCE = 100  # variables in one message

Name = tuple[str, str]  # publisher, variable


@dataclass(slots=True)
class _Sought:
    """A pattern and the ports of the clients that look for it."""

    pattern: AddressPattern
    ports: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Scan:
    """A client that has not been told yet of all that is known here."""

    session: Session
    text: str
    entries: Iterator[Entry]


class Finder:
    """Answers Find and Unfind. Names go out in slices; a client may hear one twice, and misses none."""

    def __init__(
        self, variables: Variables, sessions: Sessions, access: Access, limits: Limits, edge: Edge | None
    ) -> None:  # fmt: skip
        self.limits = limits
        self._variables = variables
        self._sessions = sessions
        self._access = access
        self._edge = edge
        self._named: dict[Name, None] = {}  # by the broker, and not compared yet
        self._sought: dict[str, _Sought] = {}
        self._scans: deque[_Scan] = deque()
        self.answers: dict[type[control.Message], Callable[[Session, Any, int], list[Effect]]] = {
            control.Find: self._find,
            control.Unfind: self._unfind,
        }

    def _find(self, session: Session, request: control.Find, now_ns: int) -> list[Effect]:
        if self._edge is not None and self._edge.search.known is False:
            reason = "the broker of this node is of an earlier release and finds no variables by pattern: name them"
            return [failed(session.port, request, "unsupported", reason)]
        problem = bad_find(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        if "watch" not in self._access.everywhere(session):
            refusal = self._access.refusal(session, request, "watch", request.pattern, whole=True)
            if refusal is not None:
                return [refusal]
        if request.pattern not in session.finds and session.subscribed >= self.limits.subscriptions:
            return [self._access.over_limit(session, request, "subscriptions", self.limits.subscriptions)]
        session.finds.add(request.pattern)
        sought = self._sought.get(request.pattern)
        if sought is None:
            sought = self._sought[request.pattern] = _Sought(AddressPattern.address(request.pattern))
            self._variables.seek(request.pattern, True)
        if self._edge is not None and session.port in sought.ports:
            self._edge.search.repeat(request.pattern)
        elif self._edge is not None:
            self._edge.search.seek(request.pattern, True)
        sought.ports.add(session.port)
        if self._variables.came is None:
            self._variables.came = deque()
        if not any(scan.session is session and scan.text == request.pattern for scan in self._scans):
            self._scans.append(_Scan(session, request.pattern, self._variables.directory.walk()))
        return [Send(session.port, Done(id=request.id))]

    def _unfind(self, session: Session, request: control.Unfind, now_ns: int) -> list[Effect]:
        if request.pattern not in session.finds:
            return [failed(session.port, request, "unknown", f"{request.pattern!r} is not looked for by you")]
        session.finds.discard(request.pattern)
        self._forget(request.pattern, session.port)
        return [Send(session.port, Done(id=request.id))]

    def gone(self, session: Session) -> None:
        """Its connection is over."""
        for pattern in session.finds:
            self._forget(pattern, session.port)

    def _forget(self, pattern: str, port: int) -> None:
        sought = self._sought[pattern]
        sought.ports.discard(port)
        if self._edge is not None:
            self._edge.search.seek(pattern, False)
        if not sought.ports:
            del self._sought[pattern]
            self._variables.seek(pattern, False)
        if not self._sought:
            self._variables.came = None
            self._named.clear()

    def named(self, names: Iterable[Name]) -> None:
        """The broker says what is published anywhere in its deployment."""
        if self._sought:
            self._named.update(dict.fromkeys(names))

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._scans or self._variables.came or self._named)

    def work(self) -> list[Effect]:
        """Name some variables to those who look for them."""
        found: dict[tuple[int, str], list[Name]] = {}
        if self._scans:
            self._scan(self._scans[0], found)
        came, at_once = self._variables.came, max(1, COMPARED // max(1, len(self._sought)))
        for _ in range(min(len(came), at_once) if came else 0):
            assert came is not None
            self._name(came.popleft().name, found)
        for name in list(islice(self._named, at_once)):
            del self._named[name]
            self._name(name, found)
        return [
            Send(port, control.Found(pattern=text, variables=tuple(names[at : at + NAMED_AT_ONCE])))
            for (port, text), names in found.items()
            for at in range(0, len(names), NAMED_AT_ONCE)
        ]

    def _scan(self, scan: _Scan, found: dict[tuple[int, str], list[Name]]) -> None:
        sought = self._sought.get(scan.text)
        if sought is None or scan.session.port not in sought.ports or not self._sessions.has(scan.session):
            self._scans.popleft()
            return
        looked = 0
        names = found.setdefault((scan.session.port, scan.text), [])
        for entry in islice(scan.entries, COMPARED):
            looked += 1
            address = address_of(entry.name) if entry.published else None
            if address is not None and sought.pattern.covers(address):
                names.append(entry.name)
        if looked < COMPARED:
            self._scans.popleft()

    def _name(self, name: Name, found: dict[tuple[int, str], list[Name]]) -> None:
        address = address_of(name)
        for text, sought in self._sought.items():
            if address is not None and sought.pattern.covers(address):
                for port in sought.ports:
                    found.setdefault((port, text), []).append(name)
