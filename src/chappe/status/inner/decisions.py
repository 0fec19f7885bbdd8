"""Inter-cloud subscriptions that were decided, until every leaf has carried the decision out (GS-088).

A decision is durable before the first leaf gets it; its end is durable before the first segment is released, and it is
forgotten when the last one is. So whatever is lost in between is sent again, and no path stays half allocated.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.machine import NEVER
from chappe.status.allocation.allocation import Allocator
from chappe.status.allocation.demands import Route
from chappe.status.inner.calls import AWAY, Calls
from chappe.status.inner.netview import NetView
from chappe.status.leaf.state import Item
from chappe.status.outbox import Outbox
from chappe.wire.base import Done, Failed, Grant, Message, Request, Variable
from chappe.wire.management import Commit, Gone, Release, Seek

CARRIED_OUT_NS = 15_000_000_000  # a leaf waits for its routers up to 5 s
AGAIN_NS = 1_000_000_000


class DecisionItem(Item):
    """A subscription between clouds: who asked for it, what it gets, which leaves have a segment of it."""

    seek: Seek
    variable: Variable
    grants: tuple[Grant | None, ...]
    routes: tuple[tuple[tuple[str, ...], int, int], ...]  # routers, redundant, modes
    clouds: tuple[str, ...]  # and the inner brokers whose channels it leads over
    ended: str | None = None  # the reason, once it is to be released
    gone: bool = False  # the subscriber has not ended it itself, so that its leaf has to be notified


class Decision(msgspec.Struct):
    """A decision, and the leaves that have not confirmed it yet."""

    item: DecisionItem
    open: set[str]
    known: bool  # False after a restart: who confirmed is not known

    @property
    def key(self) -> str:
        return self.item.seek.subscription

    @property
    def ended(self) -> bool:
        return self.item.ended is not None


Concluded = Callable[[Decision, Failed | None, int], None]
"""All leaves have set it up (None), or one could not; after an end: all have released it."""


class Decisions:
    """Sends commit, later release, to leaves until they have confirmed; a key has one decision at a time."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, allocator: Allocator, concluded: Concluded) -> None:
        self._out = out
        self._calls = calls
        self._view = view
        self._allocator = allocator
        self._concluded = concluded
        self._unsent: dict[str, set[str]] = {}  # cloud -> keys that could not be sent to it
        self._again_ns = 0
        self.all: dict[str, Decision] = {}

    def restore(self, item: DecisionItem) -> None:
        decision = Decision(item, set(), known=False)
        routes = [Route(*route) for route in item.routes]
        self._allocator.reserve(decision.key, item.variable, routes, item.grants, force=True)
        self.all[decision.key] = decision
        if decision.ended:
            decision.open = set(item.clouds)
            for cloud in item.clouds:
                self._unsent.setdefault(cloud, set()).add(decision.key)

    def decide(self, item: DecisionItem, now_ns: int) -> None:
        """All leaves have reserved it: it holds from now on."""
        decision = self.all[item.seek.subscription] = Decision(item, set(item.clouds), known=True)
        self._out.put("decision", decision.key, item)
        for cloud in item.clouds:
            self._send(decision, cloud, now_ns)

    def confirm(self, decision: Decision, now_ns: int) -> None:
        """Ask all leaves again whether they have it: nobody knows after a restart."""
        if not decision.known:
            decision.open, decision.known = set(decision.item.clouds), True
            for cloud in decision.item.clouds:
                self._send(decision, cloud, now_ns)

    def end(self, decision: Decision, reason: str, by: str, now_ns: int) -> None:
        """Release every segment; the subscriber's leaf gets the reason unless it has ended it itself."""
        if decision.ended:
            return
        item = decision.item
        # A leaf with both ends may have ended it for either of them; if it was the subscriber's, it ignores it.
        item.ended, item.gone = reason, by != item.seek.cloud or item.seek.claimed == by
        self._out.put("decision", decision.key, item)
        decision.open = set(item.clouds)
        for cloud in item.clouds:
            self._send(decision, cloud, now_ns)

    def report(self, key: str, cloud: str, now_ns: int) -> None:
        """A leaf asks for the outcome of a reservation; presumed abort if nothing is known of it."""
        decision = self.all.get(key)
        if decision is not None and cloud in decision.item.clouds:
            self._send(decision, cloud, now_ns)
        else:
            self.release(key, cloud, "", now_ns)

    def release(self, key: str, cloud: str, reason: str, now_ns: int) -> None:
        """Release a reservation that nothing was decided about; if it does not arrive, the leaf asks."""
        child = self._view.reached(cloud)
        if child:
            request = Release(id=0, subscription=key, reason=reason, cloud=cloud)
            self._calls.call(f"child/{child}", request, _ignore, now_ns, CARRIED_OUT_NS)

    def joined(self, child: str, now_ns: int) -> None:
        """A child is back: it gets what it has missed."""
        for cloud in self._view.brokers(child):
            self._send_unsent(cloud, now_ns)

    def next_tick(self) -> int:
        return self._again_ns + AGAIN_NS if self._unsent else NEVER

    def tick(self, now_ns: int) -> None:
        if now_ns - self._again_ns >= AGAIN_NS:
            self._again_ns = now_ns
            for cloud in list(self._unsent):
                self._send_unsent(cloud, now_ns)

    def _send_unsent(self, cloud: str, now_ns: int) -> None:
        if self._view.reached(cloud):
            for key in sorted(self._unsent.pop(cloud, ())):
                decision = self.all.get(key)
                if decision is not None and cloud in decision.open:
                    self._send(decision, cloud, now_ns)

    def _send(self, decision: Decision, cloud: str, now_ns: int) -> None:
        child = self._view.reached(cloud)
        if not child:
            self._unsent.setdefault(cloud, set()).add(decision.key)
            return
        ended = decision.item.ended
        request: Request
        if ended is None:
            request = Commit(id=0, subscription=decision.key, cloud=cloud)
        else:
            request = Release(id=0, subscription=decision.key, reason=ended, cloud=cloud)
            if decision.item.gone and cloud == decision.item.seek.cloud:
                self._out.send(f"child/{child}", Gone(subscription=decision.key, reason=ended, cloud=cloud))

        def answer(message: Message, now_ns: int) -> None:
            if self.all.get(decision.key) is decision and decision.item.ended is ended:
                self._answered(decision, cloud, message, now_ns)

        self._calls.call(f"child/{child}", request, answer, now_ns, CARRIED_OUT_NS)

    def _answered(self, decision: Decision, cloud: str, message: Message, now_ns: int) -> None:
        match message:
            case Failed() if message.code == AWAY or decision.ended:
                self._unsent.setdefault(cloud, set()).add(decision.key)
            case Failed():
                self._concluded(decision, message, now_ns)
                self.end(decision, message.reason, "", now_ns)
            case Done() if cloud in decision.open:
                decision.open.discard(cloud)
                if not decision.open:
                    self._complete(decision, now_ns)

    def _complete(self, decision: Decision, now_ns: int) -> None:
        if decision.ended:
            del self.all[decision.key]
            self._out.drop("decision", decision.key)
            self._allocator.release(decision.key)
        self._concluded(decision, None, now_ns)


def _ignore(message: Message, now_ns: int) -> None:
    """Whether it arrived does not matter: the leaf asks again."""
