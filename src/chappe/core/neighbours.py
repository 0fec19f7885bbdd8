"""What neighbours may do: deny rules hold for a node whose certificate they match, as they do for a client.

A rule is for the neighbour that a thing comes from, or is handed to: `publish` for the events that it defines topics
for, `subscribe` for those that are sent to it, `register` for the variables that it announces, `watch` for those that
are announced to it. What is behind a neighbour counts as the neighbour. It is decided once for each definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from chappe.security.config import Action
from chappe.security.identity import Identity, dev_identity
from chappe.security.patterns import topic_address, variable_address
from chappe.security.rules import Decision, RuleBook
from chappe.wire.addresses import KIND, node_of
from chappe.wire.patterns import topic_text

REMEMBERED = 16_384
ALLOWED = Decision(True)


class NeighbourRules:
    """The rules of a node for other nodes, by their names; without a deny rule for nodes they cost a lookup."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book
        self.refused: Counter[tuple[str, Action]] = Counter()  # by the name of the node and what it was refused
        self._free: dict[tuple[str, Action], bool] = {}

    def replace(self, book: RuleBook, names: Iterable[str]) -> set[str]:
        """Use another book; of these nodes those for which it may decide otherwise."""
        old, self._book = self._book, book
        self._free.clear()
        return {name for name in names if old.denials(_node(name)) != book.denials(_node(name))}

    def decide(self, name: str, action: Action, address: str) -> Decision:
        """Whether a node may do this here."""
        if self.free(name, action):
            return ALLOWED
        return self._book.allows(_node(name), action, address)

    def free(self, name: str, action: Action) -> bool:
        """Whether no rule keeps it from anything."""
        found = self._free.get((name, action))
        if found is None:
            if len(self._free) >= REMEMBERED:
                self._free.clear()
            found = self._free[name, action] = self._book.rights(_node(name), action).everywhere
        return found

    def registers(self, name: str, publisher: str, variable: str) -> Decision:
        """Whether a node may announce a variable here."""
        return self._about(name, "register", publisher, variable)

    def watches(self, name: str, publisher: str, variable: str) -> Decision:
        """Whether a variable may be announced to a node."""
        return self._about(name, "watch", publisher, variable)

    def _about(self, name: str, action: Action, publisher: str, variable: str) -> Decision:
        if self.free(name, action):  # without a look at the name: floods of variables are common
            return ALLOWED
        return self.decide(name, action, variable_address(publisher, variable))

    def publishes(self, name: str, kind: str, pattern: str) -> bool:
        """Whether a node may advertise that it publishes all of a pattern."""
        if self.free(name, "publish"):
            return True
        return bool(self._book.allows(_node(name), "publish", topic_address(kind, pattern), whole=True))

    def withheld(self, kind: str, topic: bytes, names: Callable[[], Iterable[str]]) -> frozenset[str]:
        """Those of some nodes that events of a topic are not sent to."""
        if not self._book.denies("node", "subscribe"):
            return frozenset()
        address = address_of(kind, topic)
        return frozenset(name for name in names() if not self.decide(name, "subscribe", address))


def address_of(kind: str, topic: bytes) -> str:
    """What rules call a topic as it stands in frames."""
    text = topic_text(kind, topic)
    return topic_address(kind, node_of(text) if kind == KIND else text)


def _node(name: str) -> Identity:
    return dev_identity(name, "node")
