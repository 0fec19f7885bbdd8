"""From a store to a leading broker and back: one term after the other, each under its own epoch (GS-156)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from chappe.errors import StoreError
from chappe.executor import SerialExecutor
from chappe.runtime.broker.commits import Tally
from chappe.runtime.broker.lease import Lease
from chappe.runtime.broker.term import Term
from chappe.status.machine import Broker, Change, Send
from chappe.store import Changed, Store, open_store

log = structlog.get_logger(__name__)

SWITCH_S = 0.001  # a commit waits so long for the interpreter each time that planning has it
SETTLE_S = 2.0  # for commits under way when the process ends


class Leadership:
    """Leads while it has the lease. `make()` gives an empty broker.

    `begins(term)` is told when a broker has its state back and leads, `ends(reason)` when it does so no longer, and
    `leave(sends)` gets what a commit has set free.
    """

    def __init__(
        self,
        role: str,
        holder: str,
        make: Callable[[], Broker],
        begins: Callable[[Term], None],
        ends: Callable[[str], None],
        leave: Callable[[list[Send]], None],
    ) -> None:
        self.tally = Tally()
        self.terms = 0  # how many there were
        self._role = role
        self._holder = holder
        self._make = make
        self._begins = begins
        self._ends = ends
        self._leave = leave
        self._term: Term | None = None
        self._thread = SerialExecutor(f"store of {role}")
        self._store: Store | None = None
        self._of_lease: Store | None = None
        self._lease: Lease | None = None
        self._restoring: asyncio.Task[None] | None = None

    async def open(self, place: str) -> None:
        """Open the store; StoreError says what is wrong with it."""
        sys.setswitchinterval(SWITCH_S)

        def open_both() -> tuple[Store, Store]:
            store = open_store(place)
            try:
                return store, open_store(place)  # a commit must not keep the lease waiting
            except StoreError:
                store.close()
                raise

        self._store, self._of_lease = await self._thread.run(open_both)

    def start(self, lease_s: float) -> None:
        """Ask for the lease, over a connection of its own."""
        loop = asyncio.get_running_loop()

        def told(callback: Callable[..., None]) -> Callable[..., object]:
            return lambda *values: loop.call_soon_threadsafe(callback, *values)

        assert self._of_lease is not None
        self._lease = Lease(self._of_lease, self._role, self._holder, lease_s, told(self._gained), told(self._lost))
        self._lease.start()

    async def stop(self) -> None:
        """Finish what is being committed, then let another process lead at once."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        if self._term is not None:
            try:
                async with asyncio.timeout(SETTLE_S):
                    await self._term.settled()
            except TimeoutError:
                log.warning("ends before everything is committed", role=self._role)
            self.resign("the process ends")
        if self._lease is not None:
            await asyncio.to_thread(self._lease.stop)
        elif self._of_lease is not None:
            await self._thread.run(self._of_lease.close)
        if self._store is not None:
            await self._thread.run(self._store.close)
        self._thread.shutdown()

    @property
    def term(self) -> Term | None:
        """The present term; it ends here if the lease has run out while this process was kept from running."""
        term = self._term
        if term is not None and self._lease is not None and not self._lease.held(term.epoch):
            self.resign("the lease has run out")
            return None
        return term

    @property
    def epoch(self) -> int:
        """The epoch it leads in, or 0."""
        return self._term.epoch if self._term is not None else 0

    @property
    def state(self) -> str:
        if self._term is not None:
            return "leading"
        return "restoring" if self._restoring is not None else "standby"

    def alive(self) -> None:
        """The loop turns."""
        if self._lease is not None:
            self._lease.alive()

    def resign(self, reason: str) -> None:
        """Stop leading at once: nothing that is still under way leaves."""
        term, self._term = self._term, None
        if term is None:
            return
        log.info("leads no longer", role=self._role, holder=self._holder, epoch=term.epoch, reason=reason)
        term.end()
        if self._lease is not None:
            self._lease.leave(term.epoch)
        self._ends(reason)

    def _gained(self, epoch: int) -> None:
        log.info("lease taken", role=self._role, holder=self._holder, epoch=epoch)
        self._restoring = asyncio.get_running_loop().create_task(self._restore(epoch), name=f"restore {self._role}")

    def _lost(self, epoch: int, reason: str) -> None:
        if self.epoch == epoch:
            self.resign(reason)

    async def _restore(self, epoch: int) -> None:
        assert self._lease is not None
        try:
            broker = await self._thread.run(self._restored)
        except StoreError as error:
            log.error("state not loaded", role=self._role, reason=str(error))
            self._lease.leave(epoch)
        except Exception:
            log.exception("state not understood", role=self._role)
            self._lease.leave(epoch)
        else:
            if self._lease.held(epoch):
                self._begin(broker, epoch)
            else:
                self._lease.leave(epoch)
        finally:
            self._restoring = None

    def _restored(self) -> Broker:
        assert self._store is not None
        broker = self._make()
        broker.restore(Change(*item) for item in self._store.load(self._role))
        return broker

    def _begin(self, broker: Broker, epoch: int) -> None:
        async def commit(changes: Sequence[Changed]) -> None:
            assert self._store is not None
            await self._thread.run(partial(self._store.commit, self._role, epoch, changes))

        def leave(sends: list[Send]) -> None:
            if self.term is not None:
                self._leave(sends)

        self.terms += 1
        self._term = Term(broker, epoch, commit, leave, self.resign, self.tally)
        log.info("leads", role=self._role, holder=self._holder, epoch=epoch)
        self._begins(self._term)
