"""Messages of a broker leave in order, each after the changes that it follows from are durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from chappe.errors import StaleEpochError, StoreError
from chappe.status.machine import Address, Output, Persist, Send
from chappe.store import Changed

log = structlog.get_logger(__name__)

AGAIN_S = 0.1  # after a commit failed
AGAIN_MOST_S = 1.0


@dataclass(slots=True)
class Tally:
    """What all terms of a process have committed."""

    commits: int = 0
    changes: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0

    def add(self, changes: int, seconds: float) -> None:
        self.commits += 1
        self.changes += changes
        self.seconds += seconds
        self.slowest_s = max(self.slowest_s, seconds)


@dataclass(slots=True)
class _Batch:
    """One transaction, and what leaves after it."""

    changes: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)


class Commits:
    """Commits the changes of each turn of the loop as one transaction, and while it runs collects the next.

    `commit(changes)` makes them durable; `leave(sends)` lets messages go; `over(reason)` is told once when the epoch is
    over, and nothing leaves from then on. Other failures are repeated until the lease runs out.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Changed]], Awaitable[None]],
        leave: Callable[[list[Send]], None],
        over: Callable[[str], None],
        tally: Tally,
    ) -> None:
        self._commit = commit
        self._leave = leave
        self._over = over
        self._tally = tally
        self._next = _Batch()
        self._flight: _Batch | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def waiting(self) -> int:
        """Messages that wait for a commit."""
        return len(self._next.sends) + (len(self._flight.sends) if self._flight else 0)

    @property
    def idle(self) -> bool:
        """Nothing is being committed or waits for it."""
        return self._flight is None and not self._next.changes

    def put(self, outputs: Iterable[Output]) -> list[Send]:
        """Take what a broker decided; the answer may leave now."""
        free: list[Send] = []
        for output in outputs:
            if self._ended:
                break
            if isinstance(output, Persist):
                self._next.changes.update({(change.kind, change.key): change.value for change in output.changes})
            elif self._next.changes:
                self._next.sends.append(output)
            elif self._flight is not None:
                self._flight.sends.append(output)
            else:
                free.append(output)
        if self._next.changes and self._task is None and not self._ended:
            # A task begins in the next turn of the loop: everything of this one is in.
            self._task = asyncio.get_running_loop().create_task(self._run(), name="commits")
        return free

    def forget(self, address: Address) -> None:
        """A connection is over: what waits for it is not sent to the next one."""
        for batch in (self._next, self._flight):
            if batch is not None:
                batch.sends = [send for send in batch.sends if send.to != address]

    def end(self) -> None:
        """Nothing more is committed or leaves; a transaction under way may still succeed."""
        self._ended = True
        self._next, self._flight = _Batch(), None
        if self._task is not None:
            self._task.cancel()

    async def settled(self) -> None:
        """Everything that was put is durable and has left."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._next.changes:
                self._flight, self._next = self._next, _Batch()
                await self._durable([(kind, key, value) for (kind, key), value in self._flight.changes.items()])
                if self._ended:
                    return
                sends, self._flight = self._flight.sends, None
                self._leave(sends)
        except Exception as error:  # nothing of this term may wait for ever: the next one starts from the store
            log.exception("commits ended")
            if not self._ended:
                self._ended = True
                self._over(f"{type(error).__name__}: {error}")
        finally:
            self._task = None

    async def _durable(self, changes: list[Changed]) -> None:
        pause_s, problem = AGAIN_S, ""
        while not self._ended:
            begun = time.perf_counter()
            try:
                await self._commit(changes)
            except StaleEpochError as error:
                self._ended = True
                self._over(str(error))
            except StoreError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.error("not committed, it is tried again", changes=len(changes), reason=problem)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_MOST_S)
            else:
                self._tally.add(len(changes), time.perf_counter() - begun)
                return
