"""A link between two simulated nodes: two pipes, and the connection over them that comes and goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from chappe.sim._pump import take
from chappe.sim.clock import Clock, Timer
from chappe.sim.link import Pipe, Quality
from chappe.sim.node import Node

WHOLE = 1 << 30
DATAGRAMS = 64


@dataclass(frozen=True, slots=True)
class Timing:
    """How nodes notice that a neighbour is silent, and come back to it."""

    heartbeat_ms: float = 1000.0
    misses: int = 3  # silent intervals until a connection is given up
    redial_ms: float = 200.0  # mean wait between attempts, drawn anew each time
    expected: bool = False  # connect only when both ends know of the channel, as routers are told by their brokers
    grain_ms: float = 1e-6  # arrivals and timers of nodes are put off to whole multiples of it: coarser is quicker


Look = Callable[[Node, "Connection", bytes], None]


class Connection:
    """One link. `intact` is the line itself, `connected` what both ends have over it."""

    def __init__(
        self, clock: Clock, ends: tuple[Node, Node], qualities: tuple[Quality, Quality], timing: Timing,
        rngs: tuple[random.Random, random.Random, random.Random], datagrams: bool = False, manages: str = "",
        joins: bool = True,
    ) -> None:  # fmt: skip
        """`manages`: the name of the end that is a broker to the other. `joins` False: cells alone want it."""
        self._manages = manages
        self.joins = joins
        self.ends = ends
        self.name = f"{ends[0].name}-{ends[1].name}"
        self.intact = True
        self.connected = False
        self.since_ns = 0  # of this connection
        self.down: list[tuple[int, int]] = []  # from, until: when there was none
        self._lost_ns = clock.now_ns
        self.look: Look | None = None  # sees what a node sends over it
        self._clock = clock
        self._timing = timing
        self._rng = rngs[2]
        self.life = 0  # of connections: what was meant for an earlier one is ignored
        self._dialling: Timer | None = None
        self._draining = [False, False]
        self._ports = [-1, -1]
        self._datagram_ports = [-1, -1]
        grain = max(1, round(timing.grain_ms * 1e6))
        self.pipes = tuple(Pipe(clock, rngs[at], qualities[at], self._receiver(1 - at, False), grain) for at in (0, 1))
        self.datagrams: tuple[Pipe, ...] = ()
        if datagrams:
            self.datagrams = tuple(
                Pipe(clock, rngs[at], qualities[at], self._receiver(1 - at, True), grain) for at in (0, 1)
            )
        for node, other in (ends, ends[::-1]):
            node.connections[other.name] = self

    def other(self, node: Node) -> Node:
        return self.ends[1] if node is self.ends[0] else self.ends[0]

    def rate(self, node: Node) -> float:
        """Bytes a second that it carries from that end."""
        return self.pipes[self.ends.index(node)].quality.rate

    @property
    def possible(self) -> bool:
        """Whether a connection could be there."""
        return self.intact and self.ends[0].running and self.ends[1].running

    @property
    def _expected(self) -> bool:
        one, other = self.ends
        return not self._timing.expected or (one.expects(other.name) and other.expects(one.name))

    def was_down(self, from_ns: int, until_ns: int) -> bool:
        """Whether it was not connected at any time between these."""
        if not self.connected and self._lost_ns <= until_ns:
            return True
        return any(start < until_ns and end > from_ns for start, end in reversed(self.down))

    def change(self, quality: Quality, back: Quality | None = None) -> None:
        """From now on the link is like that; without `back` in both directions."""
        for pipes in (self.pipes, self.datagrams):
            for pipe, wanted in zip(pipes, (quality, back or quality), strict=False):
                pipe.quality = wanted

    # --- coming and going

    def dial(self, at_once: bool = False) -> None:
        """Try to connect: after a pause, then the three ways of a handshake."""
        if self.connected or (self._dialling is not None and self._dialling.waits):
            return
        pause_ms = 0.0 if at_once else self._rng.uniform(0.5, 1.5) * self._timing.redial_ms
        ways_ms = 3 * max(pipe.quality.delay_ms for pipe in self.pipes)
        self._dialling = self._clock.after((pause_ms + ways_ms) / 1e3, self._open)

    def _open(self) -> None:
        if self.connected or not self.possible or not self._expected:
            return
        self.life += 1
        self.connected = True
        self.since_ns = self._clock.now_ns
        self.down.append((self._lost_ns, self.since_ns))
        for at, node in enumerate(self.ends):
            if self._ports[at] >= 0:  # it had not noticed that the last connection ended
                self._lose(at)
            other = self.other(node)
            manager = other.name == self._manages
            self._ports[at] = node.attach(self, other.name, other.counts.lives, manager=manager)
            if self.datagrams:
                self._datagram_ports[at] = node.attach_datagrams(self, self.other(node).name)

    def fail(self) -> None:
        """The line goes dead without a word."""
        self.intact = False
        self.silence()

    def mend(self) -> None:
        """The line carries again; the next attempt to connect succeeds."""
        self.intact = True
        if self.possible:
            self.dial()

    def reset(self, gone: Node) -> None:
        """A process ended: what it had sent still arrives, then the end; what was sent to it is lost."""
        at = self.ends.index(gone)
        self._ports[at] = self._datagram_ports[at] = -1
        if not self.connected:
            return
        self._lost()
        self._cut(1 - at)
        self.pipes[at].after_last(self._notice, 1 - at, self.life)

    def end(self) -> None:
        """One end does not want the other: both close, and neither dials again."""
        self.intact = False
        if self.connected:
            self._lost()
            for at in (0, 1):
                self._cut(at)
                self._clock.at(self._clock.now_ns, self._notice, at, self.life)

    def silence(self, gone: Node | None = None) -> None:
        """The line or a machine went dead: everything on the way is lost, and heartbeats find out."""
        for at, node in enumerate(self.ends):
            if node is gone:
                self._ports[at] = self._datagram_ports[at] = -1
        if not self.connected:
            return
        self._lost()
        timing = self._timing
        for at, node in enumerate(self.ends):
            self._cut(at)
            if node is not gone:
                waits = self._rng.uniform(timing.misses - 1, timing.misses) * timing.heartbeat_ms
                self._clock.after(waits / 1e3, self._notice, at, self.life)

    def _lost(self) -> None:
        self.connected = False
        self._lost_ns = self._clock.now_ns

    def _cut(self, at: int) -> None:
        self.pipes[at].cut()
        if self.datagrams:
            self.datagrams[at].cut()

    def _notice(self, at: int, life: int) -> None:
        """One end finds out that this connection has ended."""
        if life != self.life or self._ports[at] < 0 or self.connected:
            return
        self._lose(at)
        if self.possible:
            self.dial()

    def _lose(self, at: int) -> None:
        datagrams = self._datagram_ports[at]
        self._ports[at] = self._datagram_ports[at] = -1
        self.ends[at].detach(self.ends[1 - at].name, datagrams)

    # --- bytes

    def drain(self, node: Node, port: int) -> None:
        """Take what a port has to send, as far as the queue of the line has room; the rest when it is half empty."""
        at = 0 if node is self.ends[0] else 1
        if port == self._datagram_ports[at]:
            while found := node.engine.peek_datagrams(port, DATAGRAMS):
                for datagram in found:
                    self.datagrams[at].push_datagram(datagram)
                node.engine.consumed_datagrams(port, len(found))
            return
        if not self.connected:  # the other end is gone, and this one has not noticed
            while piece := take(node.engine, port, WHOLE):
                if self.look is not None:
                    self.look(node, self, piece)
                self.pipes[at].waste(len(piece))
            return
        pipe = self.pipes[at]
        while room := pipe.room():
            piece = take(node.engine, port, room)
            if not piece:
                return
            if self.look is not None:
                self.look(node, self, piece)
            pipe.push(piece)
        if node.engine.pending(port) and not self._draining[at]:
            self._draining[at] = True
            self._clock.at(pipe.room_ns(), self._drain_on, at, port, self.life)

    def _drain_on(self, at: int, port: int, life: int) -> None:
        self._draining[at] = False
        if life == self.life and self.connected:
            self.drain(self.ends[at], port)

    def _receiver(self, at: int, datagram: bool) -> Callable[[bytes], None]:
        def receive(piece: bytes) -> None:
            port = self._datagram_ports[at] if datagram else self._ports[at]
            if port >= 0:
                self.ends[at].feed(port, piece, datagram)

        return receive
