"""Parts of functions of this cloud that run in others (GS-139): created before their function, ended after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from chappe.machine import NEVER
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.state import EndedPart
from chappe.wire.base import Failed, Message
from chappe.wire.management import Condense, Entity, Function, Uncondense

AGAIN_NS = 1_000_000_000  # a part whose broker is away is ended after that

Name = tuple[str, str]


class RemoteParts:
    """What is over is durable until the brokers that ran it have confirmed it: it survives restarts of all of them."""

    def __init__(self, cloud: Cloud, parent: ParentLink) -> None:
        self._cloud = cloud
        self._parent = parent
        self._ended: dict[Name, EndedPart] = {}
        self._again: dict[Name, int] = {}  # when to ask for the end again, earliest first

    def create(self, part: Function, creator: str, answered: Callable[[Message], None]) -> int:
        """Ask an ancestor for it; the number of the request."""
        self._forget((part.publisher, part.variable))
        entity = Entity(creator, b"")
        return self._parent.ask(Condense, answered, function=part, entity=entity, home=self._cloud.role)

    def end(self, creator: str, parts: Sequence[Function]) -> None:
        """Their function is over."""
        for part in parts:
            item = EndedPart(creator=creator, publisher=part.publisher, variable=part.variable)
            self._cloud.outbox.put("ended_part", _key(item), item)
            self._ended[part.publisher, part.variable] = item
            self._ask(item)

    def restore(self, items: dict[str, EndedPart]) -> None:
        self._ended = {(item.publisher, item.variable): item for item in items.values()}

    def resume(self) -> None:
        """Those that ended under the broker before this one."""
        for item in self._ended.values():
            self._ask(item)

    def next_tick(self) -> int:
        return next(iter(self._again.values()), NEVER)

    def tick(self, now_ns: int) -> None:
        for name in [name for name, due_ns in self._again.items() if due_ns <= now_ns]:
            del self._again[name]
            self._ask(self._ended[name])

    def _ask(self, item: EndedPart) -> None:
        self._parent.ask(
            Uncondense, partial(self._answered, item), publisher=item.publisher, variable=item.variable,
            entity=Entity(item.creator, b""),
        )  # fmt: skip

    def _answered(self, item: EndedPart, answer: Message) -> None:
        name = (item.publisher, item.variable)
        if self._ended.get(name) is not item:
            return
        if isinstance(answer, Failed) and answer.code not in ("unknown", "denied"):
            self._again[name] = self._cloud.now_ns + AGAIN_NS
        else:
            self._forget(name)

    def _forget(self, name: Name) -> None:
        item = self._ended.pop(name, None)
        self._again.pop(name, None)
        if item is not None:
            self._cloud.outbox.drop("ended_part", _key(item))


def _key(item: EndedPart) -> str:
    return f"{item.publisher}/{item.variable}"
