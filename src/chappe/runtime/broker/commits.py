"""What a broker decides becomes durable: one transaction after the other, tried again until it succeeds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from chappe.errors import StaleEpochError, StoreError
from chappe.machine import Change, Effect

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


class Decided(Protocol):
    """The machine whose changes are committed (`core.broker.machine.BrokerMachine`)."""

    epoch: int

    @property
    def has_changes(self) -> bool: ...

    def changes(self) -> list[Change]: ...

    def committed(self, epoch: int) -> list[Effect]: ...


class Commits:
    """Commits the changes of each turn of the loop as one transaction.

    `commit(epoch, changes)` makes them durable; `perform(effects)` gets what that sets free; `over(epoch, reason)` is
    called when a term cannot go on. Failures of the store are repeated until the lease runs out.
    """

    def __init__(
        self,
        machine: Decided,
        commit: Callable[[int, Sequence[Change]], Awaitable[None]],
        perform: Callable[[list[Effect]], None],
        over: Callable[[int, str], None],
        tally: Tally,
    ) -> None:
        self._machine = machine
        self._commit = commit
        self._perform = perform
        self._over = over
        self._tally = tally
        self._task: asyncio.Task[None] | None = None

    def go(self) -> None:
        """The machine may have decided something."""
        if self._task is None and self._machine.has_changes:
            # A task begins in the next turn of the loop: everything of this one is in.
            self._task = asyncio.get_running_loop().create_task(self._run(), name="commits")

    def stop(self) -> None:
        """Nothing more is committed; a transaction under way may still succeed."""
        if self._task is not None:
            self._task.cancel()

    async def settled(self) -> None:
        """Everything that was decided is durable and has left."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        epoch = 0
        try:
            while self._machine.has_changes:
                epoch = self._machine.epoch
                await self._durable(epoch, self._machine.changes())
                self._perform(self._machine.committed(epoch))
        except Exception as error:  # nothing of this term may wait for ever: the next one starts from the store
            log.exception("commits ended")
            self._over(epoch, f"{type(error).__name__}: {error}")
        finally:
            self._task = None

    async def _durable(self, epoch: int, changes: list[Change]) -> None:
        pause_s, problem = AGAIN_S, ""
        while self._machine.epoch == epoch:
            begun = time.perf_counter()
            try:
                await self._commit(epoch, changes)
            except StaleEpochError as error:
                self._over(epoch, str(error))
            except StoreError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.error("not committed, it is tried again", changes=len(changes), reason=problem)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_MOST_S)
            else:
                self._tally.add(len(changes), time.perf_counter() - begun)
                return
