"""Advertisements as they were heard: the newest of each key, for as long as it is refreshed."""

from __future__ import annotations

from collections.abc import Set

import msgspec

from chappe.wire.mesh import InterestAdvert, Key, LinkAdvert

Advert = LinkAdvert | InterestAdvert
MS = 1_000_000

_encoder = msgspec.msgpack.Encoder()


def key_of(advert: Advert) -> Key:
    """What an advertisement replaces an older one by."""
    return ("l" if type(advert) is LinkAdvert else "i", advert.level, advert.origin, advert.speaker)


def signed_text(advert: Advert) -> bytes:
    """What a signature is of: everything but the signature itself and the age, which changes on the way."""
    return _encoder.encode(msgspec.structs.replace(advert, signature=b"", age_ms=0))


class Entry:
    """One advertisement and when it was told, by the clock of this node."""

    __slots__ = ("advert", "born_ns")

    def __init__(self, advert: Advert, born_ns: int) -> None:
        self.advert = advert
        self.born_ns = born_ns


class Database:
    """All advertisements a node has, its own included."""

    def __init__(self, lifetime_ns: int) -> None:
        self.lifetime_ns = lifetime_ns
        self.entries: dict[Key, Entry] = {}
        self._speakers: dict[tuple[str, int, str], dict[str, Entry]] = {}
        self._origins: dict[tuple[int, str], dict[str, set[str]]] = {}  # by level and speaker, with the kinds

    def __len__(self) -> int:
        return len(self.entries)

    def sequence(self, key: Key) -> int:
        """The highest sequence of a key; 0 if there is none."""
        entry = self.entries.get(key)
        return entry.advert.sequence if entry is not None else 0

    def store(self, key: Key, advert: Advert, now_ns: int) -> Advert | None:
        """Keep it in place of what it returns."""
        born_ns = now_ns - advert.age_ms * MS
        entry = self.entries.get(key)
        if entry is not None:
            old, entry.advert, entry.born_ns = entry.advert, advert, born_ns
            return old
        entry = self.entries[key] = Entry(advert, born_ns)
        self._speakers.setdefault(key[:3], {})[key[3]] = entry
        self._origins.setdefault((key[1], key[3]), {}).setdefault(key[2], set()).add(key[0])
        return None

    def speakers(self, kind: str, level: int, origin: str) -> dict[str, Entry]:
        """What is told of one thing, by who tells it."""
        return self._speakers.get((kind, level, origin), {})

    def spoken_for(self, level: int, speaker: str) -> str | None:
        """What a node speaks for at a level."""
        return next(iter(self._origins.get((level, speaker), ())), None)

    def aged(self, key: Key, now_ns: int) -> Advert | None:
        """An advertisement as it is sent on now."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        return msgspec.structs.replace(entry.advert, age_ms=max(0, (now_ns - entry.born_ns) // MS))

    def digest(self, level: int) -> tuple[tuple[Key, int], ...]:
        """What a neighbour of that level may have: keys and sequences."""
        return tuple((key, entry.advert.sequence) for key, entry in self.entries.items() if key[1] >= level)

    def forget(self, now_ns: int, keep: Set[Key]) -> list[Key]:
        """Drop what was not refreshed in its lifetime, except these."""
        oldest = now_ns - self.lifetime_ns
        gone = [key for key, entry in self.entries.items() if entry.born_ns <= oldest and key not in keep]
        for key in gone:
            self.drop(key)
        return gone

    def drop(self, key: Key) -> None:
        """Forget one."""
        del self.entries[key]
        speakers = self._speakers[key[:3]]
        del speakers[key[3]]
        if not speakers:
            del self._speakers[key[:3]]
        kind, level, origin, speaker = key
        origins = self._origins[level, speaker]
        origins[origin].discard(kind)
        if not origins[origin]:
            del origins[origin]
        if not origins:
            del self._origins[level, speaker]
