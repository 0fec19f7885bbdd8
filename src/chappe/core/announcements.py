"""What peers must know about variables, and what is wanted of theirs: sent in messages of a bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from chappe.core.directory import Entry
from chappe.machine import Send
from chappe.wire.base import DemandTerm
from chappe.wire.control import Announce, Demand, Retract

ANNOUNCED_AT_ONCE = 100  # variables in one message: a peer works on it for about a millisecond
RETRACTED_AT_ONCE = 1_000
DEMANDED_AT_ONCE = 100
MESSAGES_AT_ONCE = 8  # to each peer, before data is forwarded again


@dataclass(slots=True)
class _Pending:
    """Dictionaries, because order matters and repeats do not."""

    announced: dict[int, Entry] = field(default_factory=dict)
    retracted: dict[int, None] = field(default_factory=dict)
    demanded: dict[int, tuple[DemandTerm, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.retracted or self.announced or self.demanded)


class Announcements:
    """Pending messages by the port of a connected peer; one that is not connected gets everything when it is."""

    def __init__(self, address: str = "") -> None:
        """`address`: of this node in its mesh; empty: it is in none, and origins of variables are not said."""
        self._address = address
        self.waiting = False  # whether `take` has more
        self._pending: dict[int, _Pending] = {}

    def open(self, port: int, everything: Mapping[int, Entry]) -> None:
        """A peer is connected and must know all this."""
        self._pending[port] = _Pending(dict(everything))
        self.waiting = True

    def close(self, port: int) -> None:
        self._pending.pop(port, None)

    def reaches(self, port: int) -> bool:
        """Whether that peer is connected."""
        return port in self._pending

    def announce(self, port: int, entry: Entry) -> None:
        pending = self._pending.get(port)
        if pending is not None:
            pending.announced[entry.variable.variable_id] = entry
            self.waiting = True

    def retract(self, port: int, variable_id: int) -> None:
        pending = self._pending.get(port)
        if pending is not None:
            pending.announced.pop(variable_id, None)
            pending.retracted[variable_id] = None
            self.waiting = True

    def demand(self, port: int, variable_id: int, terms: tuple[DemandTerm, ...]) -> None:
        """That is what is wanted of a variable of that peer."""
        pending = self._pending.get(port)
        if pending is not None:
            pending.demanded[variable_id] = terms
            self.waiting = True

    def take(self) -> list[Send]:
        """The next messages. What was retracted goes first: an id may be announced again under another name."""
        effects: list[Send] = []
        if not self.waiting:
            return effects
        for port, pending in self._pending.items():
            for _ in range(MESSAGES_AT_ONCE):
                message = _next(pending, self._address)
                if message is None:
                    break
                effects.append(Send(port, message))
        self.waiting = any(self._pending.values())
        return effects


def _next(pending: _Pending, address: str) -> Announce | Retract | Demand | None:
    if pending.retracted:
        ids = tuple(islice(pending.retracted, RETRACTED_AT_ONCE))
        for variable_id in ids:
            del pending.retracted[variable_id]
        return Retract(variable_ids=ids)
    if pending.announced:
        entries = tuple(islice(pending.announced.values(), ANNOUNCED_AT_ONCE))
        for entry in entries:
            del pending.announced[entry.variable.variable_id]
        origins = tuple(entry.origin or address for entry in entries) if address else ()
        return Announce(variables=tuple(entry.variable for entry in entries), origins=origins)
    if pending.demanded:
        wanted = tuple(islice(pending.demanded.items(), DEMANDED_AT_ONCE))
        for variable_id, _ in wanted:
            del pending.demanded[variable_id]
        return Demand(wanted=wanted)
    return None
