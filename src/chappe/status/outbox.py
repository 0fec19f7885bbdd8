"""What a broker decided in one turn: the changes to keep, then the messages that follow from them."""

from __future__ import annotations

from chappe.machine import Change, Effect, Persist, Send
from chappe.status.leaf.state import Item, encode
from chappe.status.machine import Address
from chappe.wire.base import Message


class Outbox:
    """Collects; `take` gives one `Persist` with the last value of every item, and every message after it."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], Item | bytes | None] = {}
        self._sends: list[Send] = []

    def put(self, kind: str, key: str, item: Item | bytes) -> None:
        """It is encoded when the turn is over: later changes to the same item are in."""
        self._changes[kind, key] = item

    def drop(self, kind: str, key: str) -> None:
        self._changes[kind, key] = None

    def send(self, to: Address, message: Message) -> None:
        self._sends.append(Send(to, message))

    def take(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._changes:
            changes = tuple(
                Change(kind, key, encode(item) if isinstance(item, Item) else item)
                for (kind, key), item in self._changes.items()
            )
            effects.append(Persist(changes))
            self._changes = {}
        effects += self._sends
        self._sends = []
        return effects
