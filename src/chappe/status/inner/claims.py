"""Which cloud the name of a publisher belongs to: an inner broker knows those below it, the root all of them."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.status.inner.calls import AWAY, Calls
from chappe.status.leaf.state import Item
from chappe.status.machine import PARENT, Address
from chappe.status.outbox import Outbox
from chappe.wire.base import Done, Failed, Message
from chappe.wire.management import Claim, Unclaim

TIMEOUT_NS = 5_000_000_000


class ClaimItem(Item):
    """The cloud of a publisher; `kept` while the ancestors have not agreed: it holds below this broker only."""

    cloud: str
    kept: bool = False


class Claims:
    """A name belongs to one cloud at a time. Without a connection to the parent it is given inside this subtree."""

    def __init__(self, out: Outbox, calls: Calls, has_parent: bool) -> None:
        self._out = out
        self._calls = calls
        self._has_parent = has_parent
        self.items: dict[str, ClaimItem] = {}
        self._freed: dict[str, str] = {}  # publisher -> cloud, while no parent was connected

    def cloud(self, publisher: str) -> str:
        """Empty if nobody below has that name."""
        item = self.items.get(publisher)
        return item.cloud if item is not None else ""

    def list(self) -> tuple[tuple[str, str], ...]:
        return tuple((publisher, item.cloud) for publisher, item in self.items.items())

    def restore(self, publisher: str, item: ClaimItem) -> None:
        self.items[publisher] = item

    def claim(self, source: Address, request: Claim, now_ns: int) -> None:
        """A cloud below asks for a name."""
        known = self.cloud(request.publisher)
        if known and known != request.cloud:
            reason = f"the publisher {request.publisher} belongs to the cloud {known}; choose another name"
            self._out.send(source, Failed(id=request.id, reason=reason, code="exists"))
        elif known:
            self._out.send(source, Done(id=request.id))
        else:
            self._parent(request.publisher, request.cloud, now_ns, source, request.id)

    def _parent(self, publisher: str, cloud: str, now_ns: int, source: Address = "", number: int = 0) -> None:
        def answer(message: Message, now_ns: int) -> None:
            if isinstance(message, Failed) and message.code != AWAY:
                if source:
                    message.id = number
                    self._out.send(source, message)
                return
            self._take(publisher, cloud, isinstance(message, Failed))
            if source:
                self._out.send(source, Done(id=number))

        if self._has_parent and self._calls.parent_up:
            self._calls.call(PARENT, Claim(id=0, publisher=publisher, cloud=cloud), answer, now_ns, TIMEOUT_NS)
        else:
            answer(Failed(id=0, reason="", code=AWAY) if self._has_parent else Done(id=0), now_ns)

    def _take(self, publisher: str, cloud: str, kept: bool) -> None:
        known = self.items.get(publisher)
        if known is not None and known.cloud != cloud:
            return  # two asked at the same time while the parent was away: the first has it
        self.items[publisher] = ClaimItem(cloud=cloud, kept=kept)
        self._out.put("claim", publisher, self.items[publisher])

    def unclaim(self, request: Unclaim) -> None:
        """Its last publication is gone."""
        if self.cloud(request.publisher) == request.cloud:
            self._drop(request.publisher)

    def _drop(self, publisher: str) -> None:
        item = self.items.pop(publisher)
        self._out.drop("claim", publisher)
        if self._calls.parent_up and not item.kept:
            self._out.send(PARENT, Unclaim(publisher=publisher, cloud=item.cloud))
        elif self._has_parent and not item.kept:
            self._freed[publisher] = item.cloud

    def merge(self, clouds: Iterable[str], claims: Iterable[tuple[str, str]], now_ns: int) -> None:
        """All names of a child that has (re)joined: those it gave up meanwhile are free, new ones are claimed."""
        claimed = dict(claims)
        below = set(clouds)
        for publisher, item in list(self.items.items()):
            if item.cloud in below and claimed.get(publisher) != item.cloud:
                self._drop(publisher)
        for publisher, cloud in claimed.items():
            if not self.cloud(publisher):
                self._parent(publisher, cloud, now_ns)

    def led(self, now_ns: int) -> None:
        """The parent is back: names given meanwhile are claimed there; one that another cloud has stays inside.

        The greeting listed what is claimed; a name that was given up since then is unclaimed now.
        """
        for publisher, cloud in self._freed.items():
            if self.cloud(publisher) != cloud:
                self._out.send(PARENT, Unclaim(publisher=publisher, cloud=cloud))
        self._freed.clear()
        for publisher, item in list(self.items.items()):
            if item.kept:
                self._parent(publisher, item.cloud, now_ns)
