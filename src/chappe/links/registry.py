"""The links of a node, whatever carries them (MR-046): listed, watched, switched, ended when their time is over."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from chappe.errors import ConfigError
from chappe.links.factory import DATA, Factory
from chappe.links.kinds import factories
from chappe.links.link import Security

State = Literal["open", "waiting", "closed"]  # waiting: its traffic has moved to another link


@dataclass(slots=True, eq=False)
class LinkEntry:
    """One link: a connection, or datagrams beside one."""

    id: UUID
    uri: str
    kind: str
    peer: str
    role: str  # of the other side: node or client
    port: int  # of the engine
    local: str
    remote: str
    security: Security
    data: tuple[str, ...]  # what it carries now
    since_ns: int  # wall clock
    alternate: bool = False
    expires_ns: int = 0  # monotonic; 0: never
    state: State = "open"
    reason: str = ""  # of its last change

    def row(self) -> dict[str, Any]:
        """As listings show it."""
        return {
            "id": str(self.id),
            "uri": self.uri,
            "kind": self.kind,
            "peer": self.peer,
            "role": self.role,
            "port": self.port,
            "local": self.local,
            "remote": self.remote,
            "secure": self.security.secure,
            "mechanism": self.security.mechanism,
            "data": ", ".join(self.data),
            "since_ns": self.since_ns,
            "alternate": self.alternate,
            "state": self.state,
            "reason": self.reason,
            "migrates_to": ", ".join(sorted(factories()[self.kind].migrates_to)) if self.kind in factories() else "",
        }


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened to a link."""

    what: Literal["opened", "closed", "moved", "rebound", "expired", "switched"]
    entry: LinkEntry
    reason: str = ""
    before: int = -1  # the port that carried it, where it is another now


@dataclass(slots=True)
class Switches:
    """What is done for the links of one kind; None leaves what was agreed for each of them."""

    monitoring: bool = True
    monitoring_ns: int | None = None
    detection: bool = True
    detection_ns: int | None = None


@dataclass(slots=True)
class Transports:
    """All links of one node. `new_id` gives fresh identifiers."""

    new_id: Callable[[], UUID]
    _links: dict[UUID, LinkEntry] = field(default_factory=dict)
    _watchers: list[Callable[[Notice], None]] = field(default_factory=list)
    _switches: dict[str, Switches] = field(default_factory=dict)
    _lifetimes: list[tuple[int, int, LinkEntry]] = field(default_factory=list)
    _order: int = 0

    def factories(self) -> dict[str, Factory]:
        """What can make links here, by kind."""
        return factories()

    def __iter__(self) -> Iterator[LinkEntry]:
        return iter(list(self._links.values()))

    def __len__(self) -> int:
        return len(self._links)

    def watch(self, notify: Callable[[Notice], None]) -> None:
        """Call that with each notice from now on."""
        self._watchers.append(notify)

    def unwatch(self, notify: Callable[[Notice], None]) -> None:
        """Call it no more."""
        self._watchers.remove(notify)

    def opened(
        self, *, uri: str, kind: str, peer: str, role: str, port: int, local: str, remote: str, security: Security,
        wall_ns: int, data: tuple[str, ...] = DATA, alternate: bool = False,
    ) -> LinkEntry:  # fmt: skip
        """A link is there."""
        entry = LinkEntry(
            self.new_id(), uri, kind, peer, role, port, local, remote, security, data, wall_ns, alternate
        )  # fmt: skip
        self._links[entry.id] = entry
        self._notify(Notice("opened", entry))
        return entry

    def closed(self, entry: LinkEntry, reason: str) -> None:
        """It is gone, and with it all that was kept for it; saying so twice changes nothing."""
        if self._links.pop(entry.id, None) is not None:
            entry.state, entry.reason = "closed", reason
            self._notify(Notice("closed", entry, reason))

    def moved(self, entry: LinkEntry, data: tuple[str, ...], reason: str) -> None:
        """From now on it carries these kinds of data, and no others."""
        entry.data, entry.reason = data, reason
        entry.state = "open" if data else "waiting"
        self._notify(Notice("moved", entry, reason))

    def rebound(self, entry: LinkEntry, port: int) -> None:
        """Another port of the engine carries it from now on; the one before is about to be freed."""
        before, entry.port = entry.port, port
        self._notify(Notice("rebound", entry, before=before))

    def limit(self, entry: LinkEntry, until_ns: int) -> None:
        """Give it a lifetime (MR-047): `expired` names it from that moment on."""
        entry.expires_ns = until_ns
        self._order += 1
        heapq.heappush(self._lifetimes, (until_ns, self._order, entry))

    def expired(self, now_ns: int) -> list[LinkEntry]:
        """Links whose time is over, each once; the caller ends them (MR-039)."""
        over: list[LinkEntry] = []
        while self._lifetimes and self._lifetimes[0][0] <= now_ns:
            at_ns, _, entry = heapq.heappop(self._lifetimes)
            if entry.state != "closed" and entry.expires_ns == at_ns:
                over.append(entry)
                self._notify(Notice("expired", entry, "its time is over"))
        return over

    def of_port(self, port: int) -> LinkEntry | None:
        """The link that carries a port now."""
        return next((entry for entry in self._links.values() if entry.port == port), None)

    def switches(self, kind: str) -> Switches:
        """What is done for links of that kind; ConfigError if there is no such transport."""
        if kind not in factories():
            raise ConfigError(f"there is no transport {kind!r}; one of {', '.join(factories())}")
        return self._switches.setdefault(kind, Switches())

    def switched(self, kind: str) -> Switches | None:
        """The same; None where nobody has touched them."""
        return self._switches.get(kind)

    def set_monitoring(self, kind: str, on: bool, interval_ns: int | None = None) -> None:
        """Measure links of that kind or not (MR-045); an interval replaces the node's own for them."""
        switches = self.switches(kind)
        switches.monitoring, switches.monitoring_ns = on, interval_ns
        self._switched(kind)

    def set_detection(self, kind: str, on: bool, interval_ns: int | None = None) -> None:
        """Give up links of that kind that are silent, or not; an interval replaces the agreed one (MR-038)."""
        if interval_ns is not None and interval_ns <= 0:
            raise ConfigError(f"the interval of failure detection is positive, not {interval_ns} ns")
        switches = self.switches(kind)
        switches.detection, switches.detection_ns = on, interval_ns
        self._switched(kind)

    def follow(self, wanted: Mapping[str, Switches]) -> None:
        """Use these switches by kind, and for every other kind none; links that run follow at once (MR-045)."""
        for kind in [*self._switches.keys() - wanted.keys(), *wanted]:
            switches = wanted.get(kind, Switches())
            if switches == self._switches.get(kind, Switches()):
                continue
            self.set_monitoring(kind, switches.monitoring, switches.monitoring_ns)
            self.set_detection(kind, switches.detection, switches.detection_ns)

    def rows(self) -> list[dict[str, Any]]:
        """All links as listings show them."""
        return [entry.row() for entry in self]

    def _switched(self, kind: str) -> None:
        for entry in self:
            if entry.kind == kind:
                self._notify(Notice("switched", entry))

    def _notify(self, notice: Notice) -> None:
        for notify in list(self._watchers):
            notify(notice)
