"""What clients of this node subscribe to and publish, as the mesh hears of it (MR-133)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chappe.engine._engine import Engine
from chappe.events import notices
from chappe.events.decisions import Decisions
from chappe.events.interest import Subscriptions
from chappe.events.map_results import MapResults
from chappe.linkstate.changes import MapResult
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.units import Address
from chappe.machine import Effect, Publish
from chappe.wire.patterns import Pattern

Offered = Callable[[], Iterable[tuple[str, str]]]  # (kind, topic or pattern) of publications


class OwnInterest:
    """Advertised once a tick, however often it changes until then."""

    def __init__(
        self, me: Address, engine: Engine, subscriptions: Subscriptions, state: LinkState, results: MapResults,
        decisions: Decisions,
    ) -> None:  # fmt: skip
        self.subscriptions = subscriptions
        self._me = me
        self._engine = engine
        self._state = state
        self._results = results
        self._decisions = decisions
        self._publications: tuple[Pattern, ...] = ()
        self._variables: tuple[Pattern, ...] = ()
        self._offered: Offered | None = None  # publications that are not advertised yet
        self._changed = False
        self._notice_due = False

    def subscribed(self, kind: str, pattern: str, group: str) -> None:
        """A client of this node subscribed; once for each client. RefusedError if the node has too many groups."""
        stamp = self.subscriptions.stamp
        self._note(self.subscriptions.add(kind, pattern, group), stamp)

    def unsubscribed(self, kind: str, pattern: str, group: str) -> None:
        """It does so no more; one that was not counted changes nothing."""
        stamp = self.subscriptions.stamp
        try:
            advertised = self.subscriptions.remove(kind, pattern, group)
        except KeyError:
            return
        self._note(advertised, stamp)

    def _note(self, advertised: bool, stamp: int) -> None:
        self._changed = self._changed or advertised
        self._decisions.changed = self._decisions.changed or stamp != self.subscriptions.stamp

    def advertise(self, publications: Offered) -> None:
        """What is published here, in place of what was before; asked for in the next tick."""
        self._offered = publications
        self._changed = True

    def advertise_variables(self, patterns: tuple[Pattern, ...]) -> None:
        """What variables are published here, in place of what was before."""
        self._variables = patterns
        self._changed = True

    @property
    def due(self) -> bool:
        """Whether `tick` has something to do."""
        return self._changed or self._notice_due or self.subscriptions.due

    def tick(self, now_ns: int) -> list[Effect]:
        """Summarise, advertise, and publish what is published here."""
        if self.subscriptions.due:
            self._changed = self.subscriptions.work() or self._changed
        if self._notice_due:  # in a tick of its own: thousands of publications take a millisecond each time
            self._notice_due = False
            return [Publish(*notices.publications(self._me, self._publications, self._engine.wall_ns))]
        if not self._changed:
            return []
        self._changed = False
        if self._offered is not None:
            self._publications = tuple(Pattern(kind, text) for kind, text in self._offered())
            self._offered, self._notice_due = None, True
        self._decisions.changed = True
        return self._results.follow(self._want(now_ns))

    def _want(self, now_ns: int) -> list[MapResult]:
        return self._state.want(self.subscriptions.patterns(), self._publications, now_ns, self._variables)
