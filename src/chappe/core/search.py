"""What a managed node searches for at its broker, said again to whoever leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chappe.security.patterns import variable_address
from chappe.status.names import MOST, messages, summary
from chappe.wire.management import Search
from chappe.wire.topics import REST


class BrokerSearch:
    """Patterns over publisher/variable, each as long as somebody wants it; many are searched for as everything."""

    def __init__(self) -> None:
        self.known: bool | None = None  # whether the broker that leads knows `Search`; None: nobody leads
        self._wanted: Counter[str] = Counter()
        self._sent: set[str] = set()
        self._again: set[str] = set()  # the names of these are wanted once more
        self._changed = False

    def seek(self, pattern: str, on: bool) -> None:
        """Somebody here looks for it, and wants all names; or does so no more. Once for each."""
        self._count(pattern, on)
        if on:
            self._again.add(pattern)

    def await_name(self, name: tuple[str, str], on: bool) -> None:
        """Somebody waits until the broker knows that variable, which it did not a moment ago; or does so no more."""
        self._count(variable_address(*name), on)

    def repeat(self, pattern: str) -> None:
        """Somebody who looks for it wants all names once more."""
        self._again.add(pattern)
        self._changed = True

    def led(self, knows: bool) -> None:
        """Another broker leads: it has to hear everything, if it knows such searches."""
        self.known = knows
        self._sent.clear()
        self._changed = True

    def lost(self) -> None:
        """Nobody leads."""
        self.known = None

    def _count(self, pattern: str, on: bool) -> None:
        self._changed = True
        self._wanted[pattern] += 1 if on else -1
        if not self._wanted[pattern]:
            del self._wanted[pattern]

    def take(self) -> Iterator[Search]:
        """What the broker that leads is to hear now."""
        if not self._changed or not self.known:
            return
        again, self._again, self._changed = self._again, set(), False
        wanted = summary(self._wanted, MOST)
        repeated = {pattern if pattern in wanted else REST for pattern in again} & wanted
        sent, self._sent = self._sent, wanted
        yield from messages((wanted - sent) | repeated, sent - wanted)
