"""Speaking in the name of another client."""

from __future__ import annotations

import secrets
from itertools import count

from bench.hostile.attack import Attack, Budget, Effort, Tally
from bench.hostile.wire import Wire
from chappe.errors import ChappeError
from chappe.wire import control

TOPIC = "bench/forged"
ROUND = 20


class ForgedSession(Attack):
    """Connects with the session number of an honest client, and publishes under its next sequence numbers.

    Whoever had the number in their hands could speak as its owner, and the owner's own events were dropped as repeats.
    The attacker cannot have it: here the bench gives it away.
    """

    name = "forged session"

    def prepare(self) -> None:
        self.session = secrets.token_bytes(16)
        self.victim = self.open("honest", session=self.session)
        self.reader = self.open("honest")
        self.reader.ask(control.Subscribe, pattern=TOPIC)
        self.reader.ask(control.Subscribe, pattern="honest/#")
        self.rounds = count(1)
        self.forger: Wire | None = None

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        before = len(self.reader.events)
        while budget.left:
            self._forge(budget)
            sent = [f"{next(self.rounds)}".encode() for _ in range(ROUND)]
            for body in sent:
                self.victim.publish(TOPIC, body)
            self.victim.flush()
            events = self.reader.await_events(before + ROUND)[before:]
            before = len(self.reader.events)
            bodies = [event.body for event in events]
            if bodies != sent:
                lost, foreign = len(set(sent) - set(bodies)), len(set(bodies) - set(sent))
                budget.tally.succeeded.append(f"of {ROUND} events of the victim {lost} were lost, {foreign} were added")
                break
        return budget.tally

    def _forge(self, budget: Budget) -> None:
        try:
            if self.forger is not None:
                self.forger.close()
            forger = self.forger = self.open(session=self.session)
            forger.sequence = self.victim.sequence
            for _ in range(ROUND):
                forger.publish("mallory/x", b"forged")
                forger.publish(TOPIC, b"forged")
            forger.flush()
            budget.act()
        except (ChappeError, OSError):
            budget.act(refused=1)


class BorrowedName(Attack):
    """Says in its Hello that it is an honest client, with the credential of another."""

    name = "borrowed name"

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            self.release()
            wire = self.target.client("mallory", name="honest")
            self.wires.append(wire)
            wire.publish("bench/x", b"forged")
            answer = wire.ask(control.Register, publisher="honest", variable="x")
            if not isinstance(answer, control.Failed):
                budget.tally.succeeded.append("a variable was registered by the rights of the name in Hello")
            wire.flush()
            budget.act(refused=1)
        return budget.tally
