"""Messages of a broker leave in order, each after the changes that it follows from are durable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from chappe.machine import Change, Effect, Persist, Send
from chappe.status.machine import Address


@dataclass(slots=True)
class _Batch:
    """One transaction, and what leaves after it."""

    changes: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)


class CommitQueue:
    """One transaction is under way at a time; what is decided meanwhile is collected for the next."""

    def __init__(self) -> None:
        self._next = _Batch()
        self._flight: _Batch | None = None

    @property
    def waiting(self) -> int:
        """Messages that wait for a commit."""
        return len(self._next.sends) + (len(self._flight.sends) if self._flight is not None else 0)

    @property
    def ready(self) -> bool:
        """Whether `take` has something to commit."""
        return self._flight is None and bool(self._next.changes)

    def put(self, effects: Iterable[Effect]) -> list[Send]:
        """Take what a broker decided; what is returned may leave now."""
        free: list[Send] = []
        for effect in effects:
            if isinstance(effect, Persist):
                self._next.changes.update({(change.kind, change.key): change.value for change in effect.changes})
            elif not isinstance(effect, Send):
                raise TypeError(f"a broker sends and persists, nothing else: {effect!r}")
            elif self._next.changes:
                self._next.sends.append(effect)
            elif self._flight is not None:
                self._flight.sends.append(effect)
            else:
                free.append(effect)
        return free

    def take(self) -> list[Change]:
        """Begin the next transaction: its changes, the last of each item."""
        assert self.ready
        self._flight, self._next = self._next, _Batch()
        return [Change(kind, key, value) for (kind, key), value in self._flight.changes.items()]

    def committed(self) -> list[Send]:
        """The transaction under way is durable: what may leave now."""
        assert self._flight is not None
        sends, self._flight = self._flight.sends, None
        return sends

    def forget(self, address: Address) -> None:
        """A connection is over: what waits for it is not sent to the next one."""
        for batch in (self._next, self._flight):
            if batch is not None:
                batch.sends = [send for send in batch.sends if send.to != address]
