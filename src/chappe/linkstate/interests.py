"""Who wants what: the interest of every vertex in the map, found by topic (MR-133, MR-134)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from chappe.linkstate.database import Advert, Database
from chappe.linkstate.grace_period import GracePeriod
from chappe.linkstate.origination import NOTHING, Interest, both, content
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Vertex, View
from chappe.linkstate.units import Address, VertexId
from chappe.wire.patterns import ALL, Pattern, topic_text

EMPTY = 1 << 12  # places of the trie that may be empty before it is built anew
MATCHES = 1 << 14  # sets of patterns whose vertices are remembered
_Wants = dict[VertexId, set[str]]
_END = "/"  # no level contains it: under this key are those whose pattern ends at a place of the trie


def interest_of(database: Database, vertex: Vertex) -> Interest:
    """What a vertex wants and publishes, as its originator advertises.

    One that just took over may have advertised nothing yet. Then all that others advertised of the same unit counts:
    too much interest, never too little.
    """
    entry = database.entries.get(("i", *vertex.location))
    if entry is not None:
        return content(entry.advert)
    others = [content(other.advert) for other in database.originators("i", vertex.level, vertex.origin).values()]
    if not others or not vertex.level:
        return NOTHING
    return reduce(both, others)


class Interests:
    """What is wanted and published in the map of one node, and where it was wanted a moment ago."""

    def __init__(self, me: Address, settings: Settings, database: Database) -> None:
        self._here = VertexId(0, me.node)
        self._database = database
        self._vanished = GracePeriod(me, settings)
        self._index = Index()
        self._indexed = False  # the index knows all that is wanted now
        self.variables_changed = 0  # how often

    def changed(self) -> None:
        """Something is forgotten."""
        self._indexed = False

    def heard(self, old: Advert | None, new: Advert, now_ns: int) -> bool:
        """Somebody advertises what is wanted; whether that is something else."""
        before, after = content(old) if old is not None else NOTHING, content(new)
        if before == after and old is not None:
            return False
        self.variables_changed += before.variables != after.variables
        if new.level and not any(after):
            self._vanished.withdrawn(VertexId(new.level, new.origin), before.wanted, now_ns)
        self._indexed = False
        return True

    def observe(self, old: View, new: View, now_ns: int) -> None:
        """Another map is there."""
        self._vanished.observe(old, new, self._wanted_at, now_ns)
        self._indexed = False

    def expire(self, now_ns: int) -> bool:
        """Miss what vanished no longer than that; whether that changes what is wanted."""
        if not self._vanished.expire(now_ns):
            return False
        self._indexed = False
        return True

    def missed(self) -> Iterable[VertexId]:
        """What vanished a moment ago."""
        return self._vanished.wanted()

    @property
    def next_ns(self) -> int:
        """When `expire` has something to do."""
        return self._vanished.next_ns

    def find(self, view: View, kind: str, topic: bytes) -> dict[VertexId, frozenset[str]]:
        """Things of the map that want a topic, or that did when they were last in it."""
        if not self._indexed:
            self._indexed = True
            missed = self._vanished.wanted()
            wanted = {
                vertex_id: patterns for vertex_id, patterns in missed.items()
                if vertex_id not in view.index and ("@" in vertex_id.name or not view.resolve(vertex_id))
            }  # fmt: skip
            for vertex in view.vertices:
                more = missed.get(VertexId(vertex.level, vertex.origin), ())
                wanted[vertex.vertex_id] = (*interest_of(self._database, vertex).wanted, *more)
            wanted.pop(self._here, None)
            self._index.replace(wanted.items())
        return self._index.find(kind, topic)

    def publications(self, view: View, own: Interest) -> dict[VertexId, tuple[Pattern, ...]]:
        """What is published, by vertex; `own` is the interest of this node."""
        found = {vertex.vertex_id: interest_of(self._database, vertex).published for vertex in view.vertices}
        found[self._here] = own.published
        return {vertex_id: published for vertex_id, published in found.items() if published}

    def variables(self, view: View) -> dict[VertexId, tuple[Pattern, ...]]:
        """Patterns of the variables that are published at other vertices."""
        found = {vertex.vertex_id: interest_of(self._database, vertex).variables for vertex in view.vertices}
        found.pop(self._here, None)
        return {vertex_id: variables for vertex_id, variables in found.items() if variables}

    def _wanted_at(self, vertex: Vertex) -> set[Pattern]:
        """What a vertex wants; who handed a unit over and says that it wants nothing was heard before."""
        return set(interest_of(self._database, vertex).wanted)


class Index:
    """Patterns of many vertices in one trie of levels."""

    def __init__(self, wanted: Iterable[tuple[VertexId, tuple[Pattern, ...]]] = ()) -> None:
        self._levels: dict[str, Any] = {}
        self._numbers: dict[tuple[str, str], _Wants] = {}
        self._found: dict[tuple[int, ...], dict[VertexId, frozenset[str]]] = {}
        self._of: dict[VertexId, tuple[Pattern, ...]] = {}
        self._empty = 0
        self.replace(wanted)

    def replace(self, wanted: Iterable[tuple[VertexId, tuple[Pattern, ...]]]) -> None:
        """These vertices want these patterns now, and no others do; what stayed as it was costs a comparison."""
        now = dict(wanted)
        if now == self._of:
            return
        self._found.clear()
        if self._empty > EMPTY:
            self._levels, self._numbers, self._of, self._empty = {}, {}, {}, 0
        for vertex_id in self._of.keys() - now.keys():
            self._change(vertex_id, self._of[vertex_id], ())
        for vertex_id, patterns in now.items():
            self._change(vertex_id, self._of.get(vertex_id, ()), patterns)
        self._of = now

    def _change(self, vertex_id: VertexId, old: tuple[Pattern, ...], new: tuple[Pattern, ...]) -> None:
        if old == new:
            return
        before, after = set(old), set(new)
        for pattern in before - after:
            wants = self._place(pattern)
            wants[vertex_id].discard(pattern.group)
            if not wants[vertex_id]:
                del wants[vertex_id]
                self._empty += not wants
        for pattern in after - before:
            self._place(pattern).setdefault(vertex_id, set()).add(pattern.group)

    def find(self, kind: str, topic: bytes) -> dict[VertexId, frozenset[str]]:
        """Things that want a topic, with the groups that do; the empty name stands for plain subscribers.

        Topics that match the same patterns get the same object: it is not to be changed.
        """
        matching = [wants for wants in self._matching(kind, topic_text(kind, topic)) if wants]
        key = tuple(map(id, matching))  # they live as long as this index
        found = self._found.get(key)
        if found is None:
            wanting: dict[VertexId, frozenset[str]] = {}
            for wants in matching:
                for vertex_id, groups in wants.items():
                    wanting[vertex_id] = wanting.get(vertex_id, frozenset()) | groups
            if len(self._found) >= MATCHES:
                self._found.clear()
            found = self._found[key] = dict(sorted(wanting.items()))
        return found

    def _place(self, pattern: Pattern) -> _Wants:
        if pattern.kind != "s":
            return self._numbers.setdefault((pattern.kind, pattern.text), {})
        node = self._levels
        for level in pattern.text.split("/"):
            node = node.setdefault(level, {})
        wants: _Wants = node.setdefault(_END, {})
        return wants

    def _matching(self, kind: str, text: str) -> list[_Wants]:
        if kind != "s":
            numbers = (self._numbers.get((kind, text)), self._numbers.get((kind, ALL)))
            return [wants for wants in numbers if wants]
        levels = text.split("/")
        found: list[_Wants] = []
        nodes = [self._levels]
        for level in levels:
            found.extend(node[ALL].get(_END, {}) for node in nodes if ALL in node)
            nodes = [node[name] for node in nodes for name in {level, "+"} if name in node]
        for node in nodes:
            found.append(node.get(_END, {}))
            if ALL in node:  # the parent of what `#` stands for is wanted, too
                found.append(node[ALL].get(_END, {}))
        return found
