"""Events that an archive confirms when it has stored them; those that nobody confirms are sent again.

`Outstanding` decides and knows no clock, socket or loop; `Durable` carries it out for a client.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Unpack

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.client.arguments import Extension
from chappe.client.node_requests import NodeRequests
from chappe.client.owner import Owner
from chappe.client.subscribed import Subscribed
from chappe.client.topics import Topic, topic_name
from chappe.errors import (
    ChappeError,
    DeniedError,
    LinkError,
    QueueFullError,
    RefusedError,
    TimeoutExpired,
    UnconfirmedError,
)
from chappe.security.patterns import topic_address
from chappe.wire.addresses import KIND, Address, confirm_address
from chappe.wire.durable import STORE_TOPIC, Confirmation, ResentEvent, decode_confirmation, encode_store_request

EPOCH = 1  # of all sessions of clients: none of them starts its sequence again
FIRST_S = 0.5  # until an event is sent again for the first time; then twice as long each time
LONGEST_S = 5.0
WAITING = 65_536  # events of which nothing is heard yet; archives remember as many
WAITING_BYTES = 64 << 20
AT_ONCE = 1024  # events that are on their way again at a time
TOGETHER_BYTES = 256 << 10  # of events that are sent again in one
LATER = 65_536  # events that wait for room among those


@dataclass(slots=True, eq=False)
class Event:
    """A durable event; `stored` gets the name of the archive that has it."""

    topic: Topic
    body: bytes
    priority: int
    extension: dict[str, Any]
    deadline: float
    stored: asyncio.Future[str]
    sequence: int = -1  # none: it was not published yet
    pause_s: float = FIRST_S
    sent: float = 0.0  # last
    connection: int = 0  # on which it was published: how often the client had connected again

    def again(self) -> ResentEvent:
        """What it is when it is sent again."""
        name = topic_name(self.topic)
        return ResentEvent(self.sequence, str(name.name), name.kind, self.extension["created"], self.body)


class Outstanding:
    """Events that were published and that no archive has confirmed yet; times are seconds of any clock.

    Archives confirm in the order of the events. One that is behind what was confirmed is missing; the others wait as
    long as confirmations come at all, and none is sent again sooner than three times what archives usually take: one
    that is slow for a while does not get everything twice. Only so many are sent again at a time, and others follow as
    they are confirmed: what was lost while no archive was there does not bury the one that comes.
    """

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}  # in the order of their sequence
        self._confirmed = -1  # the latest that was confirmed
        self._confirmed_at = 0.0
        self._usual_s = 0.0  # from an event to its confirmation, smoothed
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(list(self._events.values()))

    @property
    def full(self) -> bool:
        return len(self._events) >= WAITING or self.bytes >= WAITING_BYTES

    def add(self, event: Event, now: float) -> None:
        """It was published."""
        event.sent = now
        self._events[event.sequence] = event
        self.bytes += len(event.body)

    def confirm(self, message: Confirmation, now: float) -> list[Event]:
        """Those that an archive says it has."""
        if message.epoch != EPOCH:
            return []
        self._confirmed_at = now
        found = []
        for first, last in message.ranges:
            if last - first < len(self._events):
                known = [number for number in range(first, last + 1) if number in self._events]
            else:
                known = [number for number in self._events if first <= number <= last]
            found += [self._remove(number) for number in known]
            self._confirmed = max([self._confirmed, *known])
        taken_s = [now - event.sent for event in found if event.pause_s == FIRST_S]  # of others nobody knows which
        if taken_s:
            self._usual_s += (max(taken_s) - self._usual_s) / 4
        return found

    def due(self, now: float) -> list[Event]:
        """Those to send again now, the oldest first."""
        found: list[Event] = []
        under_way = 0
        for event in self._events.values():
            if under_way + len(found) >= AT_ONCE:
                break
            pause_s = max(event.pause_s, min(3 * self._usual_s, LONGEST_S))
            expected = event.sequence > self._confirmed and now - self._confirmed_at < pause_s
            if event.sent + pause_s <= now < event.deadline and not expected:
                event.pause_s = min(2 * event.pause_s, LONGEST_S)
                event.sent = now
                found.append(event)
            elif event.pause_s > FIRST_S:
                under_way += 1
        return found

    def expired(self, now: float) -> list[Event]:
        """Those that have waited long enough."""
        return [self._remove(event.sequence) for event in list(self._events.values()) if event.deadline <= now]

    def take(self, events: Iterable[Event]) -> list[Event]:
        """These, which are forgotten here."""
        return [self._remove(event.sequence) for event in events]

    def clear(self) -> list[Event]:
        """All of them, which are forgotten here."""
        return [self._remove(number) for number in list(self._events)]

    def _remove(self, number: int) -> Event:
        event = self._events.pop(number)
        self.bytes -= len(event.body)
        return event


class Durable:
    """The durable events of one client, over all its reconnections."""

    def __init__(self, client: Owner, core: ClientCore, subscribed: Subscribed, node: NodeRequests) -> None:
        self._client = client
        self._core = core
        self._subscribed = subscribed
        self._node = node
        self._waiting = Outstanding()
        self._later: deque[Event] = deque()  # the node was not asked about their topic yet, or there is no room
        self._allowed: set[Topic] = set()  # topics that the node says may be published to, on this connection
        self._asking: dict[Topic, asyncio.Task[None]] = {}
        self._connection = 0  # that it said so on
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.sent_again = 0

    @property
    def waiting(self) -> int:
        """Events that no archive has confirmed yet."""
        return len(self._waiting) + len(self._later)

    def publish(
        self, topic: Topic, body: bytes, priority: int = 3, **extension: Unpack[Extension]
    ) -> asyncio.Future[str]:
        """Publish now, or as soon as there is room; what comes back is there when an archive has stored the event.

        DeniedError if a right is missing, and then nothing was published. UnconfirmedError after the client's
        `durable_s` if it was published and no archive has confirmed it; TimeoutExpired if it was not even published.
        QueueFullError at once if far too many wait.
        """
        if self._client.state == "closed":
            raise LinkError("the client is closed: connect again")
        if len(self._later) >= LATER:
            raise QueueFullError(f"{LATER} durable events wait for room: await those that were published before")
        loop = asyncio.get_running_loop()
        if extension.get("created") is None:
            extension["created"] = time.time_ns() + self._core.ahead_ns
        given: dict[str, Any] = {name: value for name, value in extension.items() if value is not None}
        event = Event(topic, bytes(body), priority, given, loop.time() + self._client.durable_s, loop.create_future())
        if topic_name(topic).kind == KIND:
            raise ValueError("nobody but its owner gets what is sent to an address: no archive can store it")
        if self._subscription is None:
            self._listen()
        if self._later or not self._may(topic) or not self._sent(event):
            self._later.append(event)
        self._look_again()
        return event.stored

    def again(self, unconfirmed: UnconfirmedError) -> asyncio.Future[str]:
        """Wait on for an event: archives get it again under its identity, subscribers do not."""
        event = unconfirmed.event
        if not isinstance(event, Event) or not event.stored.done():
            raise ValueError("only an event that was given up can be waited for again")
        loop = asyncio.get_running_loop()
        event.stored, event.pause_s = loop.create_future(), FIRST_S
        event.deadline = loop.time() + self._client.durable_s
        self._waiting.add(event, loop.time() - FIRST_S)
        self._look_again()
        return event.stored

    def refused(self, topic: Topic, error: DeniedError) -> int:
        """The node takes no events to that topic any more: nothing of it may reach an archive by another route.

        How many events were refused and fail with that.
        """
        self._allowed.discard(topic)
        taken = self._waiting.take([event for event in self._waiting if topic in (event.topic, STORE_TOPIC)])
        now_refused = [
            event for event in taken if event.connection == self._client.reconnections and topic != STORE_TOPIC
        ]
        self._fail(now_refused, DeniedError(f"not published: {error}"))
        for event in taken:
            self._fail([event], unconfirmed(event, f"it cannot be sent to archives again: {error}"))
        self._fail_later(topic, error)
        return len(now_refused)

    def close(self, failure: Exception) -> None:
        """Nothing more will be heard."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._asking.values():
            task.cancel()
        for event in self._waiting.clear():
            self._fail([event], unconfirmed(event, str(failure)))
        self._fail(self._later, failure)
        self._later.clear()

    def _listen(self) -> None:
        """Subscribe before the first event leaves, in the same write, so that no answer to it is missed."""
        client = self._client
        subscription = Subscription(Address(confirm_address(client.address, client.issuer)), max_queue=1 << 20)
        subscription.owner = client
        subscription.loop = asyncio.get_running_loop()
        subscription.ready = self._take_confirmations
        self._subscription = subscription
        asked = self._subscribed.hear_confirmations(subscription)
        if asked is not None:
            asked.add_done_callback(self._inbox_answered)

    def _inbox_answered(self, asked: asyncio.Future[Any]) -> None:
        error = None if asked.cancelled() else asked.exception()
        if not isinstance(error, RefusedError):  # a lost connection asks again when it is back
            return
        reason = f"durable events are confirmed in an inbox, which this client may not have: {error}"
        for event in self._waiting.clear():
            self._fail([event], unconfirmed(event, reason))
        self._fail(self._later, type(error)(f"not published: {reason}"))
        self._later.clear()

    def _take_confirmations(self) -> None:
        assert self._subscription is not None
        for message in self._subscription.take_nowait():
            try:
                confirmation = decode_confirmation(message.body)
            except ChappeError as error:
                self._client.report(error)
                continue
            for event in self._waiting.confirm(confirmation, asyncio.get_running_loop().time()):
                if not event.stored.done():
                    event.stored.set_result(confirmation.archive)
        self._send_later()

    def _may(self, topic: Topic) -> bool:
        """Whether the node said that this may be published and sent again; if not, it is asked."""
        if self._connection != self._client.reconnections:  # another node, or other rules
            self._connection = self._client.reconnections
            self._allowed.clear()
        if topic in self._allowed:
            return True
        if topic not in self._asking:
            self._asking[topic] = asyncio.get_running_loop().create_task(self._ask(topic))
        return False

    async def _ask(self, topic: Topic) -> None:
        name = topic_name(topic)
        connection = self._client.reconnections
        try:
            await self._node.check_right("inbox", self._client.address)
            for address in dict.fromkeys((topic_address(name.kind, str(name.name)), STORE_TOPIC)):
                await self._node.check_right("publish", address)
        except DeniedError as error:
            self.refused(topic, error)
        except RefusedError as error:
            self._fail_later(topic, error)
        except ChappeError:
            pass  # the connection was lost: asked again when it is back
        else:
            if connection == self._client.reconnections:
                if len(self._allowed) >= WAITING:
                    self._allowed.clear()
                self._allowed.add(topic)
        finally:
            del self._asking[topic]
        self._send_later()

    def _fail_later(self, topic: Topic, error: RefusedError) -> None:
        refused = [event for event in self._later if event.topic == topic]
        self._later = deque(event for event in self._later if event.topic != topic)
        self._fail(refused, type(error)(f"not published: {error}"))

    def _sent(self, event: Event) -> bool:
        if self._waiting.full:
            return False
        sequence = self._core.publish_durable(
            event.topic, event.body, event.priority, origin=self._client.address, **event.extension
        )
        if sequence is None:
            return False
        event.sequence, event.connection = sequence, self._client.reconnections
        self._waiting.add(event, asyncio.get_running_loop().time())
        return True

    def _send_later(self) -> None:
        while self._later and (self._later[0].stored.done() or self._sends(self._later[0])):
            self._later.popleft()

    def _sends(self, event: Event) -> bool:
        return self._may(event.topic) and self._sent(event)

    def _look_again(self) -> None:
        if self._timer is None and (self._waiting or self._later):
            self._timer = asyncio.get_running_loop().call_later(FIRST_S / 4, self._look)

    def _look(self) -> None:
        """Send again what is due, give up what has waited too long."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [event for event in self._later if event.deadline <= now]
        for event in late:
            self._later.remove(event)
        for event in self._waiting.expired(now):
            self._fail([event], unconfirmed(event, _unheard(self._client.durable_s, self._client.state)))
        for event in late:
            reason = f"not published: the event to {event.topic!r} found no room within {self._client.durable_s:g} s"
            self._fail([event], TimeoutExpired(f"{reason} ({self._client.state})"))
        again = bool(self._waiting) and self._client.state == "connected" and self._core.has_room
        if again and self._may(STORE_TOPIC):
            self._send_again(self._waiting.due(now))
        self._send_later()
        self._look_again()

    def _send_again(self, events: list[Event]) -> None:
        """Many together, in messages of a good size; one that is lost is due again later."""
        start = 0
        while start < len(events):
            stop, size = start + 1, len(events[start].body)
            while stop < len(events) and size + len(events[stop].body) <= TOGETHER_BYTES:
                size += len(events[stop].body)
                stop += 1
            body = encode_store_request(EPOCH, (event.again() for event in events[start:stop]))
            origin, priority = self._client.address, events[start].priority
            try:
                self.sent_again += (stop - start) * self._core.publish(STORE_TOPIC, body, priority, origin=origin)
            except ValueError as error:  # alone, and with its topic larger than the node takes
                self._fail(self._waiting.take(events[start:stop]), error)
            start = stop

    def _fail(self, events: Iterable[Event], failure: Exception) -> None:
        for event in events:
            if not event.stored.done():
                event.stored.set_exception(failure)
                event.stored.exception()  # who does not await it has not asked to hear of it


def unconfirmed(event: Event, reason: str) -> UnconfirmedError:
    """The error about an event that subscribers may have and of which nobody knows whether it is stored."""
    state = f"the event to {event.topic!r} was published and is not known to be stored"
    return UnconfirmedError(f"{state}: {reason}", event)


def _unheard(seconds: float, state: str) -> str:
    if state != "connected":
        return f"nothing was heard for {seconds:g} s, the client is {state}"
    return (
        f"no archive has confirmed it within {seconds:g} s; run one (chappe archive run FILE) at a node that this one "
        "reaches, and see its log"
    )
