"""Which neighbours in the mesh look for which variables, and so may have them."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from chappe.core.directory import Entry
from chappe.security.patterns import AddressPattern, variable_address
from chappe.wire.mesh import Place


@dataclass(slots=True)
class _Wild:
    """A pattern of several variables, and where they may be published."""

    pattern: AddressPattern
    targets: Counter[Place] = field(default_factory=Counter)


@dataclass(slots=True)
class _Offered:
    """What one neighbour looks for; counted, for it may look for something by several routes at one place."""

    name: str
    exact: dict[str, Counter[Place]] = field(default_factory=dict)  # by publisher/variable
    wild: dict[str, _Wild] = field(default_factory=dict)


class Offers:
    """By port; `changed` are ports and patterns for which variables are to be looked through."""

    def __init__(self, address: str) -> None:
        """`address`: of this node, where what has no other origin is published."""
        self.changed: deque[tuple[int, str]] = deque()
        self.address = address
        self._by_port: dict[int, _Offered] = {}

    def name(self, port: int) -> str:
        """Of the neighbour; empty if it is gone."""
        return self._by_port[port].name if port in self._by_port else ""

    def add(self, port: int, name: str, target: Place, text: str) -> None:
        """A neighbour looks for what matches and is published there."""
        offered = self._by_port.setdefault(port, _Offered(name))
        pattern = AddressPattern.address(text)
        if pattern.exact:
            offered.exact.setdefault(text, Counter())[target] += 1
        else:
            offered.wild.setdefault(text, _Wild(pattern)).targets[target] += 1
        self.changed.append((port, text))

    def remove(self, port: int, target: Place, text: str) -> None:
        """It does so no more."""
        offered = self._by_port.get(port)
        if offered is None:
            return
        if text in offered.exact:
            _discount(offered.exact[text], target)
            if not offered.exact[text]:
                del offered.exact[text]
        elif text in offered.wild:
            _discount(offered.wild[text].targets, target)
            if not offered.wild[text].targets:
                del offered.wild[text]
        self.changed.append((port, text))

    def remove_port(self, port: int) -> None:
        """The neighbour is gone."""
        if self._by_port.pop(port, None) is not None:
            self.changed.append((port, "#"))

    def ports(self, entry: Entry) -> list[int]:
        """Where a variable may go."""
        return [port for port in self._by_port if self.cover(port, entry)]

    def cover(self, port: int, entry: Entry) -> bool:
        """Whether it may go there."""
        offered = self._by_port.get(port)
        if offered is None:
            return False
        text, origin = variable_address(*entry.name), entry.origin or self.address
        if any(lies_in(origin, target) for target in offered.exact.get(text, ())):
            return True
        if not offered.wild:
            return False
        address = AddressPattern.address(text)
        return any(
            each.pattern.covers(address) and any(lies_in(origin, target) for target in each.targets)
            for each in offered.wild.values()
        )


def _discount(targets: Counter[Place], target: Place) -> None:
    targets[target] -= 1
    if targets[target] <= 0:
        del targets[target]


def lies_in(address: str, target: Place) -> bool:
    """Whether a node is the one of that place, or lies in the unit or part of a unit."""
    level, name = target
    if not level:
        return address.rpartition("/")[2] == name
    return address.startswith(name.partition("@")[0] + "/")
