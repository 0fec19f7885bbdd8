"""A large table that can be walked in slices while it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SHARDS = 1024  # of a million entries each holds a thousand: a copy of its keys takes some microseconds


class Table(Generic[K, V]):
    """A dictionary in shards, for tables of which a copy of all keys would take too long for the loop that forwards.

    Keys that follow each other (ids of one publisher) lie in one shard by 64.
    """

    def __init__(self) -> None:
        self._shards: dict[int, dict[K, V]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        return key in self._shards.get(hash(key) >> 6 & (SHARDS - 1), ())

    def get(self, key: K) -> V | None:
        shard = self._shards.get(hash(key) >> 6 & (SHARDS - 1))
        return None if shard is None else shard.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        number = hash(key) >> 6 & (SHARDS - 1)
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = {}
        before = len(shard)
        shard[key] = value
        self._size += len(shard) - before

    def __delitem__(self, key: K) -> None:
        number = hash(key) >> 6 & (SHARDS - 1)
        shard = self._shards.get(number, {})
        del shard[key]
        self._size -= 1
        if not shard:
            del self._shards[number]

    def walk(self) -> Iterator[tuple[K, V]]:
        """All entries; those that come or go while the walk pauses may be left out."""
        for number in sorted(self._shards):
            for key in list(self._shards.get(number, ())):
                value = self._shards.get(number, {}).get(key)
                if value is not None:
                    yield key, value
