"""Notices to edges about subscriptions that ended; durable until the edge has confirmed them (GS-053)."""

from __future__ import annotations

from chappe.status.leaf.cloud import Cloud, Numbers
from chappe.status.leaf.routers import NOTICE, Key
from chappe.status.leaf.state import CounterItem, NoticeItem
from chappe.wire.management import Withdrawn


class Notices:
    """A notice has no answer of its own: the command that follows it on the same link is confirmed instead."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._numbers = Numbers(cloud.outbox, "notice")

    def restore(self, counter: CounterItem | None, items: dict[str, NoticeItem]) -> None:
        self._numbers.restore(counter)
        for number, item in items.items():
            notice = Withdrawn(variable_id=item.variable_id, reason=item.reason, entities=item.entities)
            self._cloud.routers.notify(item.edge, (int(number), NOTICE), notice, self)

    def send(self, edge: str, notice: Withdrawn) -> None:
        number = self._numbers.take()
        item = NoticeItem(edge=edge, variable_id=notice.variable_id, reason=notice.reason, entities=notice.entities)
        self._cloud.outbox.put("notice", str(number), item)
        self._cloud.routers.notify(edge, (number, NOTICE), notice, self)

    def confirmed(self, router: str, key: Key) -> None:
        self._cloud.outbox.drop("notice", str(key[0]))

    def refused(self, router: str, key: Key, reason: str) -> None:
        self.confirmed(router, key)

    def lost(self, router: str) -> None:
        """It gets the notice when it is back."""
