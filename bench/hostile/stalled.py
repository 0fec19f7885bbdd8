"""Subscribers that do not read."""

from __future__ import annotations

import socket

from bench.hostile.attack import Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from chappe.wire import control
from chappe.wire.events import Event

AT_ONCE = 50
BODY = bytes(8_000)


class StalledSubscriber(Attack):
    """Subscribes to its own large events on a second connection and never reads that one."""

    name = "stalled subscriber"

    def prepare(self) -> None:
        self.stalled = self.open()
        self.stalled.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.stalled.ask(control.Subscribe, pattern="mallory/large")
        self.wire = self.open()
        self.number = self.wire.define("mallory/large")
        self.sequence = 0

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            numbers = range(self.sequence + 1, self.sequence + AT_ONCE + 1)
            self.sequence += AT_ONCE
            self.wire.send(*(Event(self.number, number, BODY) for number in numbers))
            self.wire.flush()
            budget.act(AT_ONCE)
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallory", "chappe_port_drops", "queue_full")
