"""What rules refused that nobody asked for: a list for operators, and lines for the audit log.

Clients are refused publishing, by topic; neighbours what they define and announce, by action and address. Both can be
refused as often as they like, so what is written down about them is bounded: one line for each of these in a minute,
with the number since the last one, and so many addresses of one of them that are named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chappe.security.audit import Line
from chappe.security.config import Action
from chappe.security.identity import Identity

PAUSE_NS = 60_000_000_000  # between two lines about the same client and topic
LINES = 256  # that are written in such a time, about all of them
TOPICS = 64  # of one client that are named; of one neighbour: addresses, for each action
CLIENTS = 1024  # that are remembered, those that were refused last
OTHERS = "(others)"


@dataclass(slots=True)
class _Refused:
    """Events of one client to one topic, or one action of a neighbour at one address."""

    identity: Identity
    reason: str
    events: int = 0
    written: int = 0  # of these, in the log
    noted: bool = True  # asked for since the last line
    written_ns: int | None = None


class Refusals:
    """Knows no clock and no disk: `due` says what to write down. `unit`: what its lines call what they count."""

    def __init__(self, unit: str = "events") -> None:
        self._unit = unit
        self._clients: dict[tuple[str, str, Action], dict[str, _Refused]] = {}
        self._window_ns = 0
        self._lines = 0

    def note(self, identity: Identity, address: str, reason: str) -> None:
        """A client asked to publish to a topic that it may not publish to."""
        refused = self._entry(identity, address, reason)
        refused.noted = True

    def add(self, identity: Identity, action: Action, address: str, reason: str) -> None:
        """A neighbour did something that it may not do."""
        self._entry(identity, address, reason, action).events += 1

    def count(self, identity: Identity, topics: Iterable[tuple[str, int]]) -> None:
        """So many of its events to topics were dropped; an empty topic stands for those that are not named."""
        for address, events in topics:
            self._entry(identity, address or OTHERS, "no rule allows it").events += events

    def due(self, now_ns: int) -> list[Line]:
        """Lines for the audit log: a refusal at once, what follows it a minute later and together."""
        if now_ns - self._window_ns >= PAUSE_NS:
            self._window_ns, self._lines = now_ns, 0
        lines: list[Line] = []
        for (_, _, action), topics in self._clients.items():
            for address, refused in topics.items():
                if not refused.noted and refused.events == refused.written:
                    continue
                if self._lines >= LINES:
                    return lines
                if refused.written_ns is not None and now_ns - refused.written_ns < PAUSE_NS:
                    continue
                details = {self._unit: refused.events - refused.written}
                lines.append(Line(refused.identity, action, address, "denied", refused.reason, details))
                refused.written, refused.noted, refused.written_ns = refused.events, False, now_ns
                self._lines += 1
        return lines

    def rows(self) -> list[dict[str, Any]]:
        """Client, topic and how many events were refused, most first."""
        found = [
            {"kind": "topic", "address": address, "reason": "drop_not_permitted", "count": refused.events,
             "client": str(refused.identity)}
            for topics in self._clients.values() for address, refused in topics.items()
        ]  # fmt: skip
        return sorted(found, key=lambda row: -int(row["count"]))

    def _entry(self, identity: Identity, address: str, reason: str, action: Action = "publish") -> _Refused:
        who = (identity.name, identity.role, action)
        topics = self._clients.pop(who, None)
        if topics is None:
            topics = {}
            if len(self._clients) >= CLIENTS:
                del self._clients[next(iter(self._clients))]
        self._clients[who] = topics  # the last one that was refused is forgotten last
        if address not in topics and len(topics) >= TOPICS:
            address, reason = OTHERS, f"more than {TOPICS} were refused; those before are named"
        if address not in topics:
            topics[address] = _Refused(identity, reason)
        return topics[address]
