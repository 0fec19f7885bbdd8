"""Taking all there is of something: what one identity can have is bounded, and others still get theirs."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from bench.hostile.attack import ATTACKER, Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from bench.hostile.wire import Wire
from chappe.errors import ChappeError
from chappe.wire import control
from chappe.wire.events import Event, Topic, TopicName

AT_ONCE = 50  # a node that makes the attacker wait answers them within the time of a strike
LEAST = 40  # connections that are tried, however slow the machine is


class Quota(Attack):
    """Asks for more and more of one thing; then an honest client must still get one."""

    thing: ClassVar[str]

    def prepare(self) -> None:
        self.wire = self.open()
        self.serial = count(1)

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            refused = self.take(AT_ONCE)
            budget.act(AT_ONCE, refused=refused)
        try:
            with self.target.client("honest") as honest:
                problem = self.honest(honest, next(self.serial))
        except ChappeError as error:
            problem = str(error)
        if problem:
            budget.tally.succeeded.append(f"an honest client gets no {self.thing}: {problem}")
        return budget.tally

    def take(self, wanted: int) -> int:
        """Ask for so many; how many were refused."""
        requests = [self.request(next(self.serial)) for _ in range(wanted)]
        self.wire.send(*requests)
        refused = 0
        for _ in requests:
            answer = self.wire.message()
            refused += isinstance(answer, control.Failed)
        return refused

    def request(self, number: int) -> control.Request:
        raise NotImplementedError

    def honest(self, honest: Wire, number: int) -> str:
        """Do it once as an honest client; what went wrong, or nothing."""
        request = self.request(number)
        for field in ("pattern", "publisher"):
            if hasattr(request, field):
                setattr(request, field, getattr(request, field).replace("mallory", "honest"))
        honest.send(request)
        answer = honest.message()
        return answer.reason if isinstance(answer, control.Failed) else ""


class SubscriptionQuota(Quota):
    """Subscriptions to different patterns."""

    name = "quota of subscriptions"
    thing = "subscription"

    def request(self, number: int) -> control.Request:
        return control.Subscribe(id=number, pattern=f"mallory/{number}/+/#")


class VariableQuota(Quota):
    """Registered variables."""

    name = "quota of variables"
    thing = "variable"

    def request(self, number: int) -> control.Request:
        return control.Register(id=number, publisher="mallory", variable=f"v{number}")


class AdvertisementQuota(Quota):
    """Advertised topics: the node tells the whole mesh of them."""

    name = "quota of advertisements"
    thing = "advertisement"

    def request(self, number: int) -> control.Request:
        return control.Advertise(id=number, pattern=f"mallory/{number}")


class TopicQuota(Quota):
    """Definitions of topics, each number used again and again, and an event on each."""

    name = "quota of topics"
    thing = "topic"

    def take(self, wanted: int) -> int:
        frames: list[Topic | Event] = []
        for _ in range(wanted):
            number = next(self.serial)
            place = number % 65_000 + 1
            frames += [Topic(place, TopicName(f"mallory/t/{number}")), Event(place, number, b"")]
        self.wire.send(*frames)
        self.wire.flush()
        return 0

    def honest(self, honest: Wire, number: int) -> str:
        topic = f"bench/new/{number}"
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
