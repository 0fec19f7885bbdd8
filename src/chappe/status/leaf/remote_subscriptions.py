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

AGAIN_NS = 1_000_000_000  # a variable that nobody has yet is asked for again after so long
WAKE_NS = 200_000_000  # how exactly the time of a request that waits is kept
PATIENCE_NS = 120_000_000_000  # for an ancestor's answer, which may have thousands to give


class WaitingRequest(msgspec.Struct):
    """A request for a variable that nobody publishes yet."""

    address: Address
    request: SubscribeRequest
    deadline_ns: int
    again_ns: int


class RemoteRequest(msgspec.Struct):
    """A request that an ancestor works on."""

    subscription: Subscription
    number: int  # of the request to the parent
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
        self._pending: dict[str, RemoteRequest] = {}
        self._current: dict[tuple[str, Name], str] = {}  # owner and name -> key of the one under way
        self._waiting: dict[Name, list[WaitingRequest]] = {}
        self._woken_ns = 0

    def resume(self) -> None:
        """Go on after a restart: what was asked for is asked for again, what was ending ends."""
        for subscription in list(self._subscriptions.by_key.values()):
            if subscription.remote and subscription.state == SETTING:
                self._seek(subscription, {}, None)
            elif subscription.remote and subscription.state == ENDING:
                self._unseek(subscription, "ended before a restart")

    # asking

    def under_way(self, owner_name: str, name: Name) -> RemoteRequest | None:
        key = self._current.get((owner_name, name))
        return self._pending[key] if key is not None else None

    def join(self, pending: RemoteRequest, address: Address, request: SubscribeRequest) -> None:
        """The same request again; another quality waits until this one is answered."""
        subscription = pending.subscription
        if (subscription.qos, subscription.modes, subscription.type) == (request.qos, request.modes, request.type):
            pending.askers[address, request.id] = request
        else:
            pending.queued = [*pending.queued, (address, request)]

    def seek(self, address: Address, request: SubscribeRequest, edge: str, refusal: Refusal | None = None,
             replaces: Subscription | None = None) -> None:  # fmt: skip
        """Ask the parent; durable first, so that a broker that comes after this one asks for the same."""
        subscription = Subscription(
            key=self._subscriptions.next_key(), entity=request.entity.name, edge=edge, publisher=request.publisher,
            name=request.variable, type=request.type, qos=request.qos, modes=request.modes, remote=True,
            replaces=replaces.key if replaces is not None else "",
        )  # fmt: skip
        self._subscriptions.index(subscription)
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        self._seek(subscription, {(address, request.id): request}, refusal)

    def seek_input(self, subscription: Subscription) -> None:
        """The same for an input of a function; `InputSettled` says what came of it."""
        subscription.remote = True
        self._subscriptions.index(subscription)
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        self._seek(subscription, {}, None)

    def _settled(self, subscription: Subscription, reason: str = "", code: str = "") -> None:
        if subscription.function:
            self._cloud.agenda.add(InputSettled(subscription, reason, code))

    def _seek(self, subscription: Subscription, askers: dict[tuple[Address, int], SubscribeRequest],
              refusal: Refusal | None) -> None:  # fmt: skip
        request = SubscribeRequest(id=0, entity=Entity(subscription.entity, b""), publisher=subscription.publisher,
                    variable=subscription.name, type=subscription.type, qos=subscription.qos,
                    modes=subscription.modes)  # fmt: skip
        number = self._parent.ask(
            Seek, lambda answer: self._answered(subscription.key, answer), subscription=subscription.key,
            cloud=self._cloud.role, edge=subscription.edge, request=request,
        )  # fmt: skip
        deadline = self._cloud.now_ns + PATIENCE_NS
        self._pending[subscription.key] = RemoteRequest(subscription, number, deadline, askers, refusal)
        self._current[owner(subscription), (subscription.publisher, subscription.name)] = subscription.key

    def _answered(self, key: str, answer: Message) -> None:
        pending = self._take(key)
        if pending is None:
            return
        if isinstance(answer, Granted):
            self._granted(pending, answer)
        else:
            self._refused(pending, answer)
        for address, request in pending.queued:
            self._cloud.agenda.add(Decide(address, request))

    def _take(self, key: str) -> RemoteRequest | None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            subscription = pending.subscription
            self._current.pop((owner(subscription), (subscription.publisher, subscription.name)), None)
            self._parent.drop(pending.number)
        return pending

    def _granted(self, pending: RemoteRequest, answer: Granted) -> None:
        subscription = pending.subscription
        before = self._subscriptions.by_key.get(subscription.replaces)
        subscription.variable, subscription.grants = answer.variable, _sixteen(answer)
        subscription.state, subscription.replaces = GRANTED, ""
        if before is not None:
            if before.remote:
                self.end(before, "changed")
            else:
                self._subscriptions.end(before, "changed")
        own = self._subscriptions.by_owner.setdefault(owner(subscription), {})
        own[subscription.publisher, subscription.name] = subscription
        self._subscriptions.index_variable(subscription)
        self._cloud.outbox.put("subscription", subscription.key, subscription)
        for address, request_id in pending.askers:
            self._cloud.answer(address, granted(subscription, request_id))
        self._settled(subscription)

    def _refused(self, pending: RemoteRequest, answer: Message) -> None:
        self._subscriptions.drop(pending.subscription)
        reason = answer.reason if isinstance(answer, Failed) else f"unexpected answer {type(answer).__name__}"
        self._settled(pending.subscription, reason, answer.code if isinstance(answer, Failed) else "failed")
        took_ns = self._cloud.now_ns - (pending.deadline_ns - PATIENCE_NS)
        for (address, _), request in pending.askers.items():
            left = msgspec.structs.replace(request, wait_ns=max(0, request.wait_ns - took_ns))
            self._pass_on(address, left, answer, pending.refusal)

    def _pass_on(self, address: Address, request: SubscribeRequest, answer: Message, refusal: Refusal | None) -> None:
        code = answer.code if isinstance(answer, Failed) else "failed"
        if refusal is not None:
            self._cloud.answer(address, refused(refusal, request))
        elif code == "unknown" and request.wait_ns > 0:
            self.wait(address, request)
        elif isinstance(answer, Failed):
            self._cloud.fail(address, request.id, code, answer.reason, best=answer.best, obstacle=answer.obstacle)
        else:
            self._cloud.fail(address, request.id, code, f"unexpected answer {type(answer).__name__} of the parent")

    # the end

    def end(self, subscription: Subscription, reason: str) -> None:
        """Give up a remote subscription: the ancestor that allocated it releases every segment."""
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
        pending = self._take(subscription.key)
        self._subscriptions.drop(subscription)
        self._turn_away(pending, "unknown", reason)
        self._settled(subscription, reason, "unknown")

    def _turn_away(self, pending: RemoteRequest | None, code: str, reason: str) -> None:
        """Whoever asked for it, or for another quality of it, gets no more."""
        if pending is None:
            return
        waiting = [*pending.askers, *((address, request.id) for address, request in pending.queued)]
        pending.askers, pending.queued = {}, []
        for address, request_id in waiting:
            self._cloud.fail(address, request_id, code, reason)

    # waiting for a publication

    def wait(self, address: Address, request: SubscribeRequest) -> None:
        """Keep a request until the variable is published or its time is over."""
        now = self._cloud.now_ns
        waiting = self._waiting.setdefault((request.publisher, request.variable), [])
        for other in waiting:
            if (other.address, other.request.id) == (address, request.id):
                other.again_ns = now + AGAIN_NS
                return
        waiting.append(WaitingRequest(address, request, now + request.wait_ns, now + AGAIN_NS))

    def published(self, name: Name) -> None:
        """Whoever waits for it asks again."""
        for waiting in self._waiting.pop(name, ()):
            self._cloud.agenda.add(Decide(waiting.address, waiting.request))

    def lost(self, address: Address) -> None:
        """An edge is gone; it will ask again when it is back."""
        self._keep(lambda waiting: waiting.address != address)

    def forget(self, entity: str) -> None:
        """An end-entity has restarted: nothing it asked for before counts."""
        for waiting in self._keep(lambda waiting: waiting.request.entity.name != entity):
            self._cloud.fail(waiting.address, waiting.request.id, "stale", "the client has restarted")
        for key in [key for key, pending in self._pending.items() if pending.subscription.entity == entity]:
            self.end(self._pending[key].subscription, "its client has restarted")

    def _keep(self, condition: Callable[[WaitingRequest], bool]) -> list[WaitingRequest]:
        """Those that are not kept."""
        over: list[WaitingRequest] = []
        for name in list(self._waiting):
            kept: list[WaitingRequest] = []
            for waiting in self._waiting[name]:
                (kept if condition(waiting) else over).append(waiting)
            self._waiting[name] = kept
            if not kept:
                del self._waiting[name]
        return over

    def next_tick(self) -> int:
        if self._waiting:
            return self._woken_ns + WAKE_NS
        return next((pending.deadline_ns for pending in self._pending.values()), NEVER)

    def tick(self, now_ns: int) -> None:
        if now_ns - self._woken_ns < WAKE_NS:
            return
        self._woken_ns = now_ns
        for key in [key for key, pending in self._pending.items() if pending.deadline_ns <= now_ns]:
            self._give_up(key)
        for name in list(self._waiting):
            for waiting in list(self._waiting.get(name, ())):
                self._wake(name, waiting, now_ns)

    def _give_up(self, key: str) -> None:
        pending = self._pending[key]
        self._turn_away(pending, "unavailable", "the brokers between the clouds do not answer; try again")
        self.end(pending.subscription, "no answer in time")
        self._settled(pending.subscription, "the brokers between the clouds do not answer; try again", "unavailable")

    def _wake(self, name: Name, waiting: WaitingRequest, now_ns: int) -> None:
        request = waiting.request
        if waiting.deadline_ns <= now_ns:
            self._forget(name, waiting)
            self._cloud.fail(
                waiting.address, request.id, "unknown", f"nobody publishes {request.publisher}/{request.variable}"
            )
        elif self._parent.up and waiting.again_ns <= now_ns:
            self._forget(name, waiting)
            left = msgspec.structs.replace(request, wait_ns=waiting.deadline_ns - now_ns)
            self._cloud.agenda.add(Decide(waiting.address, left))

    def _forget(self, name: Name, waiting: WaitingRequest) -> None:
        left = [other for other in self._waiting[name] if other is not waiting]
        if left:
            self._waiting[name] = left
        else:
            del self._waiting[name]


def _sixteen(answer: Granted) -> tuple[Grant | None, ...]:
    if len(answer.grants) == 16:
        return answer.grants
    return tuple(answer.grants[0] if answer.modes >> mode & 1 else None for mode in range(MODES))
