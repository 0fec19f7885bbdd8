"""Management links of a simulated deployment: control messages between two processes, in order, after a delay."""

from __future__ import annotations

import random
from typing import Protocol

from chappe.sim.clock import Clock, Timer
from chappe.wire.base import Message
from chappe.wire.control import decode, encode

REDIAL_S = 0.5  # mean wait between attempts, drawn anew each time


class Process(Protocol):
    """An end of a management link."""

    @property
    def name(self) -> str: ...

    @property
    def running(self) -> bool: ...

    def linked(self, link: ManagementLink, peer: str, dialled: bool) -> None:
        """The connection is there."""

    def unlinked(self, link: ManagementLink) -> None:
        """It has ended."""

    def heard(self, link: ManagementLink, message: Message) -> None:
        """A message of the other end."""


class ManagementLink:
    """Kept up by its first end, which dials the second whenever both run and the line is intact."""

    def __init__(self, clock: Clock, dialler: Process, listener: Process, rng: random.Random, delay_ms: float) -> None:
        self.ends = (dialler, listener)
        self.intact = True
        self.connected = False
        self.messages = 0
        self._clock = clock
        self._rng = rng
        self._delay_s = delay_ms / 1e3
        self._life = 0
        self._dialling: Timer | None = None

    def dial(self) -> None:
        """Connect after a while, if it is possible then."""
        if not self.connected and (self._dialling is None or not self._dialling.waits):
            self._dialling = self._clock.after(self._rng.uniform(0.2, 1.8) * REDIAL_S, self._connect)

    def _connect(self) -> None:
        if self.connected or not self.intact or not all(end.running for end in self.ends):
            return
        self.connected = True
        self._life += 1
        dialler, listener = self.ends
        listener.linked(self, dialler.name, False)
        dialler.linked(self, listener.name, True)

    def cut(self) -> None:
        """The line fails: both ends notice, what was on its way is lost."""
        self.intact = False
        self.end()

    def mend(self) -> None:
        self.intact = True
        self.dial()

    def end(self) -> None:
        """The connection ends, by a failure or because a process has ended; those that run notice at once."""
        if not self.connected:
            return
        self.connected = False
        for end in self.ends:
            if end.running:
                end.unlinked(self)
        self.dial()

    def send(self, sender: Process, message: Message) -> None:
        if self.connected:
            self.messages += 1
            receiver = self.ends[1] if sender is self.ends[0] else self.ends[0]
            self._clock.after(self._delay_s, self._deliver, receiver, encode(message), self._life)

    def _deliver(self, receiver: Process, payload: bytes, life: int) -> None:
        if life == self._life and self.connected:
            receiver.heard(self, decode(payload))
