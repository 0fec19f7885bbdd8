"""When a handshake may begin: at once, or in turn if its host has used up its time of a loop that forwards data.

A host pays for the handshakes of its connections until they prove an identity, which pays then. So a thousand clients
behind one address connect at once, and a flood from there waits for its turn while others are served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from time import perf_counter_ns

from chappe.links.meter import Meter
from chappe.node.accounts import Accounts, Holder
from chappe.node.background import Pacer

AROUND_NS = 300_000  # what a connection costs before its handshake and at its end
TURN_S = 0.002  # between two handshakes that wait, at least: the first of them is under way until then


class Gate:
    """The gate of all listeners of a node."""

    def __init__(self, accounts: Accounts, pacer: Pacer) -> None:
        self._accounts = accounts
        self._pacer = pacer
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._turn: deque[str] = deque()
        self._spent_ns = 0  # by handshakes that had to wait, since the last turn
        self._task: asyncio.Task[None] | None = None

    async def enter(self, host: str) -> Meter:
        """Wait for the turn of that host; what its handshake uses goes to the meter."""
        if not self._accounts.overdrawn(("host", host), perf_counter_ns()) or not self._pacer.busy:
            return Meter(partial(self._pay, ("host", host)))
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if host not in self._waiting:
            self._waiting[host] = deque()
            self._turn.append(host)
        self._waiting[host].append(waiter)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._take_turns())
        self._pay_in_turn(host, AROUND_NS)
        await waiter
        return Meter(partial(self._pay_in_turn, host))

    def proven(self, host: str, holder: Holder, meter: Meter) -> None:
        """An identity is proven: it pays for the handshake, unless it has used up its own time."""
        if not self._accounts.charge(holder, meter.total_ns, perf_counter_ns()):
            self._accounts.credit(("host", host), meter.total_ns)
            meter.charge = partial(self._pay, holder)

    def _pay(self, holder: Holder, took_ns: int) -> None:
        self._accounts.charge(holder, took_ns, perf_counter_ns())

    def stop(self) -> None:
        """Let nobody in any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _pay_in_turn(self, host: str, took_ns: int) -> None:
        self._pay(("host", host), took_ns)
        self._spent_ns += took_ns

    async def _take_turns(self) -> None:
        while self._turn:
            host = self._turn.popleft()
            waiting = self._waiting[host]
            while waiting:
                waiter = waiting.popleft()
                if not waiter.done():  # else its connection has ended
                    waiter.set_result(None)
                    break
            if waiting:
                self._turn.append(host)
            else:
                del self._waiting[host]
            await asyncio.sleep(TURN_S)
            spent_ns, self._spent_ns = self._spent_ns, 0
            await asyncio.sleep(self._pacer.rest_s(spent_ns))
        self._task = None
