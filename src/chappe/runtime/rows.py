"""Rows of listings: what a node knows about variables, subscriptions, links and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from chappe.core.cursor import Row, Rows
from chappe.core.node import NodeCore
from chappe.core.session import Session
from chappe.links._turns import LoopTurns
from chappe.runtime.links.connections import Connections
from chappe.runtime.metrics import with_former_names
from chappe.security.config import Action
from chappe.security.patterns import AddressPattern, PatternError, topic_address
from chappe.security.rules import Rights
from chappe.wire.constants import MODES
from chappe.wire.control import List

if TYPE_CHECKING:  # a node that is no cell needs no NumPy
    from chappe.cells.machine import Cells

OUTPUTS = 32  # of a variable in one row of `forwarding`; the rest is counted
MAX_TOPICS = 100_000  # different subscriptions that one listing counts
LISTS = (
    "variables", "publishers", "types", "topics", "links", "clients", "counters", "drops", "paths", "broker",
    "functions", "transports", "publications", "forwarding", "accounts",
)  # fmt: skip
CELL_LISTS = ("cells", "cell_links", "parcel_routes")
MESH_LISTS = ("measured", "factors", "history", "map", "tree", "routes", "route", "members")


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
        self, core: NodeCore, connections: Connections, links: Iterable[Link], functions: Callable[[], list[Row]]
    ) -> None:
        """`functions` gives the rows of the functions that run here."""
        self._core = core
        self._node = core.name
        self._engine = core.engine
        self._variables = core.variables
        self._connections = connections
        self._links = links
        self._functions = functions
        self.turns: LoopTurns | None = None  # of the loop, while they are measured

    def rows(self, request: List, session: Session) -> Rows:
        """The rows; DeniedError, or KeyError for a word that is none of them."""
        directory = self._variables.directory
        match request.what:
            case "variables":
                return Rows(self._variable_rows(session))
            case "publishers":
                return Rows(self._publisher_rows(session))
            case "types":
                steps = ({"type": name, "variables": count} for name, count in directory.types.walk())
                return Rows(steps)
            case "topics":
                return Rows(self._topic_rows(session))
        if request.what == "publications" and self._core.role is None:
            pattern = _pattern(request.of)
            return Rows(self._publication_rows(pattern, session))
        if request.what in CELL_LISTS and self._core.cells is not None:
            return self._cell_rows(request, session, self._core.cells)
        mesh = self._core.mesh if request.what in MESH_LISTS else None
        if request.what not in LISTS and self._core.role is None and mesh is None:
            raise _unknown(request.what)
        self._core.access.book.allows(session.identity, "admin", f"{self._node}/{request.what[:64]}").require()
        if self._core.role is not None:
            rows = self._core.role.rows(request.what)
            if rows is not None:
                if request.variable:
                    rows = [row for row in rows if f"{row.get('publisher')}/{row.get('variable')}" == request.variable]
                return Rows(iter(rows))
        if mesh is not None:
            return Rows(iter(mesh.rows(request, self._engine.mono_ns)))
        if request.what not in LISTS:
            raise _unknown(request.what)
        return self._private_rows(request.what)

    def _cell_rows(self, request: List, session: Session, cells: Cells) -> Rows:
        from chappe.cells import rows  # a node that is no cell needs no NumPy

        self._core.access.book.allows(session.identity, "admin", f"{self._node}/{request.what}").require()
        match request.what:
            case "cells":
                return Rows(rows.known_names(cells, request.of))
            case "cell_links":
                return Rows(rows.links(cells))
        return Rows(rows.parcel_routes(cells, request.of))

    def _private_rows(self, what: str) -> Rows:
        match what:
            case "links":
                return Rows(self._link_rows())
            case "transports":
                return Rows(iter(self._connections.transports.rows()))
            case "clients":
                return Rows(self._client_rows(), len(self._connections))
            case "paths":
                return Rows(self._core.paths.rows(), len(self._core.paths))
            case "broker":
                return Rows(iter(self._core.edge.rows() if self._core.edge is not None else []))
            case "functions":
                return Rows(iter(self._functions()))
            case "drops":
                return Rows(self._drop_rows())
            case "forwarding":
                return Rows(self._forwarding_rows(), self._engine.status.entries())
            case "accounts":
                return Rows({"account": name, **held} for name, held in self._engine.accounts.usage().items())
        return Rows(iter([self._counter_row()]))

    def _counter_row(self) -> Row:
        topics = self._engine.topics
        return {
            "node": self._node,
            "layout": self._engine.status.layout,
            **with_former_names(self._engine.counters()),
            "topic_steps": topics.steps(),
            "group_overflows": topics.overflows,
            "memory_refused": self._engine.memory.refused,
            "route_error": repr(self._engine.route_error) if self._engine.route_error else "",
            **self._turn_row(),
        }

    def _turn_row(self) -> Row:
        if self.turns is None:
            return {}
        return {"loop_turn_max_ns": self.turns.longest_ns, "loop_turn_recent_max_ns": self.turns.recent_longest_ns}

    def _publisher_rows(self, session: Session) -> Iterator[Row | None]:
        rights = self._rights(session, "watch")
        if rights.nowhere:
            return
        for publisher, count in self._variables.directory.publishers.walk():
            wanted = AddressPattern("text", (publisher, "#"))
            yield {"publisher": publisher, "variables": count} if rights.permit(wanted) else None

    def _variable_rows(self, session: Session) -> Iterator[Row | None]:
        rights = self._rights(session, "watch")
        if rights.nowhere:
            return
        everywhere = rights.everywhere
        names = {link.port: link.name for link in self._links}
        for entry in self._variables.directory.walk():
            variable = entry.variable
            if not everywhere:
                levels = (variable.publisher, *variable.variable.split("/"))
                if not rights.permit(AddressPattern("text", levels)):
                    yield None
                    continue
            yield {
                "id": variable.variable_id,
                "publisher": variable.publisher,
                "variable": variable.variable,
                "type": variable.type,
                "rate_hz": variable.rate_num * 1e9 / variable.rate_den,
                "priority": variable.priority,
                "published": entry.published,
                "client": entry.owner_name,
                "links": sorted(names.get(port, str(port)) for port in entry.inputs),
                "watchers": len(entry.watchers),
            }

    def _topic_rows(self, session: Session) -> Iterator[Row | None]:
        rights = self._rights(session, "subscribe")
        if rights.nowhere:
            return
        counts: dict[tuple[str, str, str], int] = {}
        for other in self._core.sessions:
            for key in list(other.subscriptions):
                yield None
                if key in counts:
                    counts[key] += 1
                elif len(counts) < MAX_TOPICS and rights.permit(AddressPattern.address(topic_address(key[0], key[1]))):
                    counts[key] = 1
        for (kind, pattern, group), count in counts.items():
            yield {"pattern": pattern, "kind": kind, "group": group, "subscribers": count}

    def _publication_rows(self, pattern: AddressPattern | None, session: Session) -> Iterator[Row | None]:
        """What is advertised in the mesh (MR-133), meets the pattern, and may be subscribed to by the client."""
        rights = self._rights(session, "subscribe")
        if rights.nowhere:
            return
        for row in self._core.control.advertisements.rows():
            wanted = AddressPattern.address(topic_address(row["kind"], row["topic"]))
            met = pattern is None or pattern.overlaps(wanted)
            yield row if met and rights.permit(wanted) else None

    def _rights(self, session: Session, action: Action) -> Rights:
        return self._core.access.book.rights(session.identity, action)

    def _link_rows(self) -> Iterator[Row]:
        for link in list(self._links):
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

    def _client_rows(self) -> Iterator[Row | None]:
        for connection in self._connections:
            session = connection.session
            if session.role != "client" or connection.lost.is_set():
                yield None
                continue
            yield {
                "name": session.name,
                "identity": str(session.identity),
                "address": str(connection.link.peer),
                "status": connection.heartbeat.status.value,
                "variables": len(session.variables),
                "watched": len(session.watched),
                "subscriptions": len(session.subscriptions),
                "inboxes": len(session.inboxes),
                **self._port_row(session.port),
            }

    def _port_row(self, port: int) -> Row:
        silent_s = (self._engine.mono_ns - self._engine.last_heard(port)) / 1e9
        return {
            "queued_bytes": self._engine.pending(port),
            "silent_s": max(0.0, silent_s),
            **with_former_names(self._engine.port_counters(port)),
        }

    def _forwarding_rows(self) -> Iterator[Row]:
        """What the status table does with the values of each variable in the mode that it is in."""
        names = {connection.port: connection.session.name for connection in self._connections}
        names |= {link.port: link.name for link in self._links}
        status = self._engine.status
        following = 0
        while found := status.variables(following, 1):  # one at a time: others may go before they are asked for
            [variable] = found
            following = variable + 1
            described = status.describe(variable)
            outputs = described["modes"].get(status.slot, {})
            entry = self._variables.directory.numbered(variable)
            yield {
                "id": variable,
                "variable": "/".join(entry.name) if entry else "",
                "inputs": [names.get(port, str(port)) for port in described["inputs"]],
                "outputs": [
                    {"to": names.get(port, str(port)), **terms} for port, terms in islice(outputs.items(), OUTPUTS)
                ],
                "more_outputs": max(0, len(outputs) - OUTPUTS),
                "flooding": described["flooding"].get(status.slot, 0),
                "modes": sorted(mode for mode in {*described["modes"], *described["flooding"]} if mode < MODES),
            }

    def _drop_rows(self) -> Iterator[Row]:
        yield from self._core.access.refusals.rows()
        for kind, address, reason, count in self._engine.address_drops():
            if kind == "topic" and reason == "drop_not_permitted":
                continue  # listed by client and topic
            known = kind == "variable" and isinstance(address, int)
            entry = self._variables.directory.numbered(int(address)) if known else None
            name = "/".join(entry.name) if entry else str(address)
            yield {"kind": kind, "address": name, "reason": reason, "count": count}


def _pattern(wanted: str) -> AddressPattern | None:
    try:
        return AddressPattern.address(wanted) if wanted else None
    except PatternError as error:
        raise KeyError(str(error)) from None


def _unknown(what: str) -> KeyError:
    if what in CELL_LISTS:
        return KeyError(f"{what}: this node is no cell; add [cells] to its file")
    if what in MESH_LISTS:
        return KeyError(f"{what}: this node neither measures nor is it in a mesh; add [mesh] or [measure] to its file")
    return KeyError(f"{what[:40]!r} cannot be listed; one of {', '.join(LISTS)} can")


def _alone(link: Link) -> str:
    """A multicast group has no connection, and needs none."""
    return "group" if link.url.startswith("udp+multicast:") else "failed"
