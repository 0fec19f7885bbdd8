"""One tree of places that an event visits from this node: nodes of the cluster, then units, each of them once.

Routes of several destinations are merged: a route joins the tree at the last of its places that is there already. So
whatever the routes are, every place has one parent, and the result can be written down as ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from chappe.events.interest import Wanted
from chappe.events.trace import visited
from chappe.events.way import Step, Unit, Way
from chappe.linkstate.units import Thing

Entry = Callable[[Thing, tuple[str, ...]], tuple[str, tuple[str, ...]] | None]
"""Of a unit next to this node, with the trace so far: the peer over whose link it is entered, and the trace then."""


class Place:
    """A node or unit in the tree."""

    __slots__ = ("below", "groups", "parent", "plain", "thing")

    def __init__(self, thing: Thing, parent: Place | None) -> None:
        self.thing = thing
        self.parent = parent
        self.below: list[Place] = []
        self.plain = False
        self.groups: tuple[str, ...] = ()


class Plan:
    """A growing tree with this node as its root."""

    def __init__(self, node: str) -> None:
        self.root = Place(Thing(0, node), None)
        self.places = {self.root.thing: self.root}

    def graft(self, things: Sequence[Thing]) -> Place:
        """The place of the last of these things; those that are missing are put below the ones that are there."""
        place = self.root
        for at in range(len(things) - 1, -1, -1):
            known = self.places.get(things[at])
            if known is not None:
                place = known
                things = things[at + 1 :]
                break
        for thing in things:
            place = self._put(thing, place)
        return place

    def hang(self, units: Sequence[Unit], place: Place) -> None:
        """Put a tree of units that came with a way at the place of its first one."""
        parents = [(len(units), place)]
        mark(place, units[0].deliver, units[0].groups)
        for at, unit in enumerate(units[1:], 1):
            while parents[-1][0] == at:
                parents.pop()
            thing = Thing(unit.level, unit.name)
            here = self.places.get(thing) or self._put(thing, parents[-1][1])
            mark(here, unit.deliver, unit.groups)
            if unit.below:
                parents.append((at + 1 + unit.below, here))

    def path(self, thing: Thing) -> tuple[Thing, ...]:
        """The places from the root's first branch to this one."""
        place: Place | None = self.places[thing]
        passed = []
        while place is not None and place.parent is not None:
            passed.append(place.thing)
            place = place.parent
        return tuple(reversed(passed))

    def ways(
        self,
        entry: Entry,
        trace: tuple[str, ...],
        profile: str,
        rescues: int,
        served: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
    ) -> Iterator[tuple[Place, str, Way]]:
        """(first place, peer, way) of each branch; peer is empty where no link leads into a unit next to this node."""
        for place in self.root.below:
            if place.thing.level == 0:
                steps = tuple(_steps(place))
                yield place, place.thing.name, Way(steps, (), _open(trace, place), profile, rescues, served, needs)
                continue
            found = entry(place.thing, _open(trace, place))
            peer, passed = found if found is not None else ("", ())
            yield place, peer, Way((), tuple(_units(place)), passed, profile, rescues, served, needs)

    def _put(self, thing: Thing, parent: Place) -> Place:
        place = Place(thing, parent)
        parent.below.append(place)
        self.places[thing] = place
        return place


def mark(place: Place, plain: bool, groups: tuple[str, ...]) -> None:
    """Say who wants the event at a place."""
    place.plain = place.plain or plain
    place.groups = tuple(sorted({*place.groups, *groups}))


def wanting(place: Place) -> dict[Thing, Wanted]:
    """The destinations at a place and below it."""
    return {below.thing: Wanted(below.plain, below.groups) for below in preorder(place) if below.plain or below.groups}


def preorder(place: Place) -> list[Place]:
    """A place and all below it, each before those below itself; no recursion, a way may be a chain of thousands."""
    order = []
    waiting = [place]
    while waiting:
        here = waiting.pop()
        order.append(here)
        waiting.extend(reversed(here.below))
    return order


def _open(trace: tuple[str, ...], place: Place) -> tuple[str, ...]:
    """The trace without units that a branch passes all the same, because after a loss there is no other way."""
    if not trace:
        return trace
    units = [below.thing.name for below in preorder(place) if below.thing.level]
    return tuple(left for left in trace if not visited(left, units))


def _steps(place: Place) -> list[Step]:
    nodes = [here for here in preorder(place) if here.thing.level == 0]
    below = _counts(nodes)
    return [
        Step(
            here.thing.name,
            below[here],
            here.plain,
            here.groups,
            tuple(unit for far in here.below if far.thing.level for unit in _units(far)),
        )
        for here in nodes
    ]


def _units(place: Place) -> list[Unit]:
    order = preorder(place)
    below = _counts(order)
    return [Unit(here.thing.level, here.thing.name, below[here], here.plain, here.groups) for here in order]


def _counts(order: list[Place]) -> dict[Place, int]:
    below = dict.fromkeys(order, 0)
    for here in reversed(order):
        if here.parent is not None and here.parent in below:
            below[here.parent] += below[here] + 1
    return below
