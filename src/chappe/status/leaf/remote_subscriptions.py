"""Subscriptions to variables of other clouds, from the subscriber's side; and those that wait for a publication."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.machine import NEVER
from chappe.status.allocation.allocation import Refusal
from chappe.status.leaf.agenda import Decide, InputSettled
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.state import ENDING, GRANTED, SETTING, Subscription
from chappe.status.leaf.subscriptions import Name, Subscriptions, granted, owner, refused
from chappe.status.machine import Address
from chappe.wire.base import Failed, Grant, Message
from chappe.wire.constants import MODES
from chappe.wire.management import Entity, Granted, Seek, SubscribeRequest, Unseek

AGAIN_NS = 1_000_000_000  # a variable that nobody has yet is sought again after so long
WAKE_NS = 200_000_000  # how exactly the time of a request that waits is kept
PATIENCE_NS = 120_000_000_000  # for an ancestor's answer, which may have thousands to give


class Waiting(msgspec.Struct):
    """A request for a variable that nobody publishes yet."""

    address: Address
    want: SubscribeRequest
    deadline_ns: int
    again_ns: int


class Sought(msgspec.Struct):
    """A request that an ancestor works on."""

    subscription: Subscription
    number: int  # of the request upward
    deadline_ns: int
    askers: dict[tuple[Address, int], SubscribeRequest]
    refusal: Refusal | None = None  # why this cloud alone cannot give it
    queued: list[tuple[Address, SubscribeRequest]] = []


class RemoteSubscriptions:
    """What is asked of ancestors; it survives their restarts and this broker's."""

    def __init__(self, subscriptions: Subscriptions, parent: ParentLink) -> None:
        self._subscriptions = subscriptions
        self._cloud = subscriptions.cloud
        self._parent = parent
        self._sought: dict[str, Sought] = {}
        self._current: dict[tuple[str, Name], str] = {}  # owner and name -> key of the one under way
        self._waiting: dict[Name, list[Waiting]] = {}
        self._woken_ns = 0

    def resume(self) -> None:
        """Go on after a restart: what was sought is sought again, what was ending ends."""
        for subscription in list(self._subscriptions.by_key.values()):
            if subscription.sought and subscription.state == SETTING:
                self._seek(subscription, {}, None)
            elif subscription.sought and subscription.state == ENDING:
                self._unseek(subscription, "ended before a restart")

    # asking

    def under_way(self, owner_name: str, name: Name) -> Sought | None:
        key = self._current.get((owner_name, name))
        return self._sought[key] if key is not None else None

    def join(self, sought: Sought, address: Address, want: SubscribeRequest) -> None:
        """The same request again; another quality waits until this one is answered."""
        subscription = sought.subscription
        if (subscription.qos, subscription.modes, subscription.type) == (want.qos, want.modes, want.type):
            sought.askers[address, want.id] = want
        else:
            sought.queued = [*sought.queued, (address, want)]

    def seek(self, address: Address, want: SubscribeRequest, edge: str, refusal: Refusal | None = None,
             replaces: Subscription | None = None) -> None:  # fmt: skip
        """Ask the parent; durable first, so that a broker that comes after this one asks for the same."""
        subscription = Subscription(
            key=self._subscriptions.next_key(), entity=want.entity.name, edge=edge, publisher=want.publisher,
            name=want.variable, type=want.type, qos=want.qos, modes=want.modes, sought=True,
            replaces=replaces.key if replaces is not None else "",
        )  # fmt: skip
        self._subscriptions.index(subscription)
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        self._seek(subscription, {(address, want.id): want}, refusal)

    def seek_input(self, subscription: Subscription) -> None:
        """The same for an input of a function; `InputSettled` says what came of it."""
        subscription.sought = True
        self._subscriptions.index(subscription)
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        self._seek(subscription, {}, None)

    def _settled(self, subscription: Subscription, reason: str = "", code: str = "") -> None:
        if subscription.function:
            self._cloud.agenda.add(InputSettled(subscription, reason, code))

    def _seek(self, subscription: Subscription, askers: dict[tuple[Address, int], SubscribeRequest],
              refusal: Refusal | None) -> None:  # fmt: skip
        want = SubscribeRequest(id=0, entity=Entity(subscription.entity, b""), publisher=subscription.publisher,
                    variable=subscription.name, type=subscription.type, qos=subscription.qos,
                    modes=subscription.modes)  # fmt: skip
        number = self._parent.ask(
            Seek, lambda answer: self._answered(subscription.key, answer), subscription=subscription.key,
            cloud=self._cloud.role, edge=subscription.edge, request=want,
        )  # fmt: skip
        deadline = self._cloud.now_ns + PATIENCE_NS
        self._sought[subscription.key] = Sought(subscription, number, deadline, askers, refusal)
        self._current[owner(subscription), (subscription.publisher, subscription.name)] = subscription.key

    def _answered(self, key: str, answer: Message) -> None:
        sought = self._take(key)
        if sought is None:
            return
        if isinstance(answer, Granted):
            self._granted(sought, answer)
        else:
            self._refused(sought, answer)
        for address, want in sought.queued:
            self._cloud.agenda.add(Decide(address, want))

    def _take(self, key: str) -> Sought | None:
        sought = self._sought.pop(key, None)
        if sought is not None:
            subscription = sought.subscription
            self._current.pop((owner(subscription), (subscription.publisher, subscription.name)), None)
            self._parent.drop(sought.number)
        return sought

    def _granted(self, sought: Sought, answer: Granted) -> None:
        subscription = sought.subscription
        before = self._subscriptions.by_key.get(subscription.replaces)
        subscription.variable, subscription.grants = answer.variable, _sixteen(answer)
        subscription.state, subscription.replaces = GRANTED, ""
        if before is not None:
            if before.sought:
                self.end(before, "changed")
            else:
                self._subscriptions.end(before, "changed")
        own = self._subscriptions.by_owner.setdefault(owner(subscription), {})
        own[subscription.publisher, subscription.name] = subscription
        self._subscriptions.index_variable(subscription)
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        for address, request in sought.askers:
            self._cloud.answer(address, granted(subscription, request))
        self._settled(subscription)

    def _refused(self, sought: Sought, answer: Message) -> None:
        self._subscriptions.drop(sought.subscription)
        reason = answer.reason if isinstance(answer, Failed) else f"unexpected answer {type(answer).__name__}"
        self._settled(sought.subscription, reason, answer.code if isinstance(answer, Failed) else "failed")
        took_ns = self._cloud.now_ns - (sought.deadline_ns - PATIENCE_NS)
        for (address, _), want in sought.askers.items():
            left = msgspec.structs.replace(want, wait_ns=max(0, want.wait_ns - took_ns))
            self._pass_on(address, left, answer, sought.refusal)

    def _pass_on(self, address: Address, want: SubscribeRequest, answer: Message, refusal: Refusal | None) -> None:
        code = answer.code if isinstance(answer, Failed) else "failed"
        if refusal is not None:
            self._cloud.answer(address, refused(refusal, want))
        elif code == "unknown" and want.wait_ns > 0:
            self.wait(address, want)
        elif isinstance(answer, Failed):
            self._cloud.fail(address, want.id, code, answer.reason, best=answer.best, obstacle=answer.obstacle)
        else:
            self._cloud.fail(address, want.id, code, f"unexpected answer {type(answer).__name__} of the parent")

    # the end

    def end(self, subscription: Subscription, reason: str) -> None:
        """Give up a sought subscription: the ancestor that allocated it releases every segment."""
        self._turn_away(self._take(subscription.key), "unknown", reason)
        self._subscriptions.unlist(subscription)
        subscription.state = ENDING
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        self._unseek(subscription, reason)

    def _unseek(self, subscription: Subscription, reason: str) -> None:
        def over(answer: Message) -> None:
            if subscription.key in self._subscriptions.by_key:
                self._subscriptions.drop(subscription)

        self._parent.ask(Unseek, over, subscription=subscription.key, reason=reason)

    def gone(self, subscription: Subscription, reason: str) -> None:
        """An ancestor has ended it."""
        sought = self._take(subscription.key)
        self._subscriptions.drop(subscription)
        self._turn_away(sought, "unknown", reason)
        self._settled(subscription, reason, "unknown")

    def _turn_away(self, sought: Sought | None, code: str, reason: str) -> None:
        """Whoever asked for it, or for another quality of it, gets no more."""
        if sought is None:
            return
        waiting = [*sought.askers, *((address, want.id) for address, want in sought.queued)]
        sought.askers, sought.queued = {}, []
        for address, request in waiting:
            self._cloud.fail(address, request, code, reason)

    # waiting for a publication

    def wait(self, address: Address, want: SubscribeRequest) -> None:
        """Keep a request until the variable is published or its time is over."""
        now = self._cloud.now_ns
        waiting = self._waiting.setdefault((want.publisher, want.variable), [])
        for other in waiting:
            if (other.address, other.want.id) == (address, want.id):
                other.again_ns = now + AGAIN_NS
                return
        waiting.append(Waiting(address, want, now + want.wait_ns, now + AGAIN_NS))

    def published(self, name: Name) -> None:
        """Whoever waits for it asks again."""
        for waiting in self._waiting.pop(name, ()):
            self._cloud.agenda.add(Decide(waiting.address, waiting.want))

    def lost(self, address: Address) -> None:
        """An edge is gone; it will ask again when it is back."""
        self._keep(lambda waiting: waiting.address != address)

    def forget(self, entity: str) -> None:
        """An end-entity has restarted: nothing it asked for before counts."""
        for waiting in self._keep(lambda waiting: waiting.want.entity.name != entity):
            self._cloud.fail(waiting.address, waiting.want.id, "stale", "the client has restarted")
        for key in [key for key, sought in self._sought.items() if sought.subscription.entity == entity]:
            self.end(self._sought[key].subscription, "its client has restarted")

    def _keep(self, wanted: Callable[[Waiting], bool]) -> list[Waiting]:
        """Those that are not kept."""
        over: list[Waiting] = []
        for name in list(self._waiting):
            kept: list[Waiting] = []
            for waiting in self._waiting[name]:
                (kept if wanted(waiting) else over).append(waiting)
            self._waiting[name] = kept
            if not kept:
                del self._waiting[name]
        return over

    def next_tick(self) -> int:
        if self._waiting:
            return self._woken_ns + WAKE_NS
        return next((sought.deadline_ns for sought in self._sought.values()), NEVER)

    def tick(self, now_ns: int) -> None:
        if now_ns - self._woken_ns < WAKE_NS:
            return
        self._woken_ns = now_ns
        for key in [key for key, sought in self._sought.items() if sought.deadline_ns <= now_ns]:
            self._give_up(key)
        for name in list(self._waiting):
            for waiting in list(self._waiting.get(name, ())):
                self._wake(name, waiting, now_ns)

    def _give_up(self, key: str) -> None:
        sought = self._sought[key]
        self._turn_away(sought, "unavailable", "the brokers between the clouds do not answer; try again")
        self.end(sought.subscription, "no answer in time")
        self._settled(sought.subscription, "the brokers between the clouds do not answer; try again", "unavailable")

    def _wake(self, name: Name, waiting: Waiting, now_ns: int) -> None:
        want = waiting.want
        if waiting.deadline_ns <= now_ns:
            self._forget(name, waiting)
            self._cloud.fail(waiting.address, want.id, "unknown", f"nobody publishes {want.publisher}/{want.variable}")
        elif self._parent.up and waiting.again_ns <= now_ns:
            self._forget(name, waiting)
            left = msgspec.structs.replace(want, wait_ns=waiting.deadline_ns - now_ns)
            self._cloud.agenda.add(Decide(waiting.address, left))

    def _forget(self, name: Name, waiting: Waiting) -> None:
        left = [other for other in self._waiting[name] if other is not waiting]
        if left:
            self._waiting[name] = left
        else:
            del self._waiting[name]


def _sixteen(answer: Granted) -> tuple[Grant | None, ...]:
    if len(answer.grants) == 16:
        return answer.grants
    return tuple(answer.grants[0] if answer.modes >> mode & 1 else None for mode in range(MODES))
