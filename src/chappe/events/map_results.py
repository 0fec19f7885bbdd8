"""What the network map of a member reports, as effects of the node: messages to ports, events and log lines."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.engine._engine import Engine
from chappe.events import notices
from chappe.events.decisions import Decisions
from chappe.events.member_links import Links
from chappe.events.member_measure import Measurement
from chappe.events.member_settings import MemberSettings
from chappe.linkstate.changes import CostAdvertised, InterestChanged, MapResult, Notice, RoutesChanged
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.units import Address
from chappe.machine import NEVER, Effect, Log, Publish, Send

ASK = -1


class MapResults:
    """`quiet`: nobody but the map needs readings, so that links whose advertised cost still holds give none."""

    def __init__(
        self, me: Address, engine: Engine, settings: MemberSettings, links: Links, measurement: Measurement,
        state: LinkState, decisions: Decisions, quiet: bool,
    ) -> None:  # fmt: skip
        self.refused = 0  # messages of neighbours that were not believed
        self._me = me
        self._engine = engine
        self._costs = settings.costs
        self._links = links
        self._measurement = measurement
        self._state = state
        self._decisions = decisions
        self._quiet = quiet
        self._next_ns = ASK if settings.mesh else NEVER  # when the map has something to do; ASK: it is to be asked

    def follow(self, results: Iterable[MapResult]) -> list[Effect]:
        """The effects of these results of the map, with neighbours as ports and facts as events."""
        effects: list[Effect] = []
        noticed: list[Notice] = []
        ports = self._links.ports
        self._next_ns = ASK
        for result in results:
            if isinstance(result, Send):
                port = ports.get(str(result.to))
                if port is not None:
                    effects.append(Send(port, result.message))
            elif isinstance(result, RoutesChanged | InterestChanged):
                self._decisions.changed = True
            elif isinstance(result, CostAdvertised):
                self._quieten(result.link)
                if self._costs:
                    effects.append(Publish(*notices.performance(self._me, result, self._engine.wall_ns)))
            else:
                noticed.append(result)
        return effects + self._announce(noticed) if noticed else effects

    def next_ns(self) -> int:
        """When the map has something to do."""
        if self._next_ns == ASK:
            self._next_ns = self._state.next_ns()
        return self._next_ns

    def _quieten(self, id: bytes) -> None:
        """What that link costs is advertised: nobody needs a reading of it until it costs something else."""
        link = self._links.by_id.get(id)
        if link is not None and self._quiet:
            self._measurement.initiator.quiet(link.port, *self._state.advertised(id))

    def _announce(self, noticed: list[Notice]) -> list[Effect]:
        """Log lines about members that came or went, and events where this node is the one that publishes them."""
        found: list[Effect] = []
        first: dict[int, bool] = {}  # whether this node reports vertices of a level neither first nor withdrawn
        for notice in noticed:
            vertex_id, fields = notice.vertex_id, {"vertex": str(notice.vertex_id), "reason": notice.reason}
            if notice.kind == "refused":
                self.refused += 1
                found.append(Log("refused", "warning", fields))
                continue
            if notice.kind == "clock":
                found.append(Log("clock corrected", "warning", fields))
                continue
            found.append(Log(notice.kind, "info", fields))
            publishes = first.get(vertex_id.level)
            if publishes is None or vertex_id.path < self._me.path(vertex_id.level):
                publishes = notices.publishes(self._me, self._state, vertex_id)
                if vertex_id.path > self._me.path(vertex_id.level):
                    first[vertex_id.level] = publishes
            if publishes:
                found.append(Publish(*notices.membership(self._me, notice, self._engine.wall_ns)))
        return found
