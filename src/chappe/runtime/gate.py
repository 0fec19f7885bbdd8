"""When a handshake may begin: at once, or in turn if its host has used up its time of a loop that forwards data.

A host pays for the handshakes of its connections until they prove an identity, which pays then. So a thousand clients
behind one address connect at once, and a flood from there waits for its turn while others are served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns

import structlog

from chappe.core.accounts import Accounts, Holder
from chappe.links.meter import Meter
from chappe.runtime.background import Pacer

log = structlog.get_logger(__name__)

AROUND_NS = 300_000  # what a connection costs before its handshake and at its end
TURN_S = 0.002  # between two handshakes that wait, at least: the first of them is under way until then


class Gate:
    """The gate of all listeners of a node."""

    def __init__(self, accounts: Accounts, pacer: Pacer) -> None:
        self._accounts = accounts
        self._pacer = pacer
        self._waiting: dict[str, deque[Callable[[Meter], None]]] = {}
        self._turn: deque[str] = deque()
        self._spent_ns = 0  # by handshakes that had to wait, since the last turn
        self._task: asyncio.Task[None] | None = None

    def meter(self, host: str) -> Meter | None:
        """For a handshake that may begin at once; what it uses is charged to its host. None: it has to `wait`."""
        if host in self._waiting or (
            self._accounts.overdrawn(("host", host), perf_counter_ns()) and self._pacer.busy
        ):  # fmt: skip
            return None
        return Meter(partial(self._pay, ("host", host)))

    def wait(self, host: str, begin: Callable[[Meter], None]) -> None:
        """Call `begin` when it is the turn of that host."""
        if host not in self._waiting:
            self._waiting[host] = deque()
            self._turn.append(host)
        self._waiting[host].append(begin)
        self._pay(("host", host), AROUND_NS)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._take_turns())

    async def proven(self, host: str, holder: Holder, meter: Meter) -> None:
        """An identity is proven: it pays for the handshake. One that has used up its own time waits for its turn."""
        if not self._accounts.charge(holder, meter.total_ns, perf_counter_ns()):
            self._accounts.credit(("host", host), meter.total_ns)
            meter.charge = partial(self._pay, holder)
        elif self._pacer.busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.wait(host, lambda _: _come(turn))
            await turn
            self._spent_ns += meter.total_ns

    def stop(self) -> None:
        """Let nobody in any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _pay(self, holder: Holder, took_ns: int) -> None:
        self._accounts.charge(holder, took_ns, perf_counter_ns())

    def _pay_in_turn(self, host: str, took_ns: int) -> None:
        self._pay(("host", host), took_ns)
        self._spent_ns += took_ns

    async def _take_turns(self) -> None:
        while self._turn:
            host = self._turn.popleft()
            waiting = self._waiting[host]
            self._spent_ns = AROUND_NS
            try:
                waiting.popleft()(Meter(partial(self._pay_in_turn, host)))
            except Exception:  # one that cannot begin must not keep the others waiting for ever
                log.exception("a handshake could not begin", host=host)
            if waiting:
                self._turn.append(host)
            else:
                del self._waiting[host]
            await asyncio.sleep(TURN_S)
            spent_ns, self._spent_ns = self._spent_ns, 0
            await asyncio.sleep(self._pacer.rest_s(spent_ns))
        self._task = None


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # else its connection has ended
        turn.set_result(None)
