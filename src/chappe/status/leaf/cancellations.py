"""Subscriptions that end: given up by their subscribers, or because something they need is gone (GS-053)."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.status.leaf.notices import Notices
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.state import ENDING, Subscription
from chappe.status.leaf.subscriptions import Subscriptions, withdrawn
from chappe.wire.management import Gone


class Cancellations:
    """Ends subscriptions, whoever allocated their paths, and notifies subscribers that did not ask for it."""

    def __init__(
        self, subscriptions: Subscriptions, remote_subscriptions: RemoteSubscriptions, rate_changes: RateChanges,
        notices: Notices,
    ) -> None:  # fmt: skip
        self._subscriptions = subscriptions
        self._remote_subscriptions = remote_subscriptions
        self._rate_changes = rate_changes
        self._notices = notices

    def end(self, subscription: Subscription, reason: str) -> None:
        """Without a notice: its subscriber knows."""
        if subscription.remote:
            self._remote_subscriptions.end(subscription, reason)
        else:
            self._subscriptions.end(subscription, reason)
            self._rate_changes.ended(subscription)

    def cancel(self, subscriptions: Iterable[Subscription], reason: str) -> None:
        """End subscriptions to one variable that their subscribers did not give up, and notify these."""
        ending = [each for each in subscriptions if each.state != ENDING]
        notified = [each for each in ending if each.entity and each.variable is not None]
        for subscription in ending:
            self.end(subscription, reason)
        if notified and notified[0].variable is not None:
            for edge, notice in withdrawn(notified[0].variable, reason, notified).items():
                self._notices.send(edge, notice)

    def cancelled_above(self, message: Gone) -> None:
        """An ancestor has ended an inter-cloud subscription."""
        subscription = self._subscriptions.by_key.get(message.subscription)
        if subscription is None or not subscription.remote or subscription.state == ENDING:
            return
        variable = subscription.variable
        self._remote_subscriptions.gone(subscription, message.reason)
        if variable is not None and subscription.entity:
            for edge, notice in withdrawn(variable, message.reason, [subscription]).items():
                self._notices.send(edge, notice)
