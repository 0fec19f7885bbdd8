"""The election of controllers: the node with the smallest name that can be reached originates for a unit (MR-011)."""

from __future__ import annotations

from itertools import chain

from chappe.linkstate.choices import NEVER
from chappe.linkstate.database import Database
from chappe.linkstate.interests import interest_of
from chappe.linkstate.origination import NOTHING, Interest, Originator, content
from chappe.linkstate.purge import Purge, replaced
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Location, View
from chappe.linkstate.units import Address
from chappe.wire.mesh import LinkAdvert
from chappe.wire.patterns import Pattern, covers, summarise

SUMMARIES = 64
PATIENCE = 5  # times the settling time: a controller waits so long at most, though more keeps joining
OVERLAP = 10  # times the settling time: a controller that was goes on so long at most, so that its successor is heard


class Election:
    """What a node advertises for the units it lies in.

    One that finds itself controller waits until nothing new has joined for a while, because a node that has just come
    up knows only itself; not for ever, since in a large mesh something joins all the time. One that is it no more goes
    on until its successor has advertised it, so that a unit is never without an originator.
    """

    def __init__(self, me: Address, settings: Settings, database: Database, originator: Originator) -> None:
        self.me = me
        self.settings = settings
        self.database = database
        self.originator = originator
        self.purge = Purge(me, settings, database)
        self.next_ns = NEVER
        self.withdrawn: list[Location] = []  # who originated for the own units, and does no more
        self._paths = [me.path(level) for level in range(me.depth + 1)]
        self._since: dict[int, int] = {}
        self._ending: dict[int, int] = {}  # by level, until when it goes on at the latest
        self._joined_ns = [-NEVER] * (me.depth + 1)
        self._summaries: dict[frozenset[Pattern], tuple[Pattern, ...]] = {}

    def joined(self, level: int, now_ns: int) -> None:
        """Something new of a level can be reached: more of the units around it may follow soon."""
        for above in range(level + 1, self.me.depth + 1):
            self._joined_ns[above] = now_ns

    def update(self, view: View, own: Interest, now_ns: int) -> None:
        """Say what this map makes it say."""
        self.next_ns = NEVER
        self.purge.observe(view, now_ns)
        self.withdrawn.clear()
        for level in range(1, self.me.depth + 1):
            withdrawn = self.purge.withdrawn(level)
            self.withdrawn += [(level, self._paths[level], name) for name, _ in withdrawn]
            if self._originates(view, level, own, now_ns):
                links = view.leaving(level)
                self.originator.links(level, links, view.members(level), now_ns, withdrawn, view.capabilities(level))
                # A unit without a link out of it is in nobody's map: nobody needs to hear that it wants nothing.
                self.originator.interest(level, self._interest(view, level, own), now_ns, originates=bool(links))
            elif self.originator.originates("l", level) or self.originator.originates("i", level):
                self.originator.links(level, (), 1, now_ns, withdrawn)
                self.originator.interest(level, NOTHING, now_ns)

    def _originates(self, view: View, level: int, own: Interest, now_ns: int) -> bool:
        speaking = self.originator.originates("l", level)
        settle_ns = level * self.settings.settle_ns  # smaller units speak first
        controller = view.controllers[level]
        if controller == self.me.node:
            since_ns = self._since.setdefault(level, now_ns)
            settled_ns = max(since_ns, self._joined_ns[level]) + settle_ns
            ready_ns = min(settled_ns, since_ns + PATIENCE * settle_ns)
            if speaking or now_ns >= ready_ns:
                return True
            self.next_ns = min(self.next_ns, ready_ns)
            return False
        self._since.pop(level, None)
        if not speaking:
            self._ending.pop(level, None)
            return False
        until_ns = self._ending.setdefault(level, now_ns + OVERLAP * settle_ns)
        if now_ns >= until_ns or self._successor_took_over(view, level, own):
            del self._ending[level]
            return False
        self.next_ns = min(self.next_ns, until_ns)
        return True

    def _successor_took_over(self, view: View, level: int, own: Interest) -> bool:
        """Whether the successor has advertised all of the unit.

        One that originated for another part of it does not know the interest of this part at once. Until it does this
        node goes on, or events for its part would have no destination meanwhile.
        """
        location = (level, self._paths[level], view.controllers[level])
        links, interest = (self.database.entries.get((kind, *location)) for kind in ("l", "i"))
        if links is None or not isinstance(links.advert, LinkAdvert) or not links.advert.links:
            return False
        if replaced(self.database, location):  # that was before it was gone: it is back, and has said nothing yet
            return False
        advertised = {fact.id for fact in links.advert.links}
        if any(fact.id not in advertised for fact in view.leaving(level)):
            return False
        said = content(interest.advert) if interest is not None else NOTHING
        true = self._interest(view, level, own)
        return all(
            any(covers(wide, pattern) for wide in advertised)
            for advertised, patterns in ((said.wanted, true.wanted), (said.variables, true.variables))
            for pattern in patterns
        )

    def _interest(self, view: View, level: int, own: Interest) -> Interest:
        """What is wanted and published in the own unit of a level, summarised."""
        inside = [interest_of(self.database, vertex) for vertex in view.vertices if vertex.level < level]
        kinds = (frozenset(chain.from_iterable(same)) for same in zip(own, *inside, strict=True))
        return Interest(*(self._summary(patterns) for patterns in kinds))

    def _summary(self, patterns: frozenset[Pattern]) -> tuple[Pattern, ...]:
        found = self._summaries.get(patterns)
        if found is None:
            if len(self._summaries) >= SUMMARIES:
                self._summaries.clear()
            found = self._summaries[patterns] = summarise(sorted(patterns), self.settings.summary)
        return found
