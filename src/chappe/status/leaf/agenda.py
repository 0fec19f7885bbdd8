"""What follows inside a leaf broker from what one of its parts has done.

Parts know those they use, not those that use them. What concerns others they put on the agenda; the broker carries
everything on it out before its turn ends, so that nothing of it is ever half done between two messages.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from chappe.status.leaf.routers import Key
from chappe.status.leaf.state import Publication, Subscription
from chappe.status.machine import Address
from chappe.wire.management import SubscribeRequest


class Decide(NamedTuple):
    """Decide this request for a subscription, again or after it has waited."""

    address: Address
    request: SubscribeRequest
    attempts: int = 0  # that have failed


class PathRefused(NamedTuple):
    """A router refuses for good a path that it had: whatever uses it is over."""

    key: Key
    reason: str


class EntityReleased(NamedTuple):
    """An end-entity has given up a publication or subscription, perhaps its last."""

    name: str


class Published(NamedTuple):
    """A variable is published: flooding, waiting subscribers and functions get it."""

    publication: Publication


class Withdraw(NamedTuple):
    """End a publication and everything that depends on it."""

    publication: Publication
    reason: str


class PublisherReleased(NamedTuple):
    """The name of a publisher was claimed for something that did not come about: others may have it."""

    publisher: str


class InputSettled(NamedTuple):
    """A function has an input of another cloud now; or it has none, for this reason."""

    subscription: Subscription
    reason: str = ""
    code: str = ""


FollowUp = Decide | PathRefused | EntityReleased | Published | Withdraw | PublisherReleased | InputSettled


class Agenda:
    """First in, first out."""

    def __init__(self) -> None:
        self._waiting: deque[FollowUp] = deque()

    def add(self, follow_up: FollowUp) -> None:
        self._waiting.append(follow_up)

    def next(self) -> FollowUp | None:
        return self._waiting.popleft() if self._waiting else None
