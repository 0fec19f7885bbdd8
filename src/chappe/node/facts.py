"""Rows of listings: what a node knows about variables, subscriptions, links and clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from chappe.engine._engine import Engine
from chappe.node.connections import Connections
from chappe.node.directory import Entry
from chappe.node.sessions import Control, Session
from chappe.node.variables import Variables
from chappe.security.patterns import topic_address, variable_address
from chappe.wire.control import List

MAX_ROWS = 5_000  # a listing is one frame
LISTS = ("variables", "publishers", "types", "topics", "links", "clients", "counters", "drops")
Row = dict[str, Any]


class Link(Protocol):
    """A peer as listings show it."""

    @property
    def name(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def url(self) -> str: ...


class Facts:
    """Answers `List`; what is private to others needs the right to administrate."""

    def __init__(
        self, node: str, engine: Engine, variables: Variables, connections: Connections, links: Iterable[Link]
    ) -> None:
        self._node = node
        self._engine = engine
        self._variables = variables
        self._connections = connections
        self._links = links
        self.control: Control | None = None  # set once both exist

    def rows(self, request: List, session: Session) -> tuple[list[Row], int]:
        """The rows and how many there are in all; DeniedError, or KeyError for a word that is none of them."""
        limit = max(0, min(request.limit, MAX_ROWS))
        match request.what:
            case "variables":
                return self._listed(self._variable_rows(session), limit)
            case "publishers":
                return self._listed(self._counted(session, "publisher"), limit)
            case "types":
                return self._listed(self._counted(session, "type"), limit)
            case "topics":
                return self._listed(self._topic_rows(session), limit)
        if request.what not in LISTS:
            raise KeyError(f"{request.what[:40]!r} cannot be listed; one of {', '.join(LISTS)} can")
        assert self.control is not None
        self.control.book.allows(session.identity, "admin", f"{self._node}/{request.what}").require()
        match request.what:
            case "links":
                return self._listed(self._link_rows(), limit)
            case "clients":
                return self._listed(self._client_rows(), limit)
            case "drops":
                return self._listed(self._drop_rows(), limit)
        return [{"node": self._node, **self._engine.counters()}], 1

    def _listed(self, rows: Iterator[Row], limit: int) -> tuple[list[Row], int]:
        shown = list(islice(rows, limit))
        return shown, len(shown) + sum(1 for _ in rows)

    def _visible(self, session: Session) -> Iterator[Entry]:
        assert self.control is not None
        book = self.control.book
        for entry in list(self._variables.directory):
            if book.allows(session.identity, "watch", variable_address(*entry.name)):
                yield entry

    def _variable_rows(self, session: Session) -> Iterator[Row]:
        for entry in self._visible(session):
            variable = entry.variable
            yield {
                "id": variable.variable_id,
                "publisher": variable.publisher,
                "variable": variable.variable,
                "type": variable.type,
                "rate_hz": variable.rate_num / variable.rate_den * 1e9,
                "priority": variable.priority,
                "published": entry.published,
                "client": entry.owner_name,
                "links": sorted(self._name(port) for port in entry.inputs),
                "watchers": len(entry.watchers),
            }

    def _counted(self, session: Session, key: str) -> Iterator[Row]:
        counts: dict[str, int] = {}
        for entry in self._visible(session):
            value = str(getattr(entry.variable, key))
            counts[value] = counts.get(value, 0) + 1
        for value, count in sorted(counts.items()):
            yield {key: value, "variables": count}

    def _topic_rows(self, session: Session) -> Iterator[Row]:
        assert self.control is not None
        counts: dict[tuple[str, str, str], int] = {}
        for other in list(self.control.sessions.values()):
            for key in other.subscriptions:
                counts[key] = counts.get(key, 0) + 1
        for (kind, pattern, group), count in sorted(counts.items()):
            if self.control.book.allows(session.identity, "subscribe", topic_address(kind, pattern)):
                yield {"pattern": pattern, "kind": kind, "group": group, "subscribers": count}

    def _link_rows(self) -> Iterator[Row]:
        for link in self._links:
            connection = self._connections.by_port.get(link.port)
            yield {
                "name": link.name,
                "url": link.url,
                "status": connection.heartbeat.status.value if connection else "failed",
                **self._port_row(link.port),
            }

    def _client_rows(self) -> Iterator[Row]:
        for connection in self._connections:
            session = connection.session
            if session.role != "client":
                continue
            yield {
                "name": session.name,
                "identity": str(session.identity),
                "address": str(connection.link.peer),
                "status": connection.heartbeat.status.value,
                "variables": len(session.variables),
                "watched": len(session.watched),
                "subscriptions": len(session.subscriptions),
                **self._port_row(session.port),
            }

    def _port_row(self, port: int) -> Row:
        silent_s = (self._engine.mono_ns - self._engine.last_heard(port)) / 1e9
        return {
            "queued_bytes": self._engine.pending(port),
            "silent_s": max(0.0, silent_s),
            **self._engine.port_counters(port),
        }

    def _drop_rows(self) -> Iterator[Row]:
        for kind, address, reason, count in self._engine.address_drops():
            known = kind == "variable" and isinstance(address, int)
            entry = self._variables.directory.numbered(int(address)) if known else None
            name = "/".join(entry.name) if entry else str(address)
            yield {"kind": kind, "address": name, "reason": reason, "count": count}

    def _name(self, port: int) -> str:
        for link in self._links:
            if link.port == port:
                return link.name
        return str(port)
