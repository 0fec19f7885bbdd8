"""Watches that wait until their variable appears, or until their time is over."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from chappe.core.session import Session
from chappe.machine import NEVER
from chappe.wire.control import Watch

MAX_WAIT_NS = 60_000_000_000

Name = tuple[str, str]  # publisher, variable


@dataclass(slots=True, eq=False)
class Waiting:
    """One of them; its session counts it until it is over."""

    session: Session
    request: Watch
    deadline_ns: int
    asked: bool = False  # a broker that knows its variable by now is about to answer

    @property
    def name(self) -> Name:
        return self.request.publisher, self.request.variable


class WaitingWatches:
    """By variable, and by the time when each is over. `seek(name, on)`: a variable is waited for, or no more."""

    def __init__(self, seek: Callable[[Name, bool], None]) -> None:
        self._seek = seek
        self._by_name: dict[Name, dict[Waiting, None]] = {}
        self._deadlines: list[tuple[int, int, Waiting]] = []  # a heap
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __contains__(self, name: Name) -> bool:
        return name in self._by_name

    def add(self, session: Session, request: Watch, now_ns: int) -> None:
        """Keep it from now on, for as long as it asks for."""
        session.waiting += 1
        item = Waiting(session, request, now_ns + min(request.wait_ns, MAX_WAIT_NS))
        if item.name not in self._by_name:
            self._by_name[item.name] = {}
            self._seek(item.name, True)
        self._by_name[item.name][item] = None
        self._order += 1
        heapq.heappush(self._deadlines, (item.deadline_ns, self._order, item))

    def of(self, name: Name) -> list[Waiting]:
        """Those that wait for a variable."""
        return list(self._by_name.get(name, ()))

    def remove(self, item: Waiting) -> bool:
        """It waits no longer; False if it had ceased to."""
        waiting = self._by_name.get(item.name, {})
        if item not in waiting:
            return False
        item.session.waiting -= 1
        del waiting[item]
        if not waiting:
            del self._by_name[item.name]
            self._seek(item.name, False)
        return True

    def expire(self, now_ns: int, most: int) -> list[Waiting]:
        """So many, at most, whose time is over, and that nobody has taken."""
        found: list[Waiting] = []
        while self._deadlines and self._deadlines[0][0] <= now_ns and len(found) < most:
            item = heapq.heappop(self._deadlines)[2]
            if self.remove(item):
                found.append(item)
        return found

    def next_tick(self) -> int:
        """When the first is over."""
        return self._deadlines[0][0] if self._deadlines else NEVER
