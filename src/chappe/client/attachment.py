"""Which of several nodes a client is attached to: the one that answers soonest (MR-035, MR-118)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from chappe.errors import ChappeError
from chappe.links.address import Address
from chappe.links.link import Raw

GAIN = 0.2  # a node counts as better if it answers sooner by this share of the other's time
GAIN_S = 0.002  # and by this
ROUNDS = 3  # rounds in a row in which it does, before a client that is attached moves
TRIES = 2  # connections of which the quicker one counts: the first may wait for a name or a route
PATIENCE_S = 1.0  # a node that has not answered by then counts as away in this round


class Ranking:
    """The times in which each of several nodes answered, round by round; what is within the gain counts as equal."""

    def __init__(self, count: int) -> None:
        self._times: list[float | None] = [None] * count
        self._ahead: dict[int, int] = {}  # rounds in a row in which a node was better than the present one

    def measured(self, times: Sequence[float | None], present: int | None = None) -> None:
        """One round: seconds by node, None for one that did not answer. `present`: where the client is attached."""
        self._times = list(times)
        mine = None if present is None else times[present]
        ahead = {} if mine is None else {at for at, other in enumerate(times) if _better(other, mine)}
        self._ahead = {at: self._ahead.get(at, 0) + 1 for at in ahead}

    def order(self, present: int | None = None) -> list[int]:
        """Which to try first: the best, or of equals the present one, then the one named first."""
        left = list(range(len(self._times)))
        if present is not None:
            left.remove(present)
            left.insert(0, present)
        found: list[int] = []
        while left:
            best = left[0]
            for at in left[1:]:
                if self._times[at] is not None and (self._times[best] is None or self._sooner(at, best)):
                    best = at
            left.remove(best)
            found.append(best)
        return found

    def move(self) -> int | None:
        """The node to move to, if one was better in enough rounds in a row."""
        ready = [at for at, rounds in self._ahead.items() if rounds >= ROUNDS]
        return min(ready, key=lambda at: self._times[at] or 0.0) if ready else None

    def moved(self) -> None:
        """The client is attached anew: what was counted is about another place."""
        self._ahead = {}

    def _sooner(self, at: int, than: int) -> bool:
        mine = self._times[than]
        return mine is None or _better(self._times[at], mine)


def _better(other: float | None, mine: float) -> bool:
    return other is not None and mine - other > max(GAIN * mine, GAIN_S)


async def answer_times(addresses: Sequence[Address], dial: Callable[[Address], Awaitable[Raw]]) -> list[float | None]:
    """How long each node took to open a connection and say what it is; None: it did not within `PATIENCE_S`."""
    return list(await asyncio.gather(*(_answer_time(address, dial) for address in addresses)))


async def _answer_time(address: Address, dial: Callable[[Address], Awaitable[Raw]]) -> float | None:
    best: float | None = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(TRIES):
                begun = time.perf_counter()
                raw = await dial(address)
                try:
                    await raw.read_preamble(PATIENCE_S)
                finally:
                    raw.abort()
                took = time.perf_counter() - begun
                best = took if best is None else min(best, took)
    except (TimeoutError, ChappeError, OSError):
        return best
    return best
