"""Measurements that somebody asked for: at once, or at another interval (MR-072)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chappe.errors import RefusedError
from chappe.events import rows as mesh_rows
from chappe.events.member import Member
from chappe.events.member_links import Link
from chappe.machine import Effect, Send
from chappe.wire.control import Listing, Measure
from chappe.wire.mesh import Pace

PATIENCE_NS = 5_000_000_000  # for an answer of the other end of a link
MOST = 256  # requests that wait


@dataclass(slots=True)
class _Waiting:
    port: int  # of who asked
    request: int
    links: list[Link]
    since_ns: int


class MeasureNow:
    """Carries out `Measure`; those that wait for echoes are answered by `tick`."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._waiting: list[_Waiting] = []

    def receive(self, port: int, request: Measure, now_ns: int) -> list[Effect]:
        """Do it; RefusedError says why it cannot be done, and nothing has changed then."""
        links = self._links(request.of)
        if request.every_ns is not None:
            return self._pace(port, request, links, request.every_ns)
        if request.far:
            raise RefusedError("the other end can be given an interval; measuring now is done from here", "invalid")
        if len(self._waiting) >= MOST:
            raise RefusedError(f"{MOST} requests wait for measurements already; ask again", "limit")
        initiator = self._member.measurement.initiator
        probed = [link for link in links if initiator.now(link.port, now_ns)]
        if not probed:
            names = ", ".join(link.name for link in links) or "no link"
            raise RefusedError(
                f"{names[:200]}: not measured: switched off here, or the other end does not want to be probed",
                "invalid",
            )
        self._waiting.append(_Waiting(port, request.id, links, now_ns))
        return []

    def tick(self, now_ns: int) -> list[Effect]:
        """Answer whose links have all been measured since, or who has waited for too long."""
        done = [
            each
            for each in self._waiting
            if now_ns > each.since_ns + PATIENCE_NS or all(self._fresh(link, each.since_ns) for link in each.links)
        ]
        for each in done:
            self._waiting.remove(each)
        return [self._answer(each.port, each.request, each.links, each.since_ns) for each in done]

    def gone(self, port: int) -> None:
        """Who asked is gone."""
        self._waiting = [each for each in self._waiting if each.port != port]

    def _links(self, name: str) -> list[Link]:
        links = [link for link in self._member.links if name in ("", link.name)]
        if not links:
            known = ", ".join(sorted(link.name for link in self._member.links)) or "none"
            raise RefusedError(f"there is no link to {name[:64]!r} (links: {known[:500]})", "unknown")
        return links

    def _pace(self, port: int, request: Measure, links: list[Link], every_ns: int) -> list[Effect]:
        initiator = self._member.measurement.initiator
        settings = initiator.settings
        if every_ns not in (0, -1) and not settings.shortest_ns <= every_ns <= settings.longest_ns:
            raise RefusedError(
                f"an interval of {every_ns / 1e9:g} s; choose one from {settings.shortest_ns / 1e9:g} "
                f"to {settings.longest_ns / 1e9:g} s, 0 for never or -1 for the usual one",
                "invalid",
            )
        for link in links:
            initiator.switch(link.port, every_ns != 0)
            if every_ns:
                initiator.interval(max(every_ns, 0), link.port)
        far: list[Effect] = []
        if request.far:
            far = [Send(link.port, Pace(interval_ns=every_ns)) for link in links if link.role == "node"]
        return [*far, self._answer(port, request.id, links, -1)]

    def _fresh(self, link: Link, since_ns: int) -> bool:
        """Whether it was measured since; a link that is gone or is not measured is not waited for."""
        initiator = self._member.measurement.initiator
        if self._member.links.by_port.get(link.port) is not link or not initiator.enabled(link.port):
            return True
        return self._measured(link, since_ns)

    def _measured(self, link: Link, since_ns: int) -> bool:
        if self._member.links.by_port.get(link.port) is not link:
            return False
        history = self._member.measurement.initiator.history(link.port)
        return len(history) > 0 and int(history[-1]["now_ns"]) > since_ns

    def _answer(self, port: int, request: int, links: list[Link], since_ns: int) -> Effect:
        rows: list[dict[str, Any]] = []
        for link in links:
            if self._member.links.by_port.get(link.port) is link:
                row = mesh_rows.plain(mesh_rows.measured(self._member, link))
                rows.append(row if since_ns < 0 else {**row, "fresh": self._measured(link, since_ns)})
        return Send(port, Listing(id=request, rows=tuple(rows), total=len(rows)))
