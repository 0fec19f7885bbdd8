"""Requests that cost the node much and the one who asks next to nothing."""

from __future__ import annotations

from bench.hostile.attack import Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from chappe.wire import control

VARIABLES = 20_000  # that an honest client registers, and the attacker asks for
AT_ONCE = 500
DEPTH = 64  # levels that a topic may have


class Listings(Attack):
    """`List` of everything, by a client that has no right at all."""

    name = "listings without a right"
    who = "nobody"

    def prepare(self) -> None:
        owner = self.open("honest")
        for start in range(0, VARIABLES, AT_ONCE):
            owner.send(
                *(
                    control.Register(id=number + 1, publisher="honest", variable=f"v{number}")
                    for number in range(start, start + AT_ONCE)
                )
            )
            for _ in range(AT_ONCE):
                owner.message()
        self.wire = self.open("nobody")

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        self.wire.sock.settimeout(20.0)
        while budget.left:
            for what in ("variables", "publishers", "topics", "publications", "clients", "links"):
                answer = self.wire.ask(control.List, what=what, limit=5_000)
                refused = isinstance(answer, control.Failed)
                if isinstance(answer, control.Listing) and answer.rows:
                    budget.tally.succeeded.append(f"a client without a right was shown {what}: {answer.rows[0]}")
                budget.act(refused=refused)
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("nobody", "chappe_port_control")


class CostlyPatterns(Attack):
    """Patterns of the greatest depth and length, and topics that match as many of them as can be."""

    name = "costly patterns"

    def prepare(self) -> None:
        self.wire = self.open()
        self.sequence = 0

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            turn = budget.tally.acts % 200
            levels = ["+" if turn >> bit & 1 else "a" for bit in range(8)]
            pattern = "/".join(["mallory", *levels, *["+"] * (DEPTH - 10), "#"])
            answer = self.wire.ask(control.Subscribe, pattern=pattern)
            self.wire.publish("/".join(["mallory", *["a"] * (DEPTH - 1 - turn % 32)]), b"")
            if turn == 199:
                self.wire.flush()
                self.wire.events.clear()
            budget.act(refused=isinstance(answer, control.Failed))
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallory", "chappe_port_control")
