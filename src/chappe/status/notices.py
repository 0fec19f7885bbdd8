"""What edges are told about subscriptions that ended, those that are away when they are back (GS-053)."""

from __future__ import annotations

from collections import deque

from chappe.status.cloud import Cloud, Numbers
from chappe.status.state import NoticeItem
from chappe.wire.management import Withdrawn

AGAIN_NS = 60_000_000_000  # what was told so shortly before a link failed may not have arrived


class Notices:
    """A notice has no answer: an edge that was away gets the recent ones again; its clients ignore what they know."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._numbers = Numbers(cloud.outbox, "notice")
        self._owed: dict[str, dict[str, Withdrawn]] = {}  # edge -> key -> notice
        self._told: dict[str, deque[tuple[int, Withdrawn]]] = {}

    def restore(self, items: dict[str, NoticeItem]) -> None:
        for key, item in items.items():
            notice = Withdrawn(variable_id=item.variable_id, reason=item.reason, entities=item.entities)
            self._owed.setdefault(item.edge, {})[key] = notice

    def tell(self, edge: str, notice: Withdrawn) -> None:
        if self._cloud.routers.joined(edge):
            told = self._told.setdefault(edge, deque())
            while told and told[0][0] < self._cloud.now_ns - AGAIN_NS:
                told.popleft()
            told.append((self._cloud.now_ns, notice))
            self._cloud.outbox.send(f"router/{edge}", notice)
        else:
            key = f"{edge}/{notice.variable_id}/{self._numbers.take()}"
            self._owed.setdefault(edge, {})[key] = notice
            item = NoticeItem(edge=edge, variable_id=notice.variable_id, reason=notice.reason, entities=notice.entities)
            self._cloud.outbox.put("notice", key, item)

    def joined(self, edge: str, kept: bool) -> None:
        """An edge is back; if its process is another one, nobody there waits for a notice."""
        recent = [notice for at_ns, notice in self._told.pop(edge, ()) if at_ns >= self._cloud.now_ns - AGAIN_NS]
        owed = self._owed.pop(edge, {})
        for key in owed:
            self._cloud.outbox.drop("notice", key)
        for notice in (*recent, *owed.values()) if kept else ():
            self._cloud.outbox.send(f"router/{edge}", notice)
