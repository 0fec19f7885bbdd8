"""Whether this cloud may use the name of a publisher: the first registration claims it up the tree."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from chappe.machine import NEVER
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.wire.base import Failed, Message
from chappe.wire.management import Claim, Unclaim

log = logging.getLogger(__name__)

CLAIM_NS = 5_000_000_000  # a parent that does not answer for so long cannot be reached


class Publishers:
    """Claims under way. Without a parent, or while it cannot be reached, every name is free."""

    def __init__(self, cloud: Cloud, parent: ParentLink) -> None:
        self._cloud = cloud
        self._parent = parent
        self._waiting: dict[str, list[Callable[[str], None]]] = {}
        self._due_ns: dict[str, int] = {}  # earliest first
        self._released: set[str] = set()  # while no parent was connected

    def claim(self, publisher: str, known: bool, then: Callable[[str], None]) -> None:
        """Call `then` with the reason why the name cannot be used, or with nothing; perhaps at once."""
        if known or not self._parent.up:
            then("")
            return
        waiting = self._waiting.setdefault(publisher, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._due_ns[publisher] = self._cloud.now_ns + CLAIM_NS
            self._ask(publisher)

    def led(self, publishers: Iterable[str]) -> None:
        """There is a parent, perhaps a new one: claim every name of this cloud."""
        own = set(publishers)
        for publisher in self._released - own:
            self.released(publisher)
        self._released.clear()
        for publisher in own:
            if publisher not in self._waiting:
                self._ask(publisher)

    def lost(self) -> None:
        """The parent cannot be reached: what waits for it is accepted inside the cloud."""
        for publisher in list(self._waiting):
            self._decide(publisher, "")

    def released(self, publisher: str) -> None:
        """Nothing of that publisher is left here; whoever waits for the name gives it back if need be."""
        if publisher in self._waiting:
            return
        if self._parent.up:
            self._parent.send(Unclaim(publisher=publisher, cloud=self._cloud.role))
        else:
            self._released.add(publisher)

    def next_tick(self) -> int:
        return next(iter(self._due_ns.values()), NEVER)

    def tick(self, now_ns: int) -> None:
        for publisher in [name for name, due in self._due_ns.items() if due <= now_ns]:
            self._decide(publisher, "")

    def _ask(self, publisher: str) -> None:
        def answered(answer: Message) -> None:
            taken = isinstance(answer, Failed) and answer.code == "exists"
            reason = answer.reason if taken and isinstance(answer, Failed) else ""
            if publisher in self._waiting:
                self._decide(publisher, reason)
            elif taken:
                log.warning("publisher %s of cloud %s stays inside it: %s", publisher, self._cloud.role, reason)

        self._parent.ask(Claim, answered, publisher=publisher, cloud=self._cloud.role)

    def _decide(self, publisher: str, reason: str) -> None:
        self._due_ns.pop(publisher, None)
        for then in self._waiting.pop(publisher, ()):
            then(reason)
