"""Requests of an inner broker to its neighbours, and whatever waits for their answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from chappe.machine import NEVER
from chappe.status.machine import PARENT, Address
from chappe.status.outbox import Outbox
from chappe.wire.base import Answer, Failed, Request

Receiver = Callable[[Answer, int], None]
"""Gets the answer and the time; `Failed(code=AWAY)` if there will be none."""

AWAY = "away"  # among brokers: the request may not have arrived, which "unavailable" of whom it is for does not say


class _Call(NamedTuple):
    to: Address
    request: Request
    receiver: Receiver
    kept: bool


class Calls:
    """Every call is answered once: by its answer, or as failed when its connection or its time is over.

    A kept call is not failed: it waits for the connection and is sent (again) when it is there. Whoever gives up
    meanwhile has to say so by another one: the first may have been carried out.
    """

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._last = 0
        self.parent_up = False  # it has said that it leads
        self._open: dict[int, _Call] = {}
        self._deadlines: list[tuple[int, int]] = []

    def lead(self, epoch: int) -> None:
        """Numbers of another epoch never meet the answers to this one's."""
        self._last = epoch << 32

    def call(self, to: Address, request: Request, receiver: Receiver, now_ns: int, timeout_ns: int = 0,
             kept: bool = False) -> None:  # fmt: skip
        """Send a request under a number of its own. Without a time-out it waits as long as the connection lasts."""
        self._last += 1
        request.id = self._last
        self._open[self._last] = _Call(to, request, receiver, kept)
        if timeout_ns:
            heapq.heappush(self._deadlines, (now_ns + timeout_ns, self._last))
        if to != PARENT or self.parent_up:
            self._out.send(to, request)

    def again(self, to: Address) -> None:
        """The connection is back: what was kept for it goes out again."""
        for call in self._open.values():
            if call.kept and call.to == to:
                self._out.send(to, call.request)

    def answered(self, source: Address, message: Answer, now_ns: int) -> None:
        """An answer; one that nobody waits for is late or forged and ignored."""
        call = self._open.get(message.id)
        if call is not None and call.to == source:
            del self._open[message.id]
            call.receiver(message, now_ns)

    def lost(self, address: Address, now_ns: int) -> None:
        """The connection is gone, and with it every answer."""
        gone = [number for number, call in self._open.items() if call.to == address and not call.kept]
        for number in gone:
            self._fail(number, f"the connection to {address} was lost", now_ns)

    def next_tick(self) -> int:
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else NEVER

    def tick(self, now_ns: int) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, number = heapq.heappop(self._deadlines)
            if number in self._open:
                self._fail(number, f"{self._open[number].to} has not answered in time", now_ns)

    def _fail(self, number: int, reason: str, now_ns: int) -> None:
        self._open.pop(number).receiver(Failed(id=number, reason=reason, code=AWAY), now_ns)
