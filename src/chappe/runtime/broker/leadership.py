"""The lease and the store of a role: who leads, what it restores, what it commits (GS-156)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from chappe.errors import StoreError
from chappe.executor import SerialExecutor
from chappe.machine import Change
from chappe.runtime.broker.lease import Lease
from chappe.status.machine import Broker
from chappe.store import Store, open_store

log = structlog.get_logger(__name__)

SWITCH_S = 0.001  # a commit waits so long for the interpreter each time that planning has it


class Leadership:
    """Asks for the lease, restores a broker when it is gained, commits for it. `make()` gives an empty broker.

    `begins(broker, epoch)` is called when a broker has its state back, `ends(epoch, reason)` when the lease is lost.
    """

    def __init__(
        self,
        role: str,
        holder: str,
        make: Callable[[], Broker],
        begins: Callable[[Broker, int], None],
        ends: Callable[[int, str], None],
    ) -> None:
        self.terms = 0  # how many there were
        self._role = role
        self._holder = holder
        self._make = make
        self._begins = begins
        self._ends = ends
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

        def in_loop(callback: Callable[..., None]) -> Callable[..., object]:
            return lambda *values: loop.call_soon_threadsafe(callback, *values)

        assert self._of_lease is not None
        self._lease = Lease(
            self._of_lease, self._role, self._holder, lease_s, in_loop(self._gained), in_loop(self._ends)
        )
        self._lease.start()

    async def halt(self) -> None:
        """Begin no more terms."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])

    async def stop(self) -> None:
        """Let another process lead at once, and close the store."""
        if self._lease is not None:
            await asyncio.to_thread(self._lease.stop)
        elif self._of_lease is not None:
            await self._thread.run(self._of_lease.close)
        if self._store is not None:
            await self._thread.run(self._store.close)
        self._thread.shutdown()

    @property
    def restoring(self) -> bool:
        return self._restoring is not None

    def held(self, epoch: int) -> bool:
        """Whether nobody else can lead in that epoch or after it."""
        return self._lease is not None and self._lease.held(epoch)

    def alive(self) -> None:
        """The loop turns."""
        if self._lease is not None:
            self._lease.alive()

    def leave(self, epoch: int) -> None:
        """Give an epoch up."""
        if self._lease is not None:
            self._lease.leave(epoch)

    async def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        """Make them durable, unless the epoch is over (StaleEpochError)."""
        assert self._store is not None
        rows = [(change.kind, change.key, change.value) for change in changes]
        await self._thread.run(partial(self._store.commit, self._role, epoch, rows))

    def _gained(self, epoch: int) -> None:
        log.info("lease taken", role=self._role, holder=self._holder, epoch=epoch)
        self._restoring = asyncio.get_running_loop().create_task(self._restore(epoch), name=f"restore {self._role}")

    async def _restore(self, epoch: int) -> None:
        try:
            broker = await self._thread.run(self._restored)
        except StoreError as error:
            log.error("state not loaded", role=self._role, reason=str(error))
            self.leave(epoch)
        except Exception:
            log.exception("state not understood", role=self._role)
            self.leave(epoch)
        else:
            if self.held(epoch):
                self.terms += 1
                log.info("leads", role=self._role, holder=self._holder, epoch=epoch)
                self._begins(broker, epoch)
            else:
                self.leave(epoch)
        finally:
            self._restoring = None

    def _restored(self) -> Broker:
        assert self._store is not None
        broker = self._make()
        broker.restore(Change(*item) for item in self._store.load(self._role))
        return broker
