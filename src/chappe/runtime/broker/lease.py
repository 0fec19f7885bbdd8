"""Who is active: holds the lease of a role from a thread of its own (GS-156)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from chappe.errors import StoreError
from chappe.store import Store

log = structlog.get_logger(__name__)

PATIENCE_S = 10.0  # a loop that shows no sign of life for so long does not lead, even if its thread could renew
SHARE = 3  # renewals within one lease


class Lease:
    """Takes the lease whenever it is free and renews it while the loop lives.

    A thread, because planning may keep the loop busy for longer than a lease. `gained(epoch)` and `lost(epoch, reason)`
    are called in that thread. `held` is careful: it counts from before the store was asked.
    """

    def __init__(
        self, store: Store, role: str, holder: str, lease_s: float,
        gained: Callable[[int], object], lost: Callable[[int, str], object],
    ) -> None:  # fmt: skip
        self._store = store
        self._role = role
        self._holder = holder
        self._lease_s = lease_s
        self._gained = gained
        self._lost = lost
        self._epoch = 0
        self._until = 0.0
        self._left = 0  # epoch that the loop does not want any more
        self._seen = time.monotonic()
        self._problem = ""
        self._ending = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease of {role}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def held(self, epoch: int) -> bool:
        """Whether nobody else can have been given the lease of that epoch."""
        return self._epoch == epoch and time.monotonic() < self._until

    def alive(self) -> None:
        """The loop turns."""
        self._seen = time.monotonic()

    def leave(self, epoch: int) -> None:
        """Give an epoch up; the lease is asked for again after a while."""
        self._left = epoch
        self._wake.set()

    def stop(self) -> None:
        """Give it up, so that another process leads at once, and end. Blocks for a while if the store is away."""
        self._ending = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending:
            self._turn()
            self._wake.wait(self._lease_s / SHARE)
            self._wake.clear()
        self._give_up()
        self._store.close()

    def _turn(self) -> None:
        if self._epoch and self._left == self._epoch:
            self._give_up()
            return
        asked = time.monotonic()
        try:
            if not self._epoch:
                self._acquire(asked)
            elif asked - self._seen > max(PATIENCE_S, SHARE * self._lease_s):
                self._end("the loop of this process does not turn")
            elif self._store.renew(self._role, self._holder, self._epoch, self._lease_s):
                self._until = asked + self._lease_s
            else:
                self._end("another process has taken it")
            self._problem = ""
        except StoreError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.error(
                    "lease not renewed" if self._epoch else "lease not asked for", role=self._role, reason=self._problem
                )
            if self._epoch and time.monotonic() > self._until:
                self._end(self._problem)

    def _acquire(self, asked: float) -> None:
        epoch = self._store.acquire(self._role, self._holder, self._lease_s)
        if epoch is not None:
            self._epoch, self._until = epoch, asked + self._lease_s
            self._gained(epoch)

    def _end(self, reason: str) -> None:
        epoch, self._epoch = self._epoch, 0
        self._lost(epoch, reason)

    def _give_up(self) -> None:
        epoch, self._epoch = self._epoch, 0
        if not epoch:
            return
        try:
            self._store.give_up(self._role, self._holder, epoch)
        except StoreError as error:  # it runs out by itself
            log.warning("lease not given up", role=self._role, reason=str(error))
