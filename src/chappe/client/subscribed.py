"""Subscriptions, inboxes and advertisements of a client, asked for again after a reconnection."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.client.arguments import QueueArguments
from chappe.client.exchange import Exchange
from chappe.client.owner import Owner
from chappe.client.requests import Requests, within
from chappe.client.topics import Advertisement, Topic, pattern_text
from chappe.wire import control
from chappe.wire.addresses import Address


@dataclass(slots=True)
class Inbox:
    """What a client knows of an inbox beside its queue."""

    key: bytes = b""  # a secret; empty: of the confirmations of archives
    moved: Callable[[], None] | None = None  # its address is another one


class Subscribed:
    """Subscribes, opens inboxes and advertises, and does so again on a new connection."""

    def __init__(self, owner: Owner, core: ClientCore, requests: Requests, exchange: Exchange) -> None:
        self.subscriptions: list[Subscription] = []
        self._owner = owner
        self._core = core
        self._requests = requests
        self._exchange = exchange
        self._inboxes: dict[Subscription, Inbox] = {}  # those of the subscriptions that are inboxes
        self._advertised: dict[Advertisement, int] = {}  # how often each is held

    async def subscribe(
        self, pattern: Topic, *, group: str, backpressure: bool, since: int | None, **queue: Unpack[QueueArguments]
    ) -> Subscription:
        """Events of a pattern from now on, or from another time on, in ns since 1970."""
        if isinstance(pattern, Address):
            raise ValueError("nobody subscribes to an address: its owner gets what is sent there, see open_inbox")
        await self._exchange.connected()
        subscription = Subscription(pattern, group=group, backpressure=backpressure, **queue)
        subscription.since_ns = time.time_ns() + self._core.ahead_ns if since is None else since
        self._serve(subscription)
        self._core.add_subscription(subscription)
        try:
            await within(self._ask_subscribe(subscription), self._owner.timeout_s, f"subscribe {pattern!r}")
        except BaseException:
            self._core.remove_subscription(subscription)
            raise
        self.subscriptions.append(subscription)
        return subscription

    async def open_inbox(
        self, *, moved: Callable[[], None] | None = None, **queue: Unpack[QueueArguments]
    ) -> Subscription:
        """A queue with an address of its own; `moved` is called when it has another one."""
        await self._exchange.connected()
        inbox = Subscription(Address(self._owner.address), **queue)
        self._serve(inbox)
        self._inboxes[inbox] = Inbox(secrets.token_bytes(16))
        try:
            await within(self._ask_subscribe(inbox), self._owner.timeout_s, "open an inbox")
        except BaseException:
            del self._inboxes[inbox]
            self._core.remove_subscription(inbox)
            raise
        self._inboxes[inbox].moved = moved
        self.subscriptions.append(inbox)
        return inbox

    def hear_confirmations(self, subscription: Subscription) -> asyncio.Future[Any] | None:
        """Get what archives say of durable events, from the next bytes that leave on; None if there is no connection
        yet: it is asked for at each of them."""
        self._inboxes[subscription] = Inbox()
        self._core.add_subscription(subscription)
        self.subscriptions.append(subscription)
        return self._ask_subscribe(subscription) if self._exchange.up.is_set() else None

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Stop; its iterators end after what is queued."""
        if subscription not in self.subscriptions:
            return
        self.subscriptions.remove(subscription)
        last = self._core.remove_subscription(subscription)
        subscription.end()
        self._owner.subscription_has_room(subscription)
        if self._inboxes.pop(subscription, None) is not None:
            if self._owner.state == "connected":
                address = subscription.pattern
                await self._exchange.ask(
                    lambda request: control.CloseInbox(id=request, address=address), control.Done, "close an inbox"
                )
        elif last and self._owner.state == "connected":
            await self._exchange.ask(
                lambda request: control.Unsubscribe(
                    id=request, pattern=subscription.pattern, kind=subscription.kind, group=subscription.group
                ),
                control.Done,
                f"unsubscribe {subscription.pattern!r}",
            )

    async def advertise(self, pattern: Topic) -> Advertisement:
        """Advertise a topic or pattern; each call is one more holder of it."""
        advertisement = Advertisement(*pattern_text(pattern))
        await self._exchange.connected()
        await within(self._ask_advertise(advertisement), self._owner.timeout_s, f"advertise {pattern!r}")
        self._advertised[advertisement] = self._advertised.get(advertisement, 0) + 1
        return advertisement

    async def withdraw(self, advertisement: Advertisement) -> None:
        """One holder less; the last one takes the advertisement back."""
        left = self._advertised.pop(advertisement, 0) - 1
        if left > 0:
            self._advertised[advertisement] = left
        elif left == 0 and self._owner.state == "connected":
            kind, text = advertisement.kind, advertisement.pattern
            await self._exchange.ask(
                lambda request: control.Unadvertise(id=request, pattern=text, kind=kind),
                control.Done,
                f"withdraw {text!r}",
            )

    def subscribe_again(self) -> list[asyncio.Future[Any]]:
        """Ask for everything on a new connection; the answers to come."""
        return [
            *(self._ask_subscribe(each) for each in self.subscriptions),
            *(self._ask_advertise(each) for each in self._advertised),
        ]

    def _serve(self, subscription: Subscription) -> None:
        subscription.owner = self._owner
        subscription.loop = asyncio.get_running_loop()
        subscription.before_wait = self._core.write_now

    def _ask_subscribe(self, subscription: Subscription) -> asyncio.Future[Any]:
        inbox = self._inboxes.get(subscription)
        if inbox is not None:
            key = inbox.key
            return self._requests.ask(
                lambda request: control.OpenInbox(id=request, key=key), control.InboxOpened,
                lambda opened: self._opened(subscription, opened.address),
            )  # fmt: skip
        return self._requests.ask(
            lambda request: control.Subscribe(
                id=request, pattern=subscription.pattern, kind=subscription.kind, group=subscription.group,
                backpressure=subscription.backpressure,
            ),
            control.Done,
        )  # fmt: skip

    def _opened(self, subscription: Subscription, address: str) -> None:
        """An inbox has this address from now on: at another node it is another one."""
        if subscription.pattern == address:
            return
        self._core.remove_subscription(subscription)
        subscription.pattern = address
        self._core.add_subscription(subscription)
        moved = self._inboxes[subscription].moved
        if moved is not None:
            moved()

    def _ask_advertise(self, advertisement: Advertisement) -> asyncio.Future[control.Done]:
        return self._requests.ask(
            lambda request: control.Advertise(id=request, pattern=advertisement.pattern, kind=advertisement.kind),
            control.Done,
        )
