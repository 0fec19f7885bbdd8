"""The last route of each topic, so that a quicker one can wait for it; bounded by topics and by their hops."""

from __future__ import annotations

from collections import Counter

from chappe.events.planner import Planned

REMEMBERED = 1 << 17  # topics
ROUTES = 1 << 18  # hops of all routes together: those of topics that are seldom published are all different

Topic = tuple[str, bytes]


class PreviousRoutes:
    """Forgets the topic that was asked for longest ago."""

    def __init__(self, topics: int = REMEMBERED, routes: int = ROUTES) -> None:
        self._topics = topics
        self._limit = routes
        self._last: dict[Topic, Planned] = {}
        self._users: Counter[Planned] = Counter()
        self._routes = 0

    def __len__(self) -> int:
        return len(self._last)

    def replace(self, topic: Topic, planned: Planned) -> Planned | None:
        """Remember the route of a topic; the one before it, if that is known."""
        old = self._last.pop(topic, None)
        self._last[topic] = planned
        if old is planned:
            return old
        if not self._users[planned]:
            self._routes += len(planned.routes)
        self._users[planned] += 1
        if old is not None:
            self._drop(old)
        while len(self._last) > self._topics or (self._routes > self._limit and len(self._last) > 1):
            self._drop(self._last.pop(next(iter(self._last))))
        return old

    def _drop(self, planned: Planned) -> None:
        self._users[planned] -= 1
        if not self._users[planned]:
            del self._users[planned]
            self._routes -= len(planned.routes)
