"""Rows of listings: what a node knows about variables, subscriptions, links and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from chappe.engine._engine import Engine
from chappe.node.connections import Connections
from chappe.node.edge import Edge
from chappe.node.paths import PathTable
from chappe.node.session import Session
from chappe.node.sessions import Control
from chappe.node.variables import Variables
from chappe.security.patterns import Pattern, PatternError, topic_address, variable_address
from chappe.wire.control import List

MAX_ROWS = 5_000  # a listing is one frame
MAX_SCANNED = 10_000  # subscriptions looked at for one listing: forwarding waits meanwhile
LISTS = (
    "variables", "publishers", "types", "topics", "links", "clients", "counters", "drops", "paths", "broker",
    "functions", "transports", "publications",
)  # fmt: skip
MESH_LISTS = ("measured", "history", "map", "routes", "route", "members")
Row = dict[str, Any]


class Link(Protocol):
    """A peer as listings show it."""

    @property
    def name(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def choice(self) -> str: ...


class Facts:
    """Answers `List`; what is private to others needs the right to administrate."""

    def __init__(
        self, node: str, engine: Engine, variables: Variables, connections: Connections, links: Iterable[Link],
        paths: PathTable, edge: Edge | None,
    ) -> None:  # fmt: skip
        self._node = node
        self._engine = engine
        self._variables = variables
        self._connections = connections
        self._links = links
        self._paths = paths
        self._edge = edge
        self.control: Control | None = None  # set once both exist
        self.functions: Callable[[], list[Row]] = list  # rows of the functions that run here
        self.mesh: Callable[[List], list[Row]] | None = None  # rows of MESH_LISTS, where the node measures

    def rows(self, request: List, session: Session) -> tuple[list[Row], int]:
        """The rows and how many there are in all; DeniedError, or KeyError for a word that is none of them."""
        start = max(0, request.start)
        limit = start + max(0, min(request.limit, MAX_ROWS))
        match request.what:
            case "variables":
                return list(islice(self._variable_rows(session), start, limit)), len(self._variables.directory)
            case "publishers":
                return self._counted(self._publishers(session), "publisher", start, limit)
            case "types":
                return self._counted(self._variables.directory.types.items(), "type", start, limit)
            case "topics":
                return list(islice(self._topic_rows(session), start, limit)), self._engine.topics.subscriptions()
        assert self.control is not None
        if request.what == "publications" and self.control.role is None:
            published = list(self._publication_rows(request.of, session))
            return published[start:limit], len(published)
        meshed = request.what in MESH_LISTS and self.mesh is not None
        if request.what not in LISTS and self.control.role is None and not meshed:
            raise _unknown(request.what)
        self.control.book.allows(session.identity, "admin", f"{self._node}/{request.what[:64]}").require()
        if self.control.role is not None:
            rows = self.control.role.rows(request.what)
            if rows is not None:
                if request.variable:
                    rows = [row for row in rows if f"{row.get('publisher')}/{row.get('variable')}" == request.variable]
                return rows[start:limit], len(rows)
        if meshed:
            assert self.mesh is not None
            rows = self.mesh(request)
            return rows[start:limit], len(rows)
        if request.what not in LISTS:
            raise _unknown(request.what)
        match request.what:
            case "links":
                rows = list(self._link_rows())
                return rows[start:limit], len(rows)
            case "transports":
                rows = self._connections.transports.rows()
                return rows[start:limit], len(rows)
            case "clients":
                clients = sum(connection.session.role == "client" for connection in self._connections)
                return list(islice(self._client_rows(), start, limit)), clients
            case "paths":
                return list(islice(self._paths.rows(), start, limit)), len(self._paths)
            case "broker":
                rows = self._edge.rows() if self._edge is not None else []
                return rows[start:limit], len(rows)
            case "functions":
                rows = self.functions()
                return rows[start:limit], len(rows)
            case "drops":
                rows = list(self._drop_rows())
                return rows[start:limit], len(rows)
        return [{"node": self._node, **self._engine.counters()}], 1

    def _counted(self, counts: Iterable[tuple[str, int]], key: str, start: int, limit: int) -> tuple[list[Row], int]:
        found = sorted(counts)
        return [{key: value, "variables": count} for value, count in found[start:limit]], len(found)

    def _publishers(self, session: Session) -> Iterator[tuple[str, int]]:
        assert self.control is not None
        for publisher, count in self._variables.directory.publishers.items():
            if self.control.book.allows(session.identity, "watch", variable_address(publisher, "#")):
                yield publisher, count

    def _variable_rows(self, session: Session) -> Iterator[Row]:
        assert self.control is not None
        for entry in self._variables.directory:
            if not self.control.book.allows(session.identity, "watch", variable_address(*entry.name)):
                continue
            variable = entry.variable
            yield {
                "id": variable.variable_id,
                "publisher": variable.publisher,
                "variable": variable.variable,
                "type": variable.type,
                "rate_hz": variable.rate_num * 1e9 / variable.rate_den,
                "priority": variable.priority,
                "published": entry.published,
                "client": entry.owner_name,
                "links": sorted(self._name(port) for port in entry.inputs),
                "watchers": len(entry.watchers),
            }

    def _topic_rows(self, session: Session) -> Iterator[Row]:
        assert self.control is not None
        counts: dict[tuple[str, str, str], int] = {}
        every = (key for other in self.control.sessions.values() for key in other.subscriptions)
        for key in islice(every, MAX_SCANNED):
            counts[key] = counts.get(key, 0) + 1
        for (kind, pattern, group), count in sorted(counts.items()):
            if self.control.book.allows(session.identity, "subscribe", topic_address(kind, pattern)):
                yield {"pattern": pattern, "kind": kind, "group": group, "subscribers": count}

    def _publication_rows(self, wanted: str, session: Session) -> Iterator[Row]:
        """What is advertised in the mesh (MR-133), as far as the client may subscribe to it and it meets `wanted`."""
        assert self.control is not None
        try:
            pattern = Pattern.address(wanted) if wanted else None
        except PatternError as error:
            raise KeyError(str(error)) from None
        for row in self.control.asked.rows():
            address = topic_address(row["kind"], row["topic"])
            if pattern is not None and not pattern.overlaps(Pattern.address(address)):
                continue
            if self.control.book.allows(session.identity, "subscribe", address):
                yield row

    def _link_rows(self) -> Iterator[Row]:
        for link in self._links:
            connection = self._connections.by_port.get(link.port)
            yield {
                "name": link.name,
                "url": link.url,
                "kind": connection.link.kind if connection else "",
                "choice": link.choice if connection else "",
                "secure": connection.link.security.secure if connection else False,
                "status": connection.heartbeat.status.value if connection else _alone(link),
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


def _unknown(what: str) -> KeyError:
    if what in MESH_LISTS:
        return KeyError(f"{what}: this node neither measures nor is it in a mesh; add [mesh] or [measure] to its file")
    return KeyError(f"{what[:40]!r} cannot be listed; one of {', '.join(LISTS)} can")


def _alone(link: Link) -> str:
    """A multicast group has no connection, and needs none."""
    return "group" if link.url.startswith("udp+multicast:") else "failed"
