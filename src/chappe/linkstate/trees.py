"""One tree out of many ways, in which every node and every unit stands once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chappe.linkstate.route import Branch, Leave, Route, Tree
from chappe.linkstate.units import Thing


def grown(me: str, wanted: Collection[Thing], routes: Iterable[Route], unreached: tuple[Thing, ...]) -> Tree:
    """The union of ways, short ones first; a way that meets the tree again goes on from where it does so last.

    Ways kept by hysteresis need not be parts of one another, and an event must not come to a place twice.
    """
    root = Thing(0, me)
    above: dict[Thing, tuple[Thing, bytes]] = {}  # what a thing is reached from, and by which link
    for route in sorted(routes, key=lambda route: (len(route.things), route.things)):
        start = max((place for place, thing in enumerate(route.things) if thing in above), default=-1)
        before = route.things[start] if start >= 0 else root
        for thing, link in zip(route.things[start + 1 :], route.links[start + 1 :], strict=True):
            above[thing] = (before, link)
            before = thing
    below: dict[Thing, list[Thing]] = {}
    for thing in sorted(above):
        below.setdefault(above[thing][0], []).append(thing)
    ends = frozenset(wanted)

    def units(thing: Thing) -> list[tuple[Thing, ...]]:
        """The ways below a unit, itself included."""
        found: list[tuple[Thing, ...]] = [(thing,)] if thing in ends else []
        for child in below.get(thing, ()):
            found.extend((thing, *way) for way in units(child))
        return found

    def branch(node: Thing) -> Branch:
        children = below.get(node, ())
        return Branch(
            node.name,
            node in ends,
            tuple(Leave(above[child][1], child, tuple(units(child))) for child in children if child.level),
            tuple(branch(child) for child in children if not child.level),
        )

    return Tree(branch(root), unreached)
