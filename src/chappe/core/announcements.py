"""What peers must know about variables, and what is wanted of theirs: sent in messages of a bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from chappe.machine import Send
from chappe.wire.base import DemandTerm
from chappe.wire.control import Announce, Demand, Retract, Variable

ANNOUNCED_AT_ONCE = 100  # variables in one message: a peer works on it for about a millisecond
RETRACTED_AT_ONCE = 1_000
DEMANDED_AT_ONCE = 100
MESSAGES_AT_ONCE = 8  # to each peer, before data is forwarded again


@dataclass(slots=True)
class _Pending:
    """Dictionaries, because order matters and repeats do not."""

    announced: dict[int, Variable] = field(default_factory=dict)
    retracted: dict[int, None] = field(default_factory=dict)
    demanded: dict[int, tuple[DemandTerm, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.retracted or self.announced or self.demanded)


class Announcements:
    """Pending messages by the port of a connected peer; one that is not connected gets everything when it is."""

    def __init__(self) -> None:
        self.waiting = False  # whether `take` has more
        self._pending: dict[int, _Pending] = {}

    def open(self, port: int, everything: Mapping[int, Variable]) -> None:
        """A peer is connected and must know all this."""
        self._pending[port] = _Pending(dict(everything))
        self.waiting = True

    def close(self, port: int) -> None:
        self._pending.pop(port, None)

    def announce(self, port: int, variable: Variable) -> None:
        pending = self._pending.get(port)
        if pending is not None:
            pending.announced[variable.variable_id] = variable
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
                message = _next(pending)
                if message is None:
                    break
                effects.append(Send(port, message))
        self.waiting = any(self._pending.values())
        return effects


def _next(pending: _Pending) -> Announce | Retract | Demand | None:
    if pending.retracted:
        ids = tuple(islice(pending.retracted, RETRACTED_AT_ONCE))
        for variable_id in ids:
            del pending.retracted[variable_id]
        return Retract(variable_ids=ids)
    if pending.announced:
        variables = tuple(islice(pending.announced.values(), ANNOUNCED_AT_ONCE))
        for variable in variables:
            del pending.announced[variable.variable_id]
        return Announce(variables=variables)
    if pending.demanded:
        wanted = tuple(islice(pending.demanded.items(), DEMANDED_AT_ONCE))
        for variable_id, _ in wanted:
            del pending.demanded[variable_id]
        return Demand(wanted=wanted)
    return None
