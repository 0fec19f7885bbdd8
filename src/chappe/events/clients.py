"""What clients of a node ask of the mesh: their interest, what they publish, and measurements on request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import structlog

from chappe.errors import RefusedError
from chappe.events import rows as mesh_rows
from chappe.events.member import Member
from chappe.events.on_demand import MeasureNow
from chappe.machine import Effect
from chappe.wire.control import List, Measure

log = structlog.get_logger(__name__)

Publishes = Callable[[str, str, str], bool]  # whether rules let a node publish (kind, pattern)


class MeshClients:
    """Between the control protocol of a node and its member of the mesh.

    `publications` are those of the configuration, as (kind, pattern); `publishes` says which of others are believed.
    """

    def __init__(self, member: Member, publications: Sequence[tuple[str, str]], publishes: Publishes) -> None:
        self._member = member
        self._publications = tuple(publications)
        self._publishes = publishes
        self._now = MeasureNow(member)
        if publications:
            member.advertise(lambda: self._publications)

    def subscribed(self, kind: str, pattern: str, group: str) -> None:
        """A client is interested in events of a pattern; beyond the limit of groups it is served by this node only."""
        try:
            self._member.subscribed(kind, pattern, group)
        except RefusedError as error:
            log.warning("a subscription is served at this node only", node=self._member.me.node, reason=str(error))

    def unsubscribed(self, kind: str, pattern: str, group: str) -> None:
        """It is so no more."""
        self._member.unsubscribed(kind, pattern, group)

    def advertised(self, patterns: Collection[tuple[str, str]]) -> None:
        """What clients of this node publish, beside what its file says (MR-133)."""
        if self._member.settings.mesh:
            self._member.advertise(lambda: dict.fromkeys([*self._publications, *patterns]))

    def publications(self) -> Iterator[dict[str, Any]]:
        """What is advertised, by node or unit."""
        if not self._member.settings.mesh:
            return iter(())
        rows = mesh_rows.publications(self._member)
        return (row for row in rows if row["level"] or self._publishes(row["at"], row["kind"], row["topic"]))

    def measure(self, port: int, request: Measure, now_ns: int) -> list[Effect]:
        """Measure links now, or as often as it says; RefusedError says why not (MR-072)."""
        return self._now.receive(port, request, now_ns)

    def rows(self, request: List, now_ns: int) -> list[dict[str, Any]]:
        """The rows of a listing; RefusedError says why there are none."""
        return mesh_rows.rows(self._member, request, now_ns)

    def gone(self, port: int) -> None:
        """A client is gone: nobody waits for its measurements."""
        self._now.gone(port)

    def tick(self, now_ns: int) -> list[Effect]:
        """The answers to whose measurements are there, or late."""
        return self._now.tick(now_ns)
