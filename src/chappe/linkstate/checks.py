"""What is believed of an advertisement: each function says what is wrong with it, or nothing."""

from __future__ import annotations

from chappe.linkstate.database import Advert, Database
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import changes
from chappe.linkstate.units import MAX_NAME, Address
from chappe.wire.mesh import Key, LinkAdvert, LinkFact
from chappe.wire.patterns import Pattern

ID_BYTES = 16
MAX_SEQUENCE = 1 << 62
MAX_KIND = 32
MAX_CAPABILITIES = 64
MAX_TOPIC = 4096
MAX_LATENCY_MS = 1e7
MAX_JITTER = 1e6
MAX_BANDWIDTH = 1e15
NAMES_KEPT = 65_536
_MOST = (MAX_LATENCY_MS, MAX_JITTER, 1.0, MAX_BANDWIDTH)
_NAMES = ("latency", "jitter", "loss", "bandwidth")
_FORBIDDEN = frozenset("/@+#")


class Checks:
    """What may be advertised to a node in this unit."""

    def __init__(self, me: Address, settings: Settings) -> None:
        self.me = me
        self.settings = settings
        self._scopes = [me.scope(level) for level in range(me.depth + 1)]
        self._prefixes = [me.scope(level) + "/" if me.scope(level) else "" for level in range(me.depth + 1)]
        self._good: set[tuple[int, str]] = set()

    def advert(self, advert: Advert, age_ms: int, from_level: int, known: Advert | None = None) -> str:
        """Why an advertisement that came from a neighbour of that level cannot be; empty if it can.

        `known` is the one of the same key before it, which was checked.
        """
        me, level = self.me, advert.level
        if not 0 <= level <= me.depth:
            return f"level {level} in a mesh of depth {me.depth}"
        if advert.scope != self._scopes[level]:
            return f"advertised in {advert.scope[:64]!r}, this node is in {me.scope(level)!r} at level {level}"
        if from_level > level:
            return f"advertised inside {advert.scope!r}, where the neighbour that sent it does not lie"
        if not 1 <= advert.sequence < MAX_SEQUENCE:
            return f"sequence {advert.sequence}"
        if age_ms < 0:
            return f"age {age_ms} ms"
        wrong = self._names(advert) if known is None else ""
        if wrong:
            return wrong
        if (known is None or advert.capabilities != known.capabilities) and (
            len(advert.capabilities) > MAX_CAPABILITIES
            or any(not 1 <= len(word) <= MAX_KIND or not word.isprintable() for word in advert.capabilities)
        ):
            return f"{len(advert.capabilities)} capabilities; at most {MAX_CAPABILITIES} of {MAX_KIND} characters"
        if type(advert) is LinkAdvert:
            return self._links(advert, known.links if isinstance(known, LinkAdvert) else ())
        settings = self.settings
        for patterns in (advert.patterns, advert.publications):  # type: ignore[union-attr]
            if len(patterns) > settings.max_patterns:
                return f"{len(patterns)} patterns; at most {settings.max_patterns} are taken"
            for pattern in patterns:
                if not _pattern(pattern):
                    return f"pattern {str(pattern)[:64]}"
        variables = advert.variables  # type: ignore[union-attr]
        if len(variables) > settings.max_patterns:
            return f"{len(variables)} patterns of variables; at most {settings.max_patterns} are taken"
        for text in variables:
            if not 1 <= len(text) <= MAX_TOPIC:
                return f"pattern of variables {text[:64]!r}"
        return ""

    def first(self, key: Key, database: Database, neighbour: Address | None) -> str:
        """Why there can be nothing of a key that is new; `neighbour`: where its originator lies if it is one."""
        _, level, origin, originator = key
        elsewhere = database.unit_of_originator(level, originator)
        if elsewhere not in (None, origin):
            return f"{originator!r} speaks for {elsewhere!r}"
        if neighbour is not None and neighbour.path(level) != origin:
            return f"{originator!r} is a neighbour and lies in {'/'.join(neighbour.unit)!r}"
        if level and ("l", 0, originator, originator) in database.entries and origin != self.me.path(level):
            return f"{originator!r} is a node of this cluster"
        if len(database) >= self.settings.max_adverts:
            return f"{len(database)} advertisements are kept, no more are taken"
        return ""

    def _names(self, advert: Advert) -> str:
        level = advert.level
        if not self._named(level, advert.origin):
            return f"{advert.origin[:64]!r} is no {'node' if level == 0 else f'unit of level {level}'} here"
        if level == 0 and advert.originator != advert.origin:
            return f"{advert.originator[:64]!r} speaks for the node {advert.origin!r}"
        if not self._named(0, advert.originator):
            return f"{advert.originator[:64]!r} cannot be the name of a node"
        return ""

    def _links(self, advert: LinkAdvert, known: tuple[LinkFact, ...]) -> str:
        links = advert.links
        if len(links) > self.settings.max_links:
            return f"{len(links)} links; at most {self.settings.max_links} are taken"
        if advert.members < 0:
            return f"{advert.members} members"
        if len(advert.withdrawn) > (self.settings.max_originators if advert.level else 0):
            return f"{len(advert.withdrawn)} nodes that spoke for it before"
        for name, sequence in advert.withdrawn:
            if name == advert.originator or not self._named(0, name) or not 0 <= sequence < advert.sequence:
                return f"{name[:64]!r} cannot have spoken for it before {advert.originator!r}, with {sequence}"
        more = False
        for was, fact in changes(known, links):  # most are as they were in the advertisement before
            wrong = self._fact(advert, fact) if fact is not None else ""
            if wrong:
                return wrong
            more = more or was is None
        if more and len({fact.id for fact in links}) != len(links):
            return "a link is advertised twice"
        return ""

    def _fact(self, advert: LinkAdvert, fact: LinkFact) -> str:
        if not self._named(fact.level, fact.far):
            return f"link to {fact.far[:64]!r} of level {fact.level}, which is nothing this node can see"
        if len(fact.id) != ID_BYTES:
            return f"link id of {len(fact.id)} bytes; it has {ID_BYTES}"
        if fact.level < advert.level:
            return f"link of level {fact.level} is not advertised at level {advert.level}"
        if fact.level == advert.level:
            if fact.far == advert.origin:
                return f"link from {fact.far!r} to itself"
        elif fact.far == self.me.path(fact.level):
            return f"link from {advert.origin!r} to {fact.far!r}, in which it lies"
        if len(fact.kind) > MAX_KIND:
            return f"link of kind {fact.kind[:64]!r}"
        values = fact.latency_ms, fact.jitter, fact.loss, fact.bandwidth
        for value, most, name in zip(values, _MOST, _NAMES, strict=True):
            if value is not None and not 0.0 <= value <= most:
                return f"link {fact.id.hex()} with a {name} of {value}; it is from 0 to {most:g}"
        return ""

    def _named(self, level: int, name: str) -> bool:
        """Whether a name can be that of a vertex of a level; good ones are remembered."""
        if (level, name) in self._good:
            return True
        if not 0 <= level <= self.me.depth:
            return False
        prefix = self._prefixes[level] if level else ""
        last = name[len(prefix) :]
        if not name.startswith(prefix) or not 1 <= len(last) <= MAX_NAME or not _FORBIDDEN.isdisjoint(last):
            return False
        if not last.isprintable():
            return False
        if len(self._good) >= NAMES_KEPT:
            self._good.clear()
        self._good.add((level, name))
        return True


def _pattern(pattern: Pattern) -> bool:
    return (
        pattern.kind in ("s", "i", "l")
        and 1 <= len(pattern.text) <= MAX_TOPIC
        and len(pattern.group) <= MAX_NAME
        and len(pattern.filters) <= 64
        and all(len(text) <= MAX_TOPIC for text in pattern.filters)
    )
