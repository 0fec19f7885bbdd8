"""Where variables are published, and who looks for them: so they flow to whoever wants them, without brokers.

Every node advertises the publishers of its variables, and units summarise them. Who wants a variable, or all that match
a pattern, looks for it at each vertex that may have it: it asks the next node on the shortest way there (`Discover`),
which asks the next, so that all who want the same share one way. Where the variable is published it is offered, and the
announcement comes back along that way, hop by hop; values follow as they are demanded (`chappe.core.demand`).

A way names the units that it crosses, the nodes inside each find their own: so no two units can send it to each other
for ever, whatever each of them believes the other to cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from chappe.events.asked import Asked
from chappe.events.member_links import Link, Links
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.units import Address, VertexId
from chappe.machine import NEVER, Effect, Log, Send
from chappe.security.patterns import AddressPattern, PatternError
from chappe.wire.mesh import MAX_SOUGHT, Discover, Sought
from chappe.wire.patterns import Pattern, overlaps
from chappe.wire.topics import ONE, REST, has_wildcard, levels_cover, levels_of

CAPABILITY = "demand"
LEAVING = -1  # of a pattern that is to be looked for a moment longer, from the next tick on
OVERLAP_NS = 1_000_000_000  # what takes another way comes by the old one, too, until it surely comes by the new one
SLICE = 100  # of what is looked for, taken through another map at once: about a millisecond
MOST_SOUGHT = 16_384  # patterns that one neighbour may look for
MOST_INSIDE = 4_096  # patterns by which a node looks at one place, inside its unit: more are widened
MOST_ACROSS = 256  # and in another unit
MOST_CHARACTERS = 4 << 20  # of all that one neighbour looks for
MAX_TEXT = 1_024

Via = tuple[VertexId, ...]
EVERYWHERE: Via = ()


class Source(Protocol):
    """The variables of this node: what is published here, and what may be announced to a neighbour."""

    @property
    def stamp(self) -> int:
        """Changes whenever `publishers` does."""

    def publishers(self) -> Iterable[str]:
        """Publishers, as the first level of addresses, whose variables come from here."""

    def offer(self, port: int, neighbour: str, target: VertexId, pattern: str) -> None:
        """A neighbour may have what matches and is published at that vertex."""

    def take_back(self, port: int, target: VertexId, pattern: str) -> None:
        """It may not any more, as far as this goes."""

    def take_back_all(self, port: int) -> None:
        """Nothing that was offered to that neighbour is any more."""

    def ask_again(self, pattern: str) -> None:
        """What matches is looked for by other links than before: `asks` says by which."""


class _NoVariables:
    """Of a member that has none."""

    stamp = 0

    def publishers(self) -> Iterable[str]:
        return ()

    def offer(self, port: int, neighbour: str, target: VertexId, pattern: str) -> None: ...
    def take_back(self, port: int, target: VertexId, pattern: str) -> None: ...
    def take_back_all(self, port: int) -> None: ...
    def ask_again(self, pattern: str) -> None: ...


NOTHING: Source = _NoVariables()


class _Outgoing:
    """What this node looks for by one link, with one way from there on."""

    __slots__ = ("patterns", "sent", "wild")

    def __init__(self) -> None:
        self.patterns: dict[str, int] = {}  # until when; NEVER: as long as it is wanted
        self.wild: set[str] = set()  # those of them that stand for several variables
        self.sent: set[str] = set()  # what the neighbour was asked for, which may be wider


class Discovery:
    """Looks for variables on behalf of clients here and of neighbours."""

    def __init__(self, me: Address, state: LinkState, links: Links, source: Source, profile: str) -> None:
        self.refused = 0  # patterns of neighbours
        self.next_ns = NEVER  # when something that was looked for elsewhere ends
        self._me = me
        self._state = state
        self._links = links
        self._source = source
        self._profile = profile
        self._speaking: set[int] = set()  # ports of neighbours that understand it
        self._asked: dict[int, dict[tuple[Via, str], None]] = {}  # by port
        self._characters: Counter[int] = Counter()  # of it, by port
        self._wanted: Counter[tuple[Via, str]] = Counter()  # by clients here and by neighbours
        self._stale: dict[tuple[Via, str], None] = {}  # of what is wanted: may take another way by the map as it is now
        self._steps: dict[tuple[Via, str], tuple[tuple[int, Via], ...]] = {}  # of what is wanted: where it is asked for
        self._ways_to: dict[tuple[VertexId, str], Counter[tuple[int, Via]]] = {}  # of where it is, and the pattern
        self._chosen: dict[tuple[VertexId, str], tuple[int, Via]] = {}  # of these ways
        self._outgoing: dict[tuple[int, Via], _Outgoing] = {}
        self._dirty: dict[tuple[int, Via], None] = {}
        self._ways: dict[tuple[VertexId, int], tuple[int, Via] | None] = {}  # as the map is now
        self._published: _Published | None = None
        self._map_stamp = -1  # the map that this is about
        self._source_stamp = source.stamp
        self._outdated = False

    # --- what this node has

    def advertised(self) -> tuple[Pattern, ...]:
        """Patterns of the variables that are published here."""
        self._source_stamp = self._source.stamp
        return tuple(Pattern("s", f"{publisher}/{REST}") for publisher in self._source.publishers())

    @property
    def advertising(self) -> bool:
        """Whether `advertised` has other ones."""
        return self._source.stamp != self._source_stamp

    # --- what is looked for

    @property
    def size(self) -> int:
        """Patterns that clients here and neighbours look for."""
        return len(self._wanted)

    def seek(self, pattern: str, on: bool) -> None:
        """A client here looks for variables, or does so no more; once for each."""
        self._want((EVERYWHERE, pattern), on)

    def asks(self, port: int, address: str, origin: str) -> Asked:
        """Whether a variable that is published at that node is looked for by that link."""
        found, levels = Asked.NO, levels_of(address)
        for key, outgoing in self._outgoing.items():
            if key[0] != port or not _lies_in(origin, key[1][-1]):
                continue
            until = [outgoing.patterns[address]] if address in outgoing.patterns else []
            until += [outgoing.patterns[each] for each in outgoing.wild if levels_cover(levels_of(each), levels)]
            if NEVER in until:
                return Asked.YES
            if until:
                found = Asked.LEAVING
        return found

    def receive(self, link: Link, message: Discover) -> list[Effect]:
        """A neighbour looks for variables, or does so no more."""
        asked = self._asked.setdefault(link.port, {})
        wrong = ""
        for item in message.end:
            sought = _read(item)
            if sought in asked:
                del asked[sought]
                self._characters[link.port] -= _characters(sought)
                self._source.take_back(link.port, sought[0][-1], sought[1])
                self._want(sought, False)
        for item in message.begin:
            sought = _read(item)
            problem = _problem(sought) if link.port in self._speaking else "it has not said that it can"
            if not problem and sought not in asked and self._full(link.port):
                problem = f"it looks for {len(asked)} patterns already; at most {MOST_SOUGHT} are taken"
            if problem:
                self.refused += 1
                wrong = wrong or problem
            elif sought not in asked:
                asked[sought] = None
                self._characters[link.port] += _characters(sought)
                self._source.offer(link.port, link.name, sought[0][-1], sought[1])
                self._want(sought, True)
        if wrong:
            return [Log("a search for variables is refused", "warning", {"link": link.name, "reason": wrong})]
        return []

    def joined(self, link: Link) -> None:
        """A neighbour is in the mesh: it hears all that is looked for by its link."""
        if CAPABILITY not in link.capabilities:
            return
        self._speaking.add(link.port)
        for port, via in self._outgoing:
            if port == link.port:
                self._outgoing[port, via].sent.clear()
                self._dirty[port, via] = None
        self._outdated = True

    def lost(self, port: int) -> None:
        """The link to it is gone: what it looked for is looked for no more."""
        self._speaking.discard(port)
        self._source.take_back_all(port)
        self._characters.pop(port, None)
        for sought in self._asked.pop(port, {}):
            self._want(sought, False)
        for key in [key for key in self._outgoing if key[0] == port]:
            self._outgoing[key].sent.clear()
        self._outdated = True

    # --- time

    @property
    def due(self) -> bool:
        """Whether `tick` has something to do."""
        return bool(self._dirty or self._stale) or self._overtaken

    @property
    def busy(self) -> bool:
        """Whether `tick` should be called again at once: it takes other ways in slices."""
        return bool(self._stale)

    def tick(self, now_ns: int) -> list[Effect]:
        """Take the ways that the map has now, in slices, and send what is due after the last."""
        if self._overtaken:
            self._follow_map()
        elif self._stale:
            self._follow()
            if self._stale:
                return []
        dirty, self._dirty = self._dirty, {}
        if now_ns >= self.next_ns:
            dirty.update(dict.fromkeys(self._outgoing))
            self.next_ns = NEVER
        effects: list[Effect] = []
        messages: dict[int, tuple[list[Sought], list[Sought]]] = {}
        for key in dirty:
            self._compare(key, messages.setdefault(key[0], ([], [])), now_ns)
        for port, (begin, end) in messages.items():
            effects += [Send(port, Discover(begin=part)) for part in _parts(begin)]
            effects += [Send(port, Discover(end=part)) for part in _parts(end)]
        return effects

    def _compare(self, key: tuple[int, Via], message: tuple[list[Sought], list[Sought]], now_ns: int) -> None:
        """Add to a message what began and what has ended, of one way by one link."""
        outgoing = self._outgoing.get(key)
        if outgoing is None:
            return
        port, via = key
        speaks = port in self._speaking
        for pattern, until_ns in list(outgoing.patterns.items()):
            if until_ns == LEAVING:
                until_ns = outgoing.patterns[pattern] = now_ns + OVERLAP_NS
            if until_ns <= now_ns or (until_ns != NEVER and not speaks):
                del outgoing.patterns[pattern]
                outgoing.wild.discard(pattern)
                self._source.ask_again(pattern)
            elif until_ns != NEVER:
                self.next_ns = min(self.next_ns, until_ns)
        wanted = widened(outgoing.patterns, MOST_ACROSS if via[0].level else MOST_INSIDE) if speaks else set()
        if speaks:
            way = tuple((place.level, place.name) for place in via)
            message[0].extend((way, pattern) for pattern in sorted(wanted - outgoing.sent))
            message[1].extend((way, pattern) for pattern in sorted(outgoing.sent - wanted))
        outgoing.sent = wanted
        if not outgoing.patterns:
            del self._outgoing[key]

    # --- how

    def _full(self, port: int) -> bool:
        return len(self._asked[port]) >= MOST_SOUGHT or self._characters[port] >= MOST_CHARACTERS

    def _want(self, sought: tuple[Via, str], on: bool) -> None:
        """Count who wants it; ask for it where the map says, or no more."""
        before = self._wanted[sought]
        self._wanted[sought] = before + (1 if on else -1)
        if on and not before:
            self._steps[sought] = ()
            if not self._outdated and self._map_stamp == self._state.stamp:
                self._stale.pop(sought, None)
                self._step(sought, self._places(*sought))
            else:
                self._outdated = True
        elif not self._wanted[sought]:
            del self._wanted[sought]
            self._stale.pop(sought, None)
            self._step(sought, ())
            del self._steps[sought]

    @property
    def _overtaken(self) -> bool:
        """Whether what is looked for takes ways of a map that is over."""
        return bool(self._wanted) and (self._outdated or self._map_stamp != self._state.stamp)

    def _follow_map(self) -> None:
        """The map is another one: everything may take another way. What waits since the last change comes first."""
        self._published = None
        self._ways.clear()
        self._map_stamp, self._outdated = self._state.stamp, False
        self._stale.update(dict.fromkeys(self._wanted))
        self._follow()

    def _follow(self) -> None:
        """A slice of it."""
        for sought in tuple(islice(self._stale, SLICE)):
            del self._stale[sought]
            self._step(sought, self._places(*sought))

    def _step(self, sought: tuple[Via, str], places: tuple[tuple[int, Via], ...]) -> None:
        before, places = self._steps[sought], tuple(dict.fromkeys(places))  # parts of a unit may lie on one way
        if before == places:
            return
        self._steps[sought] = places
        pattern = sought[1]
        for place in places:
            if place not in before:
                self._ways_to.setdefault((place[1][-1], pattern), Counter())[place] += 1
        for place in before:
            if place not in places:
                ways = self._ways_to[place[1][-1], pattern]
                ways[place] -= 1
                if not ways[place]:
                    del ways[place]
        for target in {place[1][-1] for place in (*places, *before)}:
            self._choose(target, pattern)

    def _choose(self, target: VertexId, pattern: str) -> None:
        """Ask for a pattern at a vertex by one way alone, that of the fewest units if neighbours name several.

        As every unit that is entered makes a way shorter, and another choice never makes it longer, nothing is sent in
        circles.
        """
        key = (target, pattern)
        ways = self._ways_to[key]
        chosen = min(ways, key=lambda place: (len(place[1]), place[1], place[0]), default=None)
        before = self._chosen.get(key)
        if not ways:
            del self._ways_to[key]
        if chosen == before:
            return
        if chosen is None:
            del self._chosen[key]
        else:
            self._chosen[key] = chosen
            outgoing = self._outgoing.setdefault(chosen, _Outgoing())
            outgoing.patterns[pattern] = NEVER
            if has_wildcard(pattern):
                outgoing.wild.add(pattern)
            self._dirty[chosen] = None
            self._source.ask_again(pattern)
        if before is not None:
            self._outgoing[before].patterns[pattern] = LEAVING
            self._dirty[before] = None

    def _places(self, via: Via, pattern: str) -> tuple[tuple[int, Via], ...]:
        """Where a pattern is asked for: the port of the next node, and the way from there on."""
        if not via:
            return self._inside(self._me.depth + 1, pattern)
        head, rest = via[0], via[1:]
        if not head.level and head.name == self._me.node:
            return ()
        if head.level and head.level <= self._me.depth and head.path == self._me.path(head.level):
            if not rest:
                return self._inside(head.level, pattern)
            return self._onward(rest[0], rest[1:], head.level)
        return self._onward(head, rest, head.level)

    def _inside(self, level: int, pattern: str) -> tuple[tuple[int, Via], ...]:
        """At every vertex inside the own unit of a level that may have it."""
        if self._published is None:
            self._published = _Published(self._state.variables())
        vertex_ids = [vertex_id for vertex_id in self._published.having(pattern) if vertex_id.level < level]
        return tuple(place for vertex_id in vertex_ids for place in self._onward(vertex_id, (), level))

    def _onward(self, head: VertexId, rest: Via, inside: int) -> tuple[tuple[int, Via], ...]:
        """On the way to a vertex, or to all parts of it, that leaves no unit of a level around this node."""
        found = []
        for vertex_id in self._state.resolve(head):
            key = (vertex_id, max(inside, 1))
            if key not in self._ways:
                self._ways[key] = self._way(*key)
            way = self._ways[key]
            if way is not None:
                found.append((way[0], (*way[1], *rest)))
        return tuple(found)

    def _way(self, vertex_id: VertexId, inside: int) -> tuple[int, Via] | None:
        route = self._state.routes.shortest(self._profile, vertex_id, inside)
        peer = self._state.peer(route.links[0]) if route is not None else None
        port = self._links.ports.get(peer) if peer is not None else None
        if route is None or port is None:
            return None
        return port, tuple(passed for passed in route.vertex_ids if passed.level) or (vertex_id,)


class _Published:
    """Which vertices may have variables of a publisher."""

    def __init__(self, variables: dict[VertexId, tuple[Pattern, ...]]) -> None:
        self._all = variables
        self._named: dict[str, list[VertexId]] = {}
        self._wide: list[VertexId] = []  # that summarise so far that no publisher is named
        for vertex_id, patterns in variables.items():
            for pattern in patterns:
                first = levels_of(pattern.text)[0]
                places = self._wide if first in (ONE, REST) else self._named.setdefault(first, [])
                if vertex_id not in places[-1:]:
                    places.append(vertex_id)

    def having(self, pattern: str) -> list[VertexId]:
        """Those that may have variables which match."""
        first = levels_of(pattern)[0]
        if first in (ONE, REST):
            wanted = Pattern("s", pattern)
            return [vertex_id for vertex_id, each in self._all.items() if any(overlaps(wanted, one) for one in each)]
        return list(dict.fromkeys((*self._named.get(first, ()), *self._wide)))


def widened(patterns: Iterable[str], most: int) -> set[str]:
    """So many patterns at most that take in all of these: each publisher's, or everything, where they are too many."""
    found = set(patterns)
    if len(found) > most:
        found = {REST if levels_of(each)[0] == REST else f"{levels_of(each)[0]}/{REST}" for each in found}
    return found if len(found) <= most else {REST}


def _lies_in(address: str, vertex_id: VertexId) -> bool:
    """Whether a node is that vertex, or inside it."""
    if not vertex_id.level:
        return address.rpartition("/")[2] == vertex_id.name
    return address.startswith(f"{vertex_id.path}/")


def _read(item: Sought) -> tuple[Via, str]:
    via, pattern = item
    return tuple(VertexId(*place) for place in via), pattern


def _problem(sought: tuple[Via, str]) -> str:
    via, pattern = sought
    if len(pattern) > MAX_TEXT or any(len(vertex.name) > MAX_TEXT or not 0 <= vertex.level <= 16 for vertex in via):
        return f"it looks for {pattern[:64]!r} at {via[-1].name[:64]!r}"
    try:
        space = AddressPattern.address(pattern).space
    except PatternError as error:
        return str(error)
    return "" if space == "text" else f"{pattern[:64]!r} is no pattern over publisher/variable"


def _characters(sought: tuple[Via, str]) -> int:
    via, pattern = sought
    return len(pattern) + sum(len(place.name) for place in via)


def _parts(items: list[Sought]) -> Iterator[tuple[Sought, ...]]:
    whole = iter(items)
    while part := tuple(islice(whole, MAX_SOUGHT)):
        yield part
