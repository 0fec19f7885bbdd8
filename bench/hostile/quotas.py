"""Taking all there is of something: what one identity can have is bounded, and others still get theirs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Protocol

from bench.hostile.attack import ATTACKER, Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from bench.hostile.wire import Wire
from chappe.errors import ChappeError
from chappe.wire import control
from chappe.wire.events import Event, Topic, TopicName

AT_ONCE = 50  # a node that makes the attacker wait answers them within the time of a strike
LEAST = 40  # connections that are tried, however slow the machine is


class Taking(Protocol):
    """One thing of which an attack takes more and more."""

    def take(self, wanted: int) -> int:
        """Ask for so many; how many were refused."""

    def honest(self, honest: Wire) -> str:
        """Do it once as an honest client; what went wrong, or nothing."""


def exhaust(attack: Attack, thing: str, taking: Taking, effort: Effort) -> Tally:
    """Take more and more of one thing; then an honest client must still get one."""
    budget = Budget(effort)
    while budget.left:
        refused = taking.take(AT_ONCE)
        budget.act(AT_ONCE, refused=refused)
    try:
        with attack.target.client("honest") as honest:
            problem = taking.honest(honest)
    except ChappeError as error:
        problem = str(error)
    if problem:
        budget.tally.succeeded.append(f"an honest client gets no {thing}: {problem}")
    return budget.tally


class Asking:
    """What is taken by requests, each of which is answered."""

    def __init__(self, attack: Attack, request: Callable[[int], control.Request]) -> None:
        self._wire = attack.open()
        self._request = request
        self._serial = count(1)

    def take(self, wanted: int) -> int:
        requests = [self._request(next(self._serial)) for _ in range(wanted)]
        self._wire.send(*requests)
        refused = 0
        for _ in requests:
            answer = self._wire.message()
            refused += isinstance(answer, control.Failed)
        return refused

    def honest(self, honest: Wire) -> str:
        request = self._request(next(self._serial))
        for field in ("pattern", "publisher"):
            if hasattr(request, field):
                setattr(request, field, getattr(request, field).replace("mallory", "honest"))
        honest.send(request)
        answer = honest.message()
        return answer.reason if isinstance(answer, control.Failed) else ""


class SubscriptionQuota(Attack):
    """Subscriptions to different patterns."""

    name = "quota of subscriptions"

    def prepare(self) -> None:
        self.asking = Asking(self, lambda number: control.Subscribe(id=number, pattern=f"mallory/{number}/+/#"))

    def strike(self, effort: Effort) -> Tally:
        return exhaust(self, "subscription", self.asking, effort)


class VariableQuota(Attack):
    """Registered variables."""

    name = "quota of variables"

    def prepare(self) -> None:
        self.asking = Asking(
            self, lambda number: control.Register(id=number, publisher="mallory", variable=f"v{number}")
        )

    def strike(self, effort: Effort) -> Tally:
        return exhaust(self, "variable", self.asking, effort)


class AdvertisementQuota(Attack):
    """Advertised topics: the node tells the whole mesh of them."""

    name = "quota of advertisements"

    def prepare(self) -> None:
        self.asking = Asking(self, lambda number: control.Advertise(id=number, pattern=f"mallory/{number}"))

    def strike(self, effort: Effort) -> Tally:
        return exhaust(self, "advertisement", self.asking, effort)


class TopicQuota(Attack):
    """Definitions of topics, each number used again and again, and an event on each."""

    name = "quota of topics"

    def prepare(self) -> None:
        self.wire = self.open()
        self.serial = count(1)

    def strike(self, effort: Effort) -> Tally:
        return exhaust(self, "topic", self, effort)

    def take(self, wanted: int) -> int:
        frames: list[Topic | Event] = []
        for _ in range(wanted):
            number = next(self.serial)
            place = number % 65_000 + 1
            frames += [Topic(place, TopicName(f"mallory/t/{number}")), Event(place, number, b"")]
        self.wire.send(*frames)
        self.wire.flush()
        return 0

    def honest(self, honest: Wire) -> str:
        topic = f"bench/new/{next(self.serial)}"
        answer = honest.ask(control.Subscribe, pattern=topic)
        if isinstance(answer, control.Failed):
            return answer.reason
        honest.publish(topic, b"x")
        return "" if honest.await_events(1, 5.0) else f"an event on {topic} did not arrive"


class ConnectionQuota(Attack):
    """As many connections as the node takes, of one identity."""

    name = "quota of connections"

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left or budget.tally.acts < LEAST:
            try:
                self.open()
                budget.act()
            except ChappeError:
                budget.act(refused=1)
        try:
            self.target.client("honest").close()
        except ChappeError as error:
            budget.tally.succeeded.append(f"an honest client is not let in: {error}")
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        missing = [] if evidence.grown("chappe_refused", "limit") else ["no connection was refused by a limit"]
        return missing + evidence.lacks_log("mallory", "per_identity") + evidence.lacks_log(ATTACKER)
