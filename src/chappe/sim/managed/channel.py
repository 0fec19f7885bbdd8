"""An event channel between two simulated routers: two pipes, and the connection over them that comes and goes."""

from __future__ import annotations

import random
from typing import Protocol

from chappe.engine._engine import Engine
from chappe.sim._pump import take
from chappe.sim.clock import Clock, Timer
from chappe.sim.link import Pipe, Quality

WHOLE = 1 << 30
REDIAL_S = 0.5
NOTICE_S = 0.05  # until both ends know that a channel has failed


class Carried(Protocol):
    """A router as its channels know it."""

    @property
    def name(self) -> str: ...

    @property
    def running(self) -> bool: ...

    @property
    def engine(self) -> Engine: ...

    def expects(self, peer: str) -> bool:
        """Whether its broker has told it of a channel to that peer."""

    def attach(self, channel: Channel, peer: str) -> int:
        """It is connected; the port that carries it."""

    def detach(self, peer: str) -> None:
        """It is not any more."""

    def feed(self, port: int, piece: bytes) -> None:
        """Bytes that arrived."""


class Channel:
    """One channel. `intact` is the line, `connected` what both ends have over it; `down` when it was not, in ns."""

    def __init__(
        self, clock: Clock, ends: tuple[Carried, Carried], quality: Quality, rng: random.Random, grain_ns: int
    ) -> None:
        self.ends = ends
        self.intact = True
        self.connected = False
        self.down: list[tuple[int, int]] = []  # from, until
        self._since_ns = clock.now_ns
        self._clock = clock
        self._rng = rng
        self._life = 0
        self._ports = [-1, -1]
        self._dialling: Timer | None = None
        self.pipes = tuple(Pipe(clock, rng, quality, self._receiver(1 - at), grain_ns) for at in (0, 1))

    @property
    def name(self) -> str:
        return f"{self.ends[0].name}-{self.ends[1].name}"

    def dial(self) -> None:
        """Connect as soon as both ends run and expect each other."""
        if not self.connected and (self._dialling is None or not self._dialling.waits):
            self._dialling = self._clock.after(self._rng.uniform(0.2, 1.8) * REDIAL_S, self._connect)

    def _connect(self) -> None:
        one, other = self.ends
        if self.connected or not self.intact or not (one.running and other.running):
            return
        if not (one.expects(other.name) and other.expects(one.name)):
            return
        self.connected = True
        self._life += 1
        self.down.append((self._since_ns, self._clock.now_ns))
        self._ports = [one.attach(self, other.name), other.attach(self, one.name)]

    def fail(self) -> None:
        """The line fails: what is on its way is lost, and both ends notice a little later."""
        self.intact = False
        self.lose()

    def mend(self) -> None:
        self.intact = True
        self.dial()

    def lose(self) -> None:
        """The connection ends: the line or one of the routers has failed."""
        if not self.connected:
            return
        self.connected = False
        self._since_ns = self._clock.now_ns
        for pipe in self.pipes:
            pipe.cut()
        self._clock.after(NOTICE_S, self._notice, self._life)

    def _notice(self, life: int) -> None:
        if life != self._life:
            return
        self._ports = [-1, -1]
        for node, other in (self.ends, self.ends[::-1]):
            if node.running:
                node.detach(other.name)
        self.dial()

    def was_down(self, from_ns: int, until_ns: int) -> bool:
        """Whether it was not connected at any time between these."""
        if not self.connected and self._since_ns <= until_ns:
            return True
        return any(start < until_ns and end > from_ns for start, end in reversed(self.down))

    def drain(self, node: Carried, port: int) -> None:
        """Take what a port has to send."""
        at = 0 if node is self.ends[0] else 1
        while piece := take(node.engine, port, WHOLE):
            if self.connected:
                self.pipes[at].push(piece)
            else:
                self.pipes[at].waste(len(piece))

    def _receiver(self, at: int):  # type: ignore[no-untyped-def]
        def receive(piece: bytes) -> None:
            if self._ports[at] >= 0:
                self.ends[at].feed(self._ports[at], piece)

        return receive
