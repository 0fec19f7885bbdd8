"""Which variables are flooded, how far and in which modes; the highest rank counts (GS-100, GS-101)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chappe.wire.base import Variable
from chappe.wire.constants import MODES


class Entry(msgspec.Struct, array_like=True):
    """A flooded variable: by mode the level (0: off) and the rank of the broker that said so."""

    variable: Variable
    levels: list[int]
    ranks: list[int]


class Floods:
    """A list of flooded variables.

    Per (variable, mode) one word counts: that of the highest rank, and of equal rank the latest. So a parent's removal
    also ends what a child has set, and a child removes nothing of its parent's.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def set(self, variable: Variable, level: int, modes: int, rank: int) -> bool:
        """Flood it to this level in these modes, except where a higher rank has set it; True if levels changed."""
        entry = self._entries.get(variable.variable_id)
        if entry is None:
            entry = Entry(variable, [0] * MODES, [0] * MODES)
        before = (entry.variable, *entry.levels)
        entry.variable = variable
        for mode in _each(modes):
            if rank >= entry.ranks[mode]:
                entry.levels[mode], entry.ranks[mode] = level, rank
        if any(entry.levels):
            self._entries[variable.variable_id] = entry
        return before != (variable, *entry.levels)

    def clear(self, variable_id: int, modes: int, rank: int) -> bool:
        """Flood it no longer in these modes, except where a higher rank has set it; True if levels changed."""
        entry = self._entries.get(variable_id)
        if entry is None:
            return False
        changed = False
        for mode in _each(modes):
            if rank >= entry.ranks[mode]:
                changed |= entry.levels[mode] != 0
                entry.levels[mode] = entry.ranks[mode] = 0
        if not any(entry.levels):
            del self._entries[variable_id]
        return changed

    def drop(self, variable_id: int) -> bool:
        """The variable does not exist any more; True if it was flooded."""
        return self._entries.pop(variable_id, None) is not None

    def overruled(self, variable_id: int, modes: int, rank: int) -> int:
        """Those of these modes in which a higher rank than this floods the variable."""
        entry = self._entries.get(variable_id)
        return 0 if entry is None else sum(1 << mode for mode in _each(modes) if entry.ranks[mode] > rank)

    def levels(self, variable_id: int) -> tuple[int, ...]:
        """16 levels; 0 is off."""
        entry = self._entries.get(variable_id)
        return (0,) * MODES if entry is None else tuple(entry.levels)

    def ranks(self, variable_id: int) -> tuple[int, ...]:
        """16 ranks: who has set the level of each mode; 0 where it is off."""
        entry = self._entries.get(variable_id)
        return (0,) * MODES if entry is None else tuple(entry.ranks)

    def variables(self) -> Iterable[Variable]:
        """Those flooded in any mode, by id."""
        return [self._entries[variable_id].variable for variable_id in sorted(self._entries)]

    def variable(self, variable_id: int) -> Variable | None:
        """None if it is flooded in no mode."""
        entry = self._entries.get(variable_id)
        return None if entry is None else entry.variable

    def find(self, publisher: str, variable: str) -> Variable | None:
        """The one of that name that is flooded in any mode."""
        for entry in self._entries.values():
            if (entry.variable.publisher, entry.variable.variable) == (publisher, variable):
                return entry.variable
        return None

    def groups(self, variable_id: int) -> list[tuple[int, int, int]]:
        """(level, rank, modes) of a variable: what `set` must get for the same list elsewhere."""
        modes: dict[tuple[int, int], int] = {}
        for mode, key in enumerate(zip(self.levels(variable_id), self.ranks(variable_id), strict=True)):
            if key[0]:
                modes[key] = modes.get(key, 0) | 1 << mode
        return [(level, rank, mask) for (level, rank), mask in modes.items()]

    def dump(self, variable_id: int) -> bytes | None:
        """Its durable value; None if it is not flooded."""
        entry = self._entries.get(variable_id)
        return None if entry is None else msgspec.msgpack.encode(entry)

    def load(self, value: bytes) -> None:
        """One value of `dump`."""
        entry = msgspec.msgpack.decode(value, type=Entry)
        self._entries[entry.variable.variable_id] = entry


def _each(modes: int) -> Iterable[int]:
    return (mode for mode in range(MODES) if modes >> mode & 1)
