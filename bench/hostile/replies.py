"""Replies and confirmations that are not the attacker's to give, and inboxes without end."""

from __future__ import annotations

import secrets

from bench.hostile.attack import Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from bench.hostile.quotas import Asking, exhaust
from bench.hostile.wire import Wire
from chappe.wire import control
from chappe.wire.addresses import confirm_address, inbox_address

AT_ONCE = 50
FORGED = b"forged"


class ForgedReplies(Attack):
    """Guesses where an honest client waits for a reply: chosen and random inboxes, under low correlations."""

    name = "forged replies"

    def prepare(self) -> None:
        self.victim = self.open("honest")
        opened = self.victim.ask(control.OpenInbox, key=secrets.token_bytes(16))
        assert isinstance(opened, control.InboxOpened)
        self.own = opened.address
        self.wire = self.open()
        self.node = opened.address.rpartition("@")[0]

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            for number in range(AT_ONCE):
                guess = number.to_bytes(16, "big") if number % 2 else secrets.token_bytes(16)
                address = inbox_address(self.node, guess)
                self.wire.publish(address, FORGED, kind="n", correlation=number % 8 + 1)
            self.wire.flush()
            budget.act(AT_ONCE)
        self._delivered(budget, self.victim)
        return budget.tally

    def _delivered(self, budget: Budget, victim: Wire) -> None:
        victim.flush()
        if any(event.body == FORGED for event in victim.events):
            budget.tally.succeeded.append("a forged reply reached the inbox of an honest client")


class ForgedConfirmations(Attack):
    """Confirms durable events of an honest client, whose issuer every subscriber knows, without the right to."""

    name = "forged confirmations"

    def prepare(self) -> None:
        self.victim = self.open("honest")
        opened = self.victim.ask(control.OpenInbox)
        assert isinstance(opened, control.InboxOpened)
        assert self.victim.welcome is not None
        node = opened.address.rpartition("@")[0]
        self.address = confirm_address(node, self.victim.welcome.issuer)
        self.wire = self.open()

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            for number in range(AT_ONCE):
                self.wire.publish(self.address, FORGED, kind="n", correlation=number + 1)
            self.wire.flush()
            budget.act(AT_ONCE)
        self.victim.flush()
        if any(event.body == FORGED for event in self.victim.events):
            budget.tally.succeeded.append("a confirmation of a client without the right reached the publisher")
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallory", "not_permitted")


class InboxQuota(Attack):
    """Inboxes."""

    name = "quota of inboxes"

    def prepare(self) -> None:
        self.asking = Asking(self, lambda number: control.OpenInbox(id=number, key=secrets.token_bytes(16)))

    def strike(self, effort: Effort) -> Tally:
        return exhaust(self, "inbox", self.asking, effort)
