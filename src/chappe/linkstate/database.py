"""Advertisements as they were heard: the newest of each key, for as long as it is refreshed."""

from __future__ import annotations

from collections.abc import Set

import msgspec

from chappe.linkstate.units import MAX_DEPTH
from chappe.wire.mesh import InterestAdvert, Key, LinkAdvert, Statement

Advert = LinkAdvert | InterestAdvert
MS = 1_000_000


def key_of(advert: Advert) -> Key:
    """What an advertisement replaces an older one by."""
    return ("l" if type(advert) is LinkAdvert else "i", advert.level, advert.origin, advert.originator)


class Entry:
    """One advertisement, the statement it came in, and when it was made by the clock of this node."""

    __slots__ = ("advert", "born_ns", "statement")

    def __init__(self, advert: Advert, statement: Statement, born_ns: int) -> None:
        self.advert = advert
        self.statement = statement
        self.born_ns = born_ns


class Database:
    """All advertisements a node has, its own included, and the last ones of what it has forgotten.

    These are `retired`: in no map, and kept as long as a replay of them would pass for fresh.
    """

    def __init__(self, lifetime_ns: int, tolerance_ns: int = 0, most: int = 1 << 14) -> None:
        self.lifetime_ns = lifetime_ns
        self.entries: dict[Key, Entry] = {}
        self.retired: dict[Key, Entry] = {}
        self._retired_ns = 2 * (lifetime_ns + tolerance_ns)
        self._most = most
        self._originators: dict[tuple[str, int, str], dict[str, Entry]] = {}
        self._origins: dict[tuple[int, str], dict[str, set[str]]] = {}  # by level and originator, with the kinds

    def __len__(self) -> int:
        return len(self.entries)

    def sequence(self, key: Key) -> int:
        """The highest sequence of a key; 0 if there is none."""
        entry = self.entries.get(key)
        return entry.advert.sequence if entry is not None else 0

    def store(self, key: Key, advert: Advert, statement: Statement, now_ns: int) -> Advert | None:
        """Keep it in place of what it returns."""
        born_ns = now_ns - statement.age_ms * MS
        entry = self.entries.get(key)
        if entry is not None:
            old, entry.advert, entry.statement, entry.born_ns = entry.advert, advert, statement, born_ns
            return old
        entry = self.entries[key] = Entry(advert, statement, born_ns)
        self.retired.pop(key, None)
        self._originators.setdefault(key[:3], {})[key[3]] = entry
        self._origins.setdefault((key[1], key[3]), {}).setdefault(key[2], set()).add(key[0])
        return None

    def originators(self, kind: str, level: int, origin: str) -> dict[str, Entry]:
        """What is advertised of one vertex, by originator."""
        return self._originators.get((kind, level, origin), {})

    def unit_of_originator(self, level: int, originator: str) -> str | None:
        """The unit that a node originates for at a level."""
        return next(iter(self._origins.get((level, originator), ())), None)

    def originates(self, originator: str) -> bool:
        """Whether anything that a node stated is kept."""
        return any((level, originator) in self._origins for level in range(MAX_DEPTH + 1))

    def aged(self, key: Key, now_ns: int, peer: str) -> Statement | None:
        """A statement as it is sent on now; what is retired goes to its own originator alone."""
        entry = self.entries.get(key) or (self.retired.get(key) if key[3] == peer else None)
        if entry is None:
            return None
        return msgspec.structs.replace(entry.statement, age_ms=max(0, (now_ns - entry.born_ns) // MS))

    def digest(self, level: int, peer: str) -> tuple[tuple[Key, int], ...]:
        """What a neighbour of that level may have: keys and sequences; it continues above what it stated before."""
        found = [(key, entry.advert.sequence) for key, entry in self.entries.items() if key[1] >= level]
        found += [(key, entry.advert.sequence) for key, entry in self.retired.items() if key[3] == peer]
        return tuple(found)

    def forget(self, now_ns: int, keep: Set[Key]) -> list[Key]:
        """Drop what was not refreshed in its lifetime, except these."""
        oldest = now_ns - self.lifetime_ns
        withdrawn = [key for key, entry in self.entries.items() if entry.born_ns <= oldest and key not in keep]
        for key in withdrawn:
            self.drop(key)
        oldest = now_ns - self._retired_ns
        for key in [key for key, entry in self.retired.items() if entry.born_ns <= oldest]:
            del self.retired[key]
        return withdrawn

    def drop(self, key: Key) -> None:
        """Forget one."""
        if len(self.retired) >= self._most:
            del self.retired[next(iter(self.retired))]
        self.retired[key] = self.entries.pop(key)
        originators = self._originators[key[:3]]
        del originators[key[3]]
        if not originators:
            del self._originators[key[:3]]
        kind, level, origin, originator = key
        origins = self._origins[level, originator]
        origins[origin].discard(kind)
        if not origins[origin]:
            del origins[origin]
        if not origins:
            del self._origins[level, originator]
