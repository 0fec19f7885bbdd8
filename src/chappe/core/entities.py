"""What an edge remembers of its clients, so that one whose link failed gets its answers again without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from chappe.machine import NEVER
from chappe.wire.control import Variable
from chappe.wire.management import Entity, Granted, Regranted, SubscribeRequest

Name = tuple[str, str]  # publisher, variable


@dataclass(slots=True)
class Memory:
    """One client, attached (its port) or away (since when)."""

    entity: Entity
    port: int = -1
    away_since_ns: int = 0
    published: dict[Name, Variable] = field(default_factory=dict)  # with the ids issued
    wanted: dict[Name, tuple[SubscribeRequest, Granted]] = field(default_factory=dict)
    numbers: dict[int, Name] = field(default_factory=dict)  # of what is wanted

    @property
    def attached(self) -> bool:
        return self.port >= 0

    def grant(self, name: Name, want: SubscribeRequest, granted: Granted) -> None:
        """It has this subscription now."""
        before = self.wanted.get(name)
        if before is not None:
            self.numbers.pop(before[1].variable.variable_id, None)
        self.wanted[name] = (want, granted)
        self.numbers[granted.variable.variable_id] = name

    def release(self, variable_id: int) -> bool:
        """A subscription is over; False if it had none."""
        name = self.numbers.pop(variable_id, None)
        return name is not None and self.wanted.pop(name, None) is not None

    def withdraw(self, variable: Variable) -> None:
        """It publishes this no more."""
        self.published.pop((variable.publisher, variable.variable), None)


class Entities:
    """Clients by name and issuer; one that is away is forgotten after `away_ns`, or when its name has another issuer.

    A issuer is chosen by its client: another name with the same one is another client.
    """

    def __init__(self, away_ns: int) -> None:
        self._away_ns = away_ns
        self._by_name: dict[str, dict[bytes, Memory]] = {}
        self._away: dict[Entity, Memory] = {}  # longest first

    def __iter__(self) -> Iterator[Memory]:
        return iter([memory for issuers in self._by_name.values() for memory in issuers.values()])

    def attached(self) -> tuple[Entity, ...]:
        """Those that are here now, as `Join` lists them."""
        return tuple(memory.entity for memory in self if memory.attached)

    def attached_as(self, entity: Entity) -> bool:
        """Whether it is here now."""
        memory = self.of(entity)
        return memory is not None and memory.attached

    def of(self, entity: Entity) -> Memory | None:
        return self._by_name.get(entity.name, {}).get(entity.issuer)

    def restarted(self, entity: Entity) -> bool:
        """Whether the client was here with another issuer, and is not here now."""
        others = self._by_name.get(entity.name, {})
        return bool(others) and not any(memory.attached or memory.entity == entity for memory in others.values())

    def arrived(self, entity: Entity, port: int) -> list[Memory]:
        """A client is here; what it left behind under other issuers and is over now."""
        over = [memory for issuer, memory in self._by_name.get(entity.name, {}).items()
                if issuer != entity.issuer and not memory.attached]  # fmt: skip
        for memory in over:
            self.forget(memory)
        memory = self._by_name.setdefault(entity.name, {}).setdefault(entity.issuer, Memory(entity))
        self._away.pop(entity, None)
        memory.port, memory.away_since_ns = port, 0
        return over

    def left(self, entity: Entity, port: int, now_ns: int) -> Memory | None:
        """Its connection is lost; None if it has another one already."""
        memory = self.of(entity)
        if memory is None or memory.port != port:
            return None
        memory.port, memory.away_since_ns = -1, now_ns
        self._away[entity] = memory
        return memory

    def forget(self, memory: Memory) -> None:
        """It does not come back."""
        entity = memory.entity
        self._away.pop(entity, None)
        issuers = self._by_name.get(entity.name, {})
        issuers.pop(entity.issuer, None)
        if not issuers:
            self._by_name.pop(entity.name, None)

    def withdrawn(self, variable_id: int, names: Iterable[str]) -> list[Memory]:
        """Those that had a subscription which is over; without names everybody."""
        listed = list(names)
        asked = (memory for name in listed for memory in self._by_name.get(name, {}).values()) if listed else self
        return [memory for memory in asked if memory.release(variable_id)]

    def regranted(self, notice: Regranted) -> list[Memory]:
        """Those of a name whose subscription to a variable has other grants now."""
        name = (notice.variable.publisher, notice.variable.variable)
        found = [memory for memory in self._by_name.get(notice.entity, {}).values()
                 if memory.numbers.get(notice.variable.variable_id) == name]  # fmt: skip
        for memory in found:
            granted = Granted(id=0, variable=notice.variable, grants=notice.grants, modes=notice.modes)
            memory.grant(name, memory.wanted[name][0], granted)
        return found

    def tick(self, now_ns: int) -> None:
        """Forget those that are away for too long: a broker knows them if they come back."""
        while self._away:
            memory = next(iter(self._away.values()))
            if now_ns - memory.away_since_ns < self._away_ns:
                return
            self.forget(memory)

    def next_tick(self) -> int:
        """When the first of those that are away is forgotten."""
        return next((each.away_since_ns + self._away_ns for each in self._away.values()), NEVER)
