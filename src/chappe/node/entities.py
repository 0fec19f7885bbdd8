"""What an edge remembers of its clients, so that one whose link failed gets its answers again without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from chappe.wire.control import Variable
from chappe.wire.management import Entity, Granted, Want

Name = tuple[str, str]  # publisher, variable


@dataclass(slots=True)
class Memory:
    """One client, attached (its port) or away (since when)."""

    entity: Entity
    port: int = -1
    away_since_ns: int = 0
    published: dict[Name, Variable] = field(default_factory=dict)  # with the ids issued
    wanted: dict[Name, tuple[Want, Granted]] = field(default_factory=dict)

    @property
    def attached(self) -> bool:
        return self.port >= 0


class Entities:
    """Clients by session; one that is away is forgotten after `away_ns`, or when its name comes back with another."""

    def __init__(self, away_ns: int) -> None:
        self._away_ns = away_ns
        self._by_session: dict[bytes, Memory] = {}

    def __iter__(self) -> Iterator[Memory]:
        return iter(list(self._by_session.values()))

    def attached(self) -> tuple[Entity, ...]:
        """Those that are here now, as `Join` tells them."""
        return tuple(memory.entity for memory in self if memory.attached)

    def of(self, session: bytes) -> Memory | None:
        return self._by_session.get(session)

    def restarted(self, entity: Entity) -> bool:
        """Whether the client was here with another session, and is not here now."""
        others = [memory for memory in self if memory.entity.name == entity.name]
        return bool(others) and not any(memory.attached or memory.entity == entity for memory in others)

    def arrived(self, entity: Entity, port: int) -> list[Memory]:
        """A client is here; what it left behind under other sessions and is over now."""
        over = [memory for memory in self
                if memory.entity.name == entity.name and memory.entity.session != entity.session
                and not memory.attached]  # fmt: skip
        for memory in over:
            del self._by_session[memory.entity.session]
        known = self._by_session.get(entity.session)
        if known is None or known.entity.name != entity.name:
            known = self._by_session[entity.session] = Memory(entity)
        known.port, known.away_since_ns = port, 0
        return over

    def left(self, session: bytes, port: int, now_ns: int) -> Memory | None:
        """Its connection is lost; None if it has another one already."""
        memory = self._by_session.get(session)
        if memory is None or memory.port != port:
            return None
        memory.port, memory.away_since_ns = -1, now_ns
        return memory

    def attached_as(self, entity: Entity) -> bool:
        """Whether it is here now."""
        memory = self._by_session.get(entity.session)
        return memory is not None and memory.attached and memory.entity == entity

    def forget(self, memory: Memory) -> None:
        """It does not come back."""
        self._by_session.pop(memory.entity.session, None)

    def withdrawn(self, variable_id: int, names: Iterable[str]) -> list[Memory]:
        """Those that had a subscription which is over; without names everybody."""
        wanted = set(names)
        found = []
        for memory in self:
            if wanted and memory.entity.name not in wanted:
                continue
            over = [name for name, (_, granted) in memory.wanted.items()
                    if granted.variable.variable_id == variable_id]  # fmt: skip
            for name in over:
                del memory.wanted[name]
            if over:
                found.append(memory)
        return found

    def tick(self, now_ns: int) -> None:
        """Forget those that are away for too long: a broker knows them if they come back."""
        for memory in self:
            if not memory.attached and now_ns - memory.away_since_ns >= self._away_ns:
                del self._by_session[memory.entity.session]
